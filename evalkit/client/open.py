"""From the catalogue's values to something that asks."""

from collections.abc import Collection

from evalkit.client.budget import Budget
from evalkit.client.client import ModelAsker, RequestTemplate
from evalkit.client.keys import read_key, url_of
from evalkit.client.lane import Lane
from evalkit.client.transport import HttpTransport, Transport
from evalkit.dialogue import Sampling
from evalkit.money import Price
from evalkit.spec.model import Model, Provider
from evalkit.wire.table import DIALECTS


def open_transport(provider: Provider, *, url: str = "", others: Collection[str] = ()) -> HttpTransport:
    """The provider; `url` stands in for the file's (a simulated provider that was started just now). `others`: keys of
    other providers, which its answers must not show either.

    Raises UsageError where the key or a variable of the URL is missing, or the key would be sent in the clear. To be
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
    """Where one model of a provider takes requests."""
    return transport.to(DIALECTS[provider.dialect].path_of(model))


def open_asker(
    agent: str,
    *,
    provider: Provider,
    model: Model,
    sampling: Sampling,
    price: Price,
    lane: Lane,
    budget: Budget,
    transport: Transport,
) -> ModelAsker:
    """What asks for one agent with one sampling (an environment's defaults under the agent's overrides).

    `price` is the run's frozen one, FREE where it is unknown; lane and budget are shared with others, and `transport`
    is the model's endpoint (`endpoint_of`).
    """
    template = RequestTemplate(
        agent=agent,
        provider=provider.name,
        model=model.name,
        dialect=DIALECTS[provider.dialect],
        quirks=model.quirks,
        sampling=sampling,
        price=price,
        seeded=provider.seed,
        cache_key=provider.cache_key,
        key_env=provider.key_env,
        billed=provider.billed,
        estimates=provider.estimates_usage,
    )
    return ModelAsker(template, lane=lane, budget=budget, transport=transport)
