"""No file of a sweep or a provider holds a key: what looks like one is refused, in words that do not repeat it."""

import re
from collections.abc import Iterator

from evalkit.errors import UsageError

_NAMES = frozenset(
    {"key", "apikey", "xapikey", "xgoogapikey", "apitoken", "accesstoken", "authtoken", "token", "bearer", "secret"}
    | {"clientsecret", "authorization", "proxyauthorization", "password", "credentials"}
)
"""Names of fields that hold keys, in lower case, without dashes and underscores."""

_LOOKS = re.compile(
    r"(?:\b(?:sk|pk|rk|xai|pplx|nvapi|glpat|fw|csk|tgp)[-_](?=[\w-]*\d)[\w-]{12,}"
    r"|\bAIza[\w-]{20,}|\b(?:gsk|hf|r8|ghp)_\w{16,}|\bBearer\s+\S{8,})"
)
"""How keys of well-known providers begin."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_NO_KEY = re.compile(r"simulate\.key=.*|credentials=[a-z]{1,8}", re.DOTALL)
"""The key that a simulated provider asks for guards nothing, and a short word such as a cloud's name is no secret."""


def refuse_keys(data: object, where: str) -> None:
    """Raises UsageError naming file and place where plain values from a file seem to hold a key."""
    for key_path, name, text in _texts(data, "", ""):
        if _LOOKS.search(text) or (_plain(name) in _NAMES and text and not _NO_KEY.fullmatch(f"{key_path}={text}")):
            raise UsageError(
                f"{where}: {key_path} seems to contain a key. Files must not contain keys: put it into an "
                "environment variable, name that variable in `key_env` of the provider's file, and revoke "
                "the key if others have seen it."
            )
        if name == "key_env" and text and not _VARIABLE.fullmatch(text):
            raise UsageError(
                f"{where}: {key_path} is not the name of an environment variable. Write the name of the "
                "variable with the key, like OPENAI_API_KEY, and not the key itself."
            )


def _texts(data: object, key_path: str, name: str) -> Iterator[tuple[str, str, str]]:
    """(path of keys, name of the field, text) of all texts; names are texts too, of no name, at the path that holds
    them."""
    if isinstance(data, str):
        yield key_path, name, data
    elif isinstance(data, dict):
        for key, item in data.items():
            yield key_path or "a name in it", "", key
            yield from _texts(item, f"{key_path}.{key}" if key_path else key, key)
    elif isinstance(data, list):
        for i, item in enumerate(data):
            yield from _texts(item, f"{key_path}[{i + 1}]", name)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
