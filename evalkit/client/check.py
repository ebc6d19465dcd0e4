"""One small request to a provider, outside any run: does it answer, in its dialect, with tools, under this key? If so,
does it take the chat back in the order that environments need: its reply, the results of its calls, a sentence of the
user's? And the first request once more as a stream: does it come as one, and to the same kind of reply?

The requests are sent in the same way as those of a run: same transport, dialect, quirks and verdicts. Nothing is
retried.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from evalkit.client.ask import Question
from evalkit.client.open import endpoint_of, open_transport, stream_endpoint_of
from evalkit.client.remedies import with_remedy
from evalkit.client.request import request_template
from evalkit.client.retry import refused_stream
from evalkit.client.transport import HttpTransport
from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.money import FREE, PicoUsd
from evalkit.spec.model import Model, Provider
from evalkit.wire.http import Verdict
from evalkit.wire.streams import is_stream
from evalkit.wire.table import DIALECTS

WITHIN_S = 20.0
"""For each request."""

_SAMPLING = Sampling(max_tokens=512)
"""Some reasoning models answer with an error if the limit is lower."""
TOOL = Tool(
    name="report_ready",
    description="Reports that you can call tools.",
    parameters={"type": "object", "properties": {}, "required": []},
)
_OPENING = (
    Message(role="system", text="You are asked to call tools."),
    Message(role="user", text="Call the tool, and say nothing else."),
)
_MOST_CALLS = 8
"""A reply with more of them is not answered: that would cost more than was announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """What came of the request that asked for a stream."""

    words: str
    failed: bool = False
    """Whether replies that a run streams would be lost. One that is refused is not: a run goes on without."""
    cost: PicoUsd | None


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
    stream: StreamResult | None = None
    """None: no stream was asked for."""


def most(provider: Provider, model: Model) -> PicoUsd | None:
    """The most that a check can cost; None if the model's price is unknown."""
    if model.price is None:
        return None
    longest = Reply(calls=(ToolCall(id="x" * 64, name=TOOL.name, arguments="{}"),) * _MOST_CALLS)
    first = _body(provider, model)
    own = [first, _body(provider, model, longest)] + [first] * _streams(provider, model)
    overhead = DIALECTS[provider.dialect].overhead_tokens
    # What the model wrote comes back as input once.
    tokens = [len(body) + overhead + number % 2 * _SAMPLING.max_tokens for number, body in enumerate(own)]
    return PicoUsd(sum(model.price.worst(input_tokens=one, output_tokens=_SAMPLING.max_tokens) for one in tokens))


def _streams(provider: Provider, model: Model) -> bool:
    return provider.stream != "off" and DIALECTS[provider.dialect].stream_form(model.quirks) is not None


async def check(provider: Provider, model: Model, *, url: str = "", within_s: float = WITHIN_S) -> CheckResult:
    """Ask once; if there was a reply, go on with it, and ask once more as a stream. `url` replaces the one in the
    provider's file. Raises UsageError if a key or a variable is missing."""
    dialect = DIALECTS[provider.dialect]
    clock = asyncio.get_running_loop().time
    hasty = replace(provider, timeout_s=min(within_s, provider.timeout_s))
    async with open_transport(hasty, url=url) as transport:
        endpoint = endpoint_of(transport, provider, model.name)
        began = clock()
        response = await endpoint.send(_body(provider, model), "check/0/0")
        latency_s = clock() - began
        verdict, reply, _ = dialect.understand(response)
        if reply is None:
            return _failed(verdict, provider, model)
        cost = _cost(reply, provider, model)
        if len(reply.calls) <= _MOST_CALLS:
            response = await endpoint.send(_body(provider, model, reply), "check/1/0")
            verdict, second, _ = dialect.understand(response)
            if second is None and verdict.action in ("end_episode", "end_lane"):
                failed = _failed(verdict, provider, model)
                return replace(failed, message=f"It answered, but refuses the chat that follows: {failed.message}")
            further = PicoUsd(0) if second is None else _cost(second, provider, model, after=reply)
            cost = None if cost is None or further is None else PicoUsd(cost + further)
        stream = await _stream(transport, provider, model, reply) if _streams(provider, model) else None
    if cost is not None and stream is not None:
        cost = None if stream.cost is None else PicoUsd(cost + stream.cost)
    return CheckResult(kind="ok", latency_s=latency_s, served=reply.model, usage=reply.usage, cost=cost, stream=stream)


async def _stream(transport: HttpTransport, provider: Provider, model: Model, whole: Reply) -> StreamResult:
    """Ask for a stream. `whole`: the reply to the same request in one piece."""
    endpoint = stream_endpoint_of(transport, provider, model)
    assert endpoint is not None
    response = await endpoint.send(_body(provider, model), "check/2/0")
    verdict, reply, _ = DIALECTS[provider.dialect].understand(response)
    if reply is None:
        refused = refused_stream(verdict)
        words = f"refused: {verdict.message}" if refused else f"failed: {_failed(verdict, provider, model).message}"
        return StreamResult(words=words, failed=not refused, cost=PicoUsd(0))
    cost = _cost(reply, provider, model)
    if not is_stream(response.headers.get("Content-Type", ""), response.body):
        return StreamResult(words="ignored: the reply came in one piece", cost=cost)
    differences = list(_differences(whole, reply))
    return StreamResult(words="; ".join(differences) or "the same kind of reply, with its usage", cost=cost)


def _differences(whole: Reply, streamed: Reply) -> Iterator[str]:
    """What a stream lacks that the reply in one piece has, or has otherwise. Texts and counts may differ by chance."""
    lost = [name for name in streamed.usage.unknown if name in ("input", "output") and name not in whole.usage.unknown]
    if lost:
        yield f"without its usage ({' and '.join(lost)}): a run charges the worst case"
    shapes: tuple[tuple[str, Callable[[Reply], object]], ...] = (
        ("finish", lambda reply: reply.finish),
        ("calls", lambda reply: ", ".join(sorted({call.name for call in reply.calls})) or "none"),
        ("model", lambda reply: reply.model or "not named"),
        ("parts to send back", lambda reply: "some" if reply.opaque else "none"),
    )
    for name, of in shapes:
        if of(whole) != of(streamed):
            yield f"{name}: {of(streamed)}, in one piece {of(whole)}"


def _cost(reply: Reply, provider: Provider, model: Model, after: Reply | None = None) -> PicoUsd | None:
    if model.price is None:
        return None
    tokens = len(_body(provider, model, after)) + DIALECTS[provider.dialect].overhead_tokens
    return model.price.most(reply.usage, input_tokens=tokens, output_tokens=_SAMPLING.max_tokens)


def _failed(verdict: Verdict, provider: Provider, model: Model) -> CheckResult:
    message = with_remedy(verdict, provider=provider.name, model=model.name, key=provider.key_words)
    return CheckResult(kind=verdict.kind, message=message)


def _body(provider: Provider, model: Model, reply: Reply | None = None) -> bytes:
    """The first request's body, or that of the one after its reply."""
    template = request_template("", provider=provider, model=model, sampling=_SAMPLING, price=FREE)
    parts: list[bytes] = []
    template.join(parts, _OPENING if reply is None else (*_OPENING, *_after(reply)))
    tools = template.encode_tools((TOOL,))
    return template.body(Question(episode="check", step=0, seed=1, tools=tools, messages=parts))


def _after(reply: Reply) -> Iterator[Message]:
    """A chat's next turn, in the order of environments: each call has a result, and the user speaks again."""
    yield reply.message()
    for call in reply.calls:
        yield Message(role="tool", text="Noted.", call_id=call.id, name=call.name)
    yield Message(role="user", text="Call it once more, and say nothing else.")
