"""The tokens that a reply states, each figure judged separately: stated, or not.

A figure counts as stated if it is a plausible whole number of tokens. These do not count: a figure that is absent,
negative, a string, a boolean, a fraction or above `MOST_TOKENS`; a part that is greater than its whole; no input at
all; and no output for a reply that is not empty. `Usage.unknown` names them, and they are charged at their bound.

Reasoning is a part of the output. Some servers count it separately instead; their total shows it.
Source: https://docs.x.ai/docs/key-information/consumption-and-rate-limits (xAI's Chat Completions).
"""

from collections.abc import Mapping
from typing import Any

from evalkit.dialogue import Usage

MOST_TOKENS = 2**31 - 1
"""Greater figures are not numbers of tokens."""


def stated(raw: Mapping[str, Any], name: str) -> int | None:
    """A field as a number of tokens; None if it is not one."""
    value = raw.get(name)
    if type(value) is float and value.is_integer():  # some servers write 12.0
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


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
    if tokens_in and tokens_out is not None and reasoning and total == tokens_in + tokens_out + reasoning:
        tokens_out += reasoning
    unknown: list[str] = []
    if not tokens_in or tokens_in > MOST_TOKENS:  # no prompt has no tokens
        unknown.append("input")
        tokens_in = cached_read = cached_write = 0
    if cached_read is None or cached_read > tokens_in:
        unknown.append("cached_read")
        cached_read = 0
    if cached_write is None or cached_write > tokens_in:
        unknown.append("cached_write")
        cached_write = 0
    if cached_read + cached_write > tokens_in:
        unknown += ["cached_read", "cached_write"]
        cached_read = cached_write = 0
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
    )
