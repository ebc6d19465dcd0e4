"""From the catalogue's values to a connection."""

from evalkit.client.keys import credentials_of, read_key, servers_of
from evalkit.client.retry import FLEX_TIMEOUT_S
from evalkit.client.transport import HttpTransport, Transport
from evalkit.money import FLEX, Tier
from evalkit.spec.model import Model, Provider
from evalkit.wire.table import DIALECTS


def open_transport(provider: Provider, *, url: str = "") -> HttpTransport:
    """One of the provider's servers: the first, unless `url` is that of another (or of a simulated provider that was
    just started).

    Raises UsageError if the key or a variable of the URL is missing, or the key would be sent unencrypted. To be
    used as `async with`, which raises UsageError if an SDK that gives the key fails.
    """
    key, url = read_key(provider), url or servers_of(provider)[0].url
    headers = DIALECTS[provider.dialect].headers
    return HttpTransport(
        url,
        headers=headers(key),
        key=key,
        timeout_s=provider.timeout_s,
        silence_s=provider.silence_s,
        credentials=None if key else credentials_of(provider, url=url),
    )


def transport_of(transport: HttpTransport, provider: Provider, tier: Tier) -> HttpTransport:
    """The same server for requests of a tier: with the headers that name it, and with patience where it is slow."""
    dialect, word = DIALECTS[provider.dialect], provider.service_tiers.get(tier, "")
    headers = dialect.tier_headers(word) if dialect.tier_headers is not None else {}
    if tier != FLEX and not headers:
        return transport
    return transport.patient(FLEX_TIMEOUT_S if tier == FLEX else 0.0, headers)


def endpoint_of(transport: HttpTransport, provider: Provider, model: str) -> Transport:
    """The endpoint of one model of a provider."""
    return transport.to(DIALECTS[provider.dialect].path_of(model))


def stream_endpoint_of(transport: HttpTransport, provider: Provider, model: Model) -> Transport | None:
    """The endpoint of one model that asks for streams; None: it has none."""
    dialect = DIALECTS[provider.dialect]
    form = dialect.stream_form(model.quirks)
    return None if form is None else transport.to(dialect.stream_path_of(model.name), form)
