"""One small request to a provider, outside any run: does it answer, in its dialect, with tools, under this key?

The request is sent in the same way as those of a run: same transport, dialect, quirks and verdicts. It is not retried.
"""

import asyncio
from dataclasses import dataclass, field, replace

from evalkit.client.open import endpoint_of, open_transport
from evalkit.client.remedies import with_remedy
from evalkit.dialogue import Message, Reply, Sampling, Tool, Usage
from evalkit.money import PicoUsd
from evalkit.spec.model import Model, Provider
from evalkit.wire.http import Verdict
from evalkit.wire.table import DIALECTS

WITHIN_S = 20.0
"""For the whole exchange."""

_SAMPLING = Sampling(max_tokens=512)
"""Some reasoning models answer with an error if the limit is lower."""
TOOL = Tool(
    name="report_ready",
    description="Reports that you can call tools.",
    parameters={"type": "object", "properties": {}, "required": []},
)
_MESSAGE = Message(role="user", text="Call the tool, and say nothing else.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check."""

    kind: str
    """`ok`, or the verdict's."""
    message: str = ""
    """If it is not ok: what went wrong and what to do, partly in the provider's words."""
    latency_s: float = 0.0
    served: str = ""
    """The model that answered, in the provider's words."""
    usage: Usage = field(default_factory=Usage)
    cost: PicoUsd | None = None
    """Figures missing from the usage are taken at their bound; None: the price is unknown."""


def most(provider: Provider, model: Model) -> PicoUsd | None:
    """The most that a check can cost; None if the model's price is unknown."""
    if model.price is None:
        return None
    tokens = len(_body(provider, model)) + DIALECTS[provider.dialect].overhead_tokens
    return model.price.worst(input_tokens=tokens, output_tokens=_SAMPLING.max_tokens)


async def check(provider: Provider, model: Model, *, url: str = "", within_s: float = WITHIN_S) -> CheckResult:
    """Ask once. `url` replaces the one in the provider's file. Raises UsageError if a key or a variable is
    missing."""
    dialect = DIALECTS[provider.dialect]
    clock = asyncio.get_running_loop().time
    hasty = replace(provider, timeout_s=min(within_s, provider.timeout_s))
    async with open_transport(hasty, url=url) as transport:
        endpoint = endpoint_of(transport, provider, model.name)
        began = clock()
        response = await endpoint.send(_body(provider, model), "check/0/0")
        latency_s = clock() - began
    verdict, reply, _ = dialect.understand(response)
    return _failed(verdict, provider, model) if reply is None else _answered(reply, latency_s, provider, model)


def _answered(reply: Reply, latency_s: float, provider: Provider, model: Model) -> CheckResult:
    cost = None
    if model.price is not None:
        tokens = len(_body(provider, model)) + DIALECTS[provider.dialect].overhead_tokens
        cost = model.price.most(reply.usage, input_tokens=tokens, output_tokens=_SAMPLING.max_tokens)
    return CheckResult(kind="ok", latency_s=latency_s, served=reply.model, usage=reply.usage, cost=cost)


def _failed(verdict: Verdict, provider: Provider, model: Model) -> CheckResult:
    message = with_remedy(verdict, provider=provider.name, model=model.name, key=provider.key_words)
    return CheckResult(kind=verdict.kind, message=message)


def _body(provider: Provider, model: Model) -> bytes:
    dialect = DIALECTS[provider.dialect]
    head = dialect.head(model.name, _SAMPLING, model.quirks)
    seed = 1 if provider.seed and "seed" not in model.quirks.refuses else None
    parts: list[bytes] = []
    dialect.join(parts, [_MESSAGE])
    return dialect.body(head, dialect.encode_tools([TOOL]), parts, seed)
