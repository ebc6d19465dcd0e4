"""The tokens that a reply states, each figure judged separately: stated, or not.

A figure counts as stated if it is a plausible whole number of tokens. These do not count: a figure that is absent,
negative, a string, a boolean, a fraction or above `MOST_TOKENS`; reasoning that is greater than the output; no input at
all; and no output for a reply that is not empty. `Usage.unknown` names them, and they are charged at their bound.

Reasoning is a part of the output. Some servers count it separately instead; their total shows it.
Source: https://docs.x.ai/docs/key-information/consumption-and-rate-limits (xAI's Chat Completions).

Figures that contradict each other are read as the larger use that makes sense of all of them, and the usage is marked
(`doubtful`): a total beyond the parts holds thoughts that are counted nowhere else, and cached tokens beyond those of
the prompt were left out of it. Source: github.com/vercel/ai/issues/6082, github.com/BerriAI/litellm/issues/27745.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evalkit.dialogue import Usage

MOST_TOKENS = 2**31 - 1
"""Greater figures are not numbers of tokens."""


def stated(raw: Mapping[str, Any], name: str) -> int | None:
    """A field as a number of tokens; None if it is not one."""
    value = raw.get(name)
    if value is None:
        return None
    if type(value) is float and value.is_integer():  # some servers write 12.0
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def within(usage: Usage, *, most_input: int, most_output: int) -> Usage:
    """Doubtful usage without what its request cannot have used: such a figure is unknown."""
    if usage.input > most_input:
        unknown = ("input", "cached_read", "cached_write", *usage.unknown)
        usage = replace(usage, input=0, cached_read=0, cached_write=0, unknown=unknown)
    if usage.output > most_output:
        usage = replace(usage, output=0, reasoning=0, unknown=(*usage.unknown, "output"))
    return usage


_PARTS = (
    *("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
    *("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
)
_TOTALS = ("total_tokens", "totalTokenCount")


def larger(before: Any, after: Any) -> Any:
    """Of two statements of one reply's usage, the one of more tokens; of equal ones the later."""
    return before if _size(before) > _size(after) else after


def _size(raw: Any) -> int:
    if not isinstance(raw, dict):
        return -1
    parts = sum(stated(raw, name) or 0 for name in _PARTS)
    return max(parts, *(stated(raw, name) or 0 for name in _TOTALS))


def usage_of(
    *,
    tokens_in: int | None,
    tokens_out: int | None,
    cached_read: int | None,
    cached_write: int | None,
    reasoning: int | None,
    says: bool,
    total: int | None = None,
) -> Usage:
    """The figures of a reply, None for those that are not stated, as its usage.

    `cached_read` and `cached_write` are parts of `tokens_in`, `reasoning` is one of `tokens_out`. `says`: whether the
    reply has text, calls or thoughts. `total`: of all tokens, where it may hold reasoning that the output lacks. Of a
    figure that is unknown the usage holds 0.
    """
    doubtful = False
    if tokens_in and (cached_read or 0) + (cached_write or 0) > tokens_in:
        tokens_in, doubtful = tokens_in + (cached_read or 0) + (cached_write or 0), True
    if tokens_in and tokens_out is not None and total is not None:
        beyond = total - tokens_in - tokens_out
        if beyond > 0 and beyond == reasoning:
            tokens_out += beyond
        elif beyond > 0 and not reasoning:
            tokens_out, reasoning, doubtful = tokens_out + beyond, beyond, True
    unknown: list[str] = []
    if not tokens_in or tokens_in > MOST_TOKENS:  # no prompt has no tokens
        unknown.append("input")
        tokens_in = cached_read = cached_write = 0
    if cached_read is None:
        unknown.append("cached_read")
        cached_read = 0
    if cached_write is None:
        unknown.append("cached_write")
        cached_write = 0
    silent = says and not tokens_out
    if tokens_out is None or tokens_out > MOST_TOKENS or silent or (reasoning or 0) > tokens_out:
        unknown.append("output")
        tokens_out = reasoning = 0
    return Usage(
        input=tokens_in,
        output=tokens_out,
        cached_read=cached_read,
        cached_write=cached_write,
        reasoning=reasoning or 0,  # it has no price of its own
        unknown=tuple(unknown),
        doubtful=doubtful,
    )
