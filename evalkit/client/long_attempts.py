"""When a reply is asked for as a stream: always, never, or (`auto`) where an attempt may be long.

A reply in one piece is silent until it is done, and proxies on the way end connections that are silent. A stream shows
signs of life. It costs more CPU, and some accounts or servers may not ask for one: so short replies stay as they are,
and with `auto` a lane goes on without streams once one was refused.
"""

from evalkit.client.lanes.lane import Lane
from evalkit.dialogue import Sampling
from evalkit.wire.http import Verdict

LONG_TOKENS = 16_384
"""A higher `max_tokens` may take longer than gateways wait: at 40 tokens a second, seven minutes."""

SILENCE = frozenset({"timeout", "reset", "504", "524"})
"""Outcomes of an attempt in one piece that a stream may have avoided."""

_UNASKED = frozenset({"", "none", "0"})
"""Efforts that ask for no reasoning."""
_REASONING = ("thinking", "reasoning")
"""In the names of body fields that ask for it."""


def may_be_long(sampling: Sampling) -> bool:
    """Whether a model that is asked so may take long: it reasons, or may write much."""
    asked = sampling.effort not in _UNASKED or any(word in sampling.extra for word in _REASONING)
    return asked or sampling.max_tokens > LONG_TOKENS


def wants_stream(setting: str, *, long: bool, lane: Lane) -> bool:
    """Whether the next attempt is to be streamed. `long`: by `may_be_long`."""
    if setting == "auto":
        return long if lane.streams is None else lane.streams
    return setting == "on"


def refused_stream(verdict: Verdict) -> bool:
    """Whether a refusal is about the stream that was asked for, in the provider's words."""
    return verdict.action in ("end_episode", "end_lane") and "stream" in verdict.message.lower()
