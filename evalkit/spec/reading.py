"""A TOML file as a checked record: every unknown key and wrong type is named with its file and place.

msgspec checks types; unknown keys are looked for first, because only we know what may have been meant.
"""

import codecs
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from evalkit.errors import UsageError, nearest

# Files of editors that begin with a mark of their encoding: that of UTF-8 is no part of the text, others are told.


def without_mark(data: bytes, path: Path) -> bytes:
    """The beginning of a text file, or all of it, with blanks in place of UTF-8's mark: places of bytes stay. Raises
    UsageError for UTF-16 and UTF-32, with their marks or without."""
    if data.startswith(codecs.BOM_UTF8):
        return b" " * len(codecs.BOM_UTF8) + data[len(codecs.BOM_UTF8) :]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:4]:
        raise UsageError(f"{path} is not UTF-8 text, but UTF-16 or UTF-32. Save it as UTF-8 in your editor.")
    return data


# No file of a sweep or a provider holds a key: what looks like one is refused, in words that do not repeat it.

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
    for key_path, name, text in _leaves(data, "", ""):
        if not isinstance(text, str):
            continue
        if _LOOKS.search(text) or (_folded(name) in _NAMES and text and not _NO_KEY.fullmatch(f"{key_path}={text}")):
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


def _leaves(data: object, key_path: str, name: str) -> Iterator[tuple[str, str, object]]:
    """(path of keys, name of the field, value) of all values that are no tables or lists; names are texts too, of no
    name, at the path that holds them."""
    if isinstance(data, dict):
        for key, item in data.items():
            yield key_path or "a name in it", "", key
            yield from _leaves(item, _join(key_path, key), key)
    elif isinstance(data, list):
        for i, item in enumerate(data, 1):
            yield from _leaves(item, f"{key_path}[{i}]", name)
    else:
        yield key_path, name, data


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


RecordT = TypeVar("RecordT", bound=msgspec.Struct)


def read_toml(path: Path, kind: type[RecordT]) -> RecordT:
    """The file as a record of `kind`. Raises UsageError naming file, line or key, and the nearest valid name, and where
    something in it seems to be a secret.
    """
    return check_record(read_values(path), kind, str(path))


def read_values(path: Path) -> dict[str, Any]:
    """The file as plain values, not checked yet. Raises UsageError as `parse_toml` does, and where something in it
    seems to be a secret."""
    data = parse_toml(path)
    refuse_keys(data, str(path))
    return data


def parse_toml(path: Path) -> dict[str, Any]:
    """The file as plain values. Raises UsageError, also for integers that no log could hold (beyond 64 bits)."""
    return parse_text(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The file's text. Raises UsageError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file.") from None
    except OSError as flaw:
        raise UsageError(f"{path} cannot be read: {flaw}") from flaw
    try:
        text = without_mark(data, path).decode()
    except UnicodeDecodeError as flaw:
        line = data.count(b"\n", 0, flaw.start) + 1
        raise UsageError(f"{path} is not UTF-8 text (at line {line}). Save it as UTF-8 in your editor.") from flaw
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_text(text: str, where: str) -> dict[str, Any]:
    """`parse_toml` of a text; `where` names its source in errors."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as flaw:
        raise UsageError(f"{where} is not valid TOML: {flaw}") from flaw
    except RecursionError as flaw:
        raise UsageError(f"{where}: lists or tables are nested too deeply.") from flaw
    except ValueError as flaw:  # Python converts no integer of thousands of digits
        match = _ENDLESS.search(text)
        position = f" (at line {text.count(chr(10), 0, match.start()) + 1})" if match else ""
        raise UsageError(f"{where}: an integer of thousands of digits is too long{position}.") from flaw
    _refuse_long(data, where)
    return data


def plain_values(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A program's values as `read_values` gives those of a file; an amount of money may be a Decimal.

    Raises UsageError as `read_values` does, and for a value that TOML has not.
    """
    data: dict[str, Any] = _as_toml(values, where, "")
    _refuse_long(data, where)
    refuse_keys(data, where)
    return data


def _as_toml(value: object, where: str, key_path: str) -> Any:
    """A value in the types that `parse_toml` gives."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"{where}: {key_path or 'its keys'}: expected strings as keys, got {key!r}.")
        return {key: _as_toml(item, where, _join(key_path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_toml(item, where, f"{key_path}[{i}]") for i, item in enumerate(value, 1)]
    if isinstance(value, Decimal | PurePath):
        return str(value)
    if isinstance(value, str | int | float):
        return value
    got = "None" if value is None else type(value).__name__
    raise UsageError(f"{where}: {key_path}: expected a TOML value, got {got}. Leave out fields that are not set.")


def _refuse_long(data: object, where: str) -> None:
    for key_path, _, value in _leaves(data, "", ""):
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise UsageError(
                f"{where}: {key_path}: an integer of {value.bit_length()} bits is too long; at most "
                f"{_BITS} bits are allowed."
            )


_BITS = 63
_ENDLESS = re.compile(r"[0-9][0-9_]{4000}")


def check_record(data: object, kind: type[RecordT], where: str, at: str = "") -> RecordT:
    """Plain values as a record of `kind`; `where` names their source in errors, and `at` their place in it. Raises
    UsageError."""
    _check_keys(data, kind, where, at)
    record: RecordT = _converted(data, kind, where, at)
    return record


def _converted(data: object, kind: Any, where: str, key_path: str) -> Any:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as flaw:
        raise UsageError(f"{where}: {_plain(str(flaw), key_path)}") from flaw


def _check_keys(data: object, kind: Any, where: str, key_path: str) -> None:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        for option in get_args(kind):
            table = isinstance(option, type) and issubclass(option, msgspec.Struct) and isinstance(data, dict)
            if table or get_origin(option) in (list, tuple):
                _check_keys(data, option, where, key_path)
    elif origin in (list, tuple) and isinstance(data, list):
        for i, item in enumerate(data):
            _check_keys(item, get_args(kind)[0], where, f"{key_path}[{i + 1}]")
    elif origin is dict and isinstance(data, dict):
        for key, item in data.items():
            entry = get_args(kind)[1]
            _check_keys(item, entry, where, _join(key_path, key))
            _converted(item, entry, where, _join(key_path, key))  # msgspec itself does not say which key it was
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(data, dict):
        known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for key, item in data.items():
            if key not in known:
                raise UsageError(f"{where}: unknown key {_join(key_path, key)!r}.{nearest(key, known)}")
            _check_keys(item, known[key], where, _join(key_path, key))
        for field in msgspec.structs.fields(kind):
            if field.required and field.encode_name not in data:
                raise UsageError(f"{where}: {_missing(field, key_path)}")


def _missing(field: msgspec.structs.FieldInfo, key_path: str) -> str:
    """What to write where a table lacks what it must have."""
    name = field.encode_name
    tables = any(isinstance(one, type) and issubclass(one, msgspec.Struct) for one in get_args(field.type))
    sample = f"at least one table [[{name}]]" if tables else f"`{name} = ...`"
    return f"{_join(key_path, name)} is missing: write {sample}."


def _join(key_path: str, key: str) -> str:
    return f"{key_path}.{key}" if key_path else key


_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
"""What msgspec calls types, in the words of a TOML file."""


def _type_words(match: re.Match[str]) -> str:
    return " or ".join(_TYPES.get(name, name) for name in match[1].split(" | "))


def _plain(message: str, before: str) -> str:
    """msgspec's message with the place first: `agents[1].width: expected a whole number, got a string`."""
    match = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*)`)?", message, re.DOTALL)
    text, key_path = (match[1], match[2]) if match else (message, None)
    text = re.sub("`([^`]*)`", _type_words, text[0].lower() + text[1:])
    # msgspec counts list entries from 0, people count tables from 1.
    key_path = re.sub(r"\[(\d+)\]", lambda match: f"[{int(match[1]) + 1}]", key_path or "")
    key_path = before + key_path if key_path.startswith("[") else _join(before, key_path) if key_path else before
    return f"{key_path}: {text}." if key_path else f"{text}."


_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_span(text: str) -> float:
    """A span of time as people write it (`90s`, `15m`, `1h30m`) in seconds. Raises ValueError."""
    total, offset = 0.0, 0
    while offset < len(text):
        match = _SPAN.match(text, offset)
        if not match:
            raise ValueError(f"{text!r} is not a span of time: write it like 90s, 15m or 1h30m")
        total += float(match[1]) * _SECONDS[match[2]]
        offset = match.end()
    if not text.strip():
        raise ValueError("an empty string is not a span of time: write it like 90s, 15m or 1h30m")
    return total
