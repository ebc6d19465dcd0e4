"""Keys and endpoints from the user's environment: read only here, and only before a provider is asked.

A key is looked for in the environment first, then in the system's keyring, if the optional package `keyring` is there,
and then, where the provider's file says so, at a cloud's own SDK. evalkit never asks for a
key, and no message contains one.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from evalkit.client.clouds import from_cloud, missing_library
from evalkit.client.credentials import Credentials
from evalkit.errors import UsageError
from evalkit.redact import KEYS
from evalkit.spec.catalogue import PLACE_HOLDER
from evalkit.spec.model import Provider, ServerSpec
from evalkit.wire.table import DIALECTS

SERVICE = "evalkit"
"""The keyring's service; its user name is the name of the variable."""

Place = Literal["env", "keyring", "not set"]


def read_key(provider: Provider) -> str:
    """The provider's key; empty if none is needed, or if `credentials_of` gives it. Raises UsageError if it is missing
    or not valid in a header."""
    if not provider.key_env:
        return ""
    key, source = _look(provider.key_env)
    if source == "not set":
        if provider.credentials:
            return ""
        raise UsageError(
            f"Provider {provider.name!r} needs a key: set the environment variable {provider.key_env}, or, with `pip "
            f"install 'evalkit-econ[keyring]'`, put it into the keyring: `keyring set {SERVICE} {provider.key_env}`."
        )
    if not key.isascii() or not key.isprintable():
        raise UsageError(
            f"The key in {provider.key_env} ({source}) contains characters that an HTTP header cannot carry."
        )
    KEYS.learn(key)
    return key


def key_place(provider: Provider) -> Place:
    """Where the key of a provider that needs one is found. Raises UsageError if the keyring cannot be read."""
    return _look(provider.key_env)[1]


def lacking(provider: Provider) -> str:
    """Why the provider cannot be asked for want of a key, in words; empty if it can. Nothing is called. Raises
    UsageError if the keyring cannot be read."""
    if provider.key_env and key_place(provider) != "not set":
        return ""
    reasons = [f"{provider.key_env} is not set"] if provider.key_env else []
    if provider.credentials:
        install = missing_library(provider.credentials)
        if not install:
            return ""
        reasons.append(f"{provider.credentials}'s SDK is not installed (`{install}`)")
    return ", and ".join(reasons)


def check_key(provider: Provider) -> None:
    """Raises UsageError if the provider cannot be asked for want of a key. Calls no SDK."""
    if not read_key(provider) and (reason := lacking(provider)):
        raise UsageError(f"Provider {provider.name!r} needs a key: {reason}.")


def credentials_of(provider: Provider, *, url: str) -> Credentials | None:
    """What gives the provider's keys, where `read_key` gives none; None if none is needed. Raises UsageError if the SDK
    of a cloud is not installed."""
    if provider.credentials:
        return Credentials(from_cloud(provider.credentials, url))
    return None


def servers_of(provider: Provider) -> tuple[ServerSpec, ...]:
    """The provider's servers, with the variables of their URLs filled in. A variable may hold several values, separated
    by commas or blanks: each of them is a server.

    Raises UsageError naming provider and variable if one is not set, or is not the beginning of a URL; and if two
    servers are the same.
    """
    servers = [replace(server, url=url) for server in provider.servers for url in _filled_in(provider, server.url)]
    for server in servers:
        _refuse_endpoint(provider, server.url)
    if len({server.url for server in servers}) < len(servers):
        # The values of variables are not shown.
        written = ", ".join(server.url for server in provider.servers)
        raise UsageError(f"Provider {provider.name!r} has the url {written}, which names a server twice.")
    return tuple(servers)


def _refuse_endpoint(provider: Provider, url: str) -> None:
    """Raises UsageError for a URL that ends in what is appended to it: each request would be answered with 404."""
    path = DIALECTS[provider.dialect].path
    if "{model}" not in path and url.partition("?")[0].rstrip("/").lower().endswith(path):
        raise UsageError(
            f"Provider {provider.name!r}: its url ends in {path}, which evalkit appends. Write what is before it."
        )


def short_names(servers: Sequence[ServerSpec]) -> list[str]:
    """What each is called where there are several: its host and port, or all that follows `://` where two would be
    called the same."""
    places = [server.url.partition("://")[2] for server in servers]
    hosts = [place.partition("/")[0] for place in places]
    return hosts if len(set(hosts)) == len(hosts) else places


def _filled_in(provider: Provider, written: str) -> list[str]:
    urls = [written]
    for name in PLACE_HOLDER.findall(written):
        values = [value.rstrip("/") for value in os.environ.get(name, "").replace(",", " ").split()]
        if not values:
            raise UsageError(f"Provider {provider.name!r} has the url {written}: set the environment variable {name}.")
        urls = [url.replace(f"${{{name}}}", value) for url in urls for value in values]
    if urls != [written] and not all(url.startswith(("https://", "http://")) for url in urls):
        # Its value is not shown: it may be a key that was put into the wrong variable.
        raise UsageError(
            f"Provider {provider.name!r} has the url {written}, but with the values of its variables this "
            "is not an http or https URL."
        )
    return urls


def _look(variable: str) -> tuple[str, Place]:
    key = os.environ.get(variable, "").strip()
    if key:
        return key, "env"
    key = _from_keyring(variable)
    return (key, "keyring") if key else ("", "not set")


def _from_keyring(variable: str) -> str:
    """The keyring's entry; empty if it has none, or if there is no keyring."""
    try:
        import keyring
        from keyring.errors import KeyringError, NoKeyringError
    except ImportError:
        return ""
    try:
        return (keyring.get_password(SERVICE, variable) or "").strip()
    except NoKeyringError:
        return ""
    except (KeyringError, OSError, RuntimeError, ValueError, TypeError) as flaw:  # it reads all packages' metadata
        # Only the type of the error is shown: a backend's message could contain anything.
        raise UsageError(
            f"The keyring could not be read for {variable} ({type(flaw).__name__}). Unlock it, or set the environment "
            f"variable {variable}."
        ) from None
