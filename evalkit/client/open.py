"""From the catalogue's values to a connection."""

from collections.abc import Collection

from evalkit.client.keys import read_key, url_of
from evalkit.client.transport import HttpTransport, Transport
from evalkit.spec.model import Provider
from evalkit.wire.table import DIALECTS


def open_transport(provider: Provider, *, url: str = "", others: Collection[str] = ()) -> HttpTransport:
    """The provider; `url` replaces the one in the file (for a simulated provider that was just started). `others`: keys
    of other providers, which its answers must not show either.

    Raises UsageError if the key or a variable of the URL is missing, or the key would be sent unencrypted. To be
    used as `async with`.
    """
    key = read_key(provider)
    return HttpTransport(
        url or url_of(provider),
        headers=DIALECTS[provider.dialect].headers(key),
        key=key,
        timeout_s=provider.timeout_s,
        others=others,
    )


def endpoint_of(transport: HttpTransport, provider: Provider, model: str) -> Transport:
    """The endpoint of one model of a provider."""
    return transport.to(DIALECTS[provider.dialect].path_of(model))
