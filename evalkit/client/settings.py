"""Whether a provider heeds what it is told: a few requests to one model for each setting, and what their replies show.

A provider that does not know a field may refuse it, and may also ignore it: then agents that differ in it alone are
the same agent. Each setting is judged by what its replies show, so one reply by chance may mislead: the figures are
told with the verdict. Nothing is retried.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from evalkit.client.ask import Question
from evalkit.client.check import TOOL
from evalkit.client.open import endpoint_of, open_transport
from evalkit.client.remedies import with_remedy
from evalkit.client.request import RequestTemplate, request_template
from evalkit.client.transport import Transport
from evalkit.dialogue import Message, Reply, Sampling, Tool
from evalkit.money import FREE, PicoUsd
from evalkit.spec.model import Model, Provider
from evalkit.wire.table import DIALECTS

Effect = Literal["yes", "no", "unclear", "not sent", "refused", "failed"]

WITHIN_S = 120.0
"""For each request."""
MORE = 1.3
"""Times the tokens at less effort that more effort must write to count as an effect, and"""
MORE_TOKENS = 32
"""so many tokens more."""
CACHED_BYTES = 24_000
"""Of the prompt that is sent twice: some 5,000 tokens, more than providers ask for."""

_BOTH = (TOOL, replace(TOOL, name="report_done", description="Reports that you are done."))
_DRAW = "Write eight random English words that have nothing to do with each other, and nothing else."
_THINK = (
    "A snail climbs a wall of 11.3 m. By day it climbs 2.1 m, each night it slips back a third of the height it has "
    "reached so far. On which day does it reach the top, if ever? Say the day or `never`, and nothing else."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProbe:
    """One setting: the requests that show it, and how their replies are read."""

    asked: tuple[tuple[Mapping[str, object], int], ...]
    """(fields of the sampling, seed) of each request, in order."""
    text: str
    judge: Callable[[Sequence[Reply]], tuple[Effect, str]]
    tools: tuple[Tool, ...] = ()
    max_tokens: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFinding:
    """What came of one setting."""

    setting: str
    effect: Effect
    words: str
    """What was seen."""
    cost: PicoUsd | None
    """Of its requests; figures that are missing are taken at their bound. None: the price is unknown."""


def settings() -> Mapping[str, SettingProbe]:
    """All settings that are looked at. Each call has a prompt of its own for the cache: no earlier one is in it."""
    return {
        "effort": SettingProbe(
            asked=(({"effort": "low"}, 1), ({"effort": "high"}, 1)), text=_THINK, judge=_effort, max_tokens=4096
        ),
        "seed": SettingProbe(asked=(({}, 1), ({}, 1), ({}, 2)), text=_DRAW, judge=_seed),
        "parallel_calls": SettingProbe(
            asked=(({"parallel_calls": True}, 1), ({"parallel_calls": False}, 1)),
            text="Call both tools, report_ready and report_done, at once in this reply.",
            judge=_parallel,
            tools=_BOTH,
        ),
        "tool_choice": SettingProbe(
            asked=(({"tool_choice": "required"}, 1), ({"tool_choice": "none"}, 1)),
            text="Call a tool if you must; if you need not call any, say hello.",
            judge=_choice,
            tools=(TOOL,),
        ),
        "cache": SettingProbe(asked=(({}, 1), ({}, 1)), text=_long(secrets.token_hex(8)), judge=_cache),
    }


def most(provider: Provider, model: Model) -> PicoUsd | None:
    """The most that all requests can cost together; None if the model's price is unknown."""
    if model.price is None:
        return None
    asked = (pair for name, one in settings().items() for pair in _requests(name, one, provider, model))
    return PicoUsd(sum(template.bound(len(body)) for template, body in asked))


async def look(provider: Provider, model: Model, *, url: str = "") -> list[SettingFinding]:
    """Ask for each setting in turn. `url` replaces the one in the provider's file. Raises UsageError if a key or a
    variable is missing."""
    hasty = replace(provider, timeout_s=min(WITHIN_S, provider.timeout_s))
    async with open_transport(hasty, url=url) as transport:
        endpoint = endpoint_of(transport, provider, model.name)
        return [await _look(name, one, provider, model, endpoint) for name, one in settings().items()]


async def _look(
    name: str, setting: SettingProbe, provider: Provider, model: Model, endpoint: Transport
) -> SettingFinding:
    if name in _unsent(provider, model):
        return SettingFinding(
            setting=name, effect="not sent", words="the API or the model has no such field", cost=PicoUsd(0)
        )
    replies: list[Reply] = []
    cost = 0
    for number, (template, body) in enumerate(_requests(name, setting, provider, model)):
        response = await endpoint.send(body, f"settings/{number}/0")
        verdict, reply, _ = template.dialect.understand(response)
        if reply is None:
            said = with_remedy(verdict, provider=provider.name, model=model.name, key=provider.key_words)
            refused = response.status == 400
            return SettingFinding(
                setting=name, effect="refused" if refused else "failed", words=said, cost=_paid(cost, model)
            )
        read = len(body) + template.dialect.overhead_tokens
        cost += template.price.most(reply.usage, input_tokens=read, output_tokens=template.sampling.max_tokens)
        replies.append(reply)
    effect, words = setting.judge(replies)
    return SettingFinding(setting=name, effect=effect, words=words, cost=_paid(cost, model))


def _paid(cost: int, model: Model) -> PicoUsd | None:
    return None if model.price is None else PicoUsd(cost)


def _unsent(provider: Provider, model: Model) -> frozenset[str]:
    return model.quirks.refuses | DIALECTS[provider.dialect].lacks


def _requests(
    name: str, setting: SettingProbe, provider: Provider, model: Model
) -> Iterator[tuple[RequestTemplate, bytes]]:
    """The bodies of a setting's requests, as a run would send them; none where the setting is never sent."""
    unsent = _unsent(provider, model)
    if name in unsent:
        return
    for fields, seed in setting.asked:
        sampling = Sampling(temperature=1.0, max_tokens=setting.max_tokens).with_overrides(fields)
        template = request_template(
            "check", provider=provider, model=model, sampling=sampling, price=model.price or FREE
        )
        parts: list[bytes] = []
        template.join(parts, [Message(role="user", text=setting.text)])
        tools = template.encode_tools(setting.tools)
        yield template, template.body(Question(episode="c0ffee", step=0, seed=seed, tools=tools, messages=parts))


def _effort(replies: Sequence[Reply]) -> tuple[Effect, str]:
    low, high = (reply.usage for reply in replies)
    hidden = low.reasoning or high.reasoning
    less, more = (low.reasoning, high.reasoning) if hidden else (low.output, high.output)
    words = f"{less} tokens {'of reasoning' if hidden else 'written'} at low, {more} at high"
    if more >= MORE * less and more >= less + MORE_TOKENS:
        return "yes", words
    return ("no" if hidden else "unclear"), words


def _seed(replies: Sequence[Reply]) -> tuple[Effect, str]:
    first, again, other = ((reply.text, tuple(call.arguments for call in reply.calls)) for reply in replies)
    marks = sorted({reply.fingerprint for reply in replies[:2]})
    if first != again:
        told = "no fingerprint" if marks == [""] else f"fingerprint {', '.join(mark or 'none' for mark in marks)}"
        return "no", f"unlike replies at one seed ({told})"
    if first == other:
        return "unclear", "the same reply at one seed and at another"
    return "yes", "the same reply at one seed, another at another"


def _parallel(replies: Sequence[Reply]) -> tuple[Effect, str]:
    allowed, single = (len(reply.calls) for reply in replies)
    words = f"{allowed} calls where several are allowed, {single} where one is"
    if single > 1:
        return "no", words
    return ("yes" if allowed > 1 and single == 1 else "unclear"), words


def _choice(replies: Sequence[Reply]) -> tuple[Effect, str]:
    must, may_not = (len(reply.calls) for reply in replies)
    words = f"{must} calls where one is required, {may_not} where none may be"
    return ("yes" if must and not may_not else "no"), words


def _cache(replies: Sequence[Reply]) -> tuple[Effect, str]:
    usage = replies[1].usage
    if "cached_read" in usage.unknown:
        return "unclear", "the usage does not say what was read from a cache"
    words = f"{usage.cached_read} of {usage.input} tokens read from the cache at the second request"
    return ("yes" if usage.cached_read else "no"), words


def _long(mark: str) -> str:
    line = "Shelf {}: seventeen boxes of paper, two of them open, none of them labelled for {}.\n"
    lines = [line.format(number, mark) for number in range(CACHED_BYTES // len(line))]
    return "".join(lines) + "Say hello, and nothing else."
