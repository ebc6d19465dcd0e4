"""When a failed attempt is made again: tenacity, exponential with full jitter, bounded by attempts and by time.

Only failures are handled here. A first attempt that succeeds is a plain await, because a retry object costs as much CPU
as the rest of a step. If the server states when to come back, that overrides the schedule, unless it is at once or
nearly so: eight attempts would be over within milliseconds. Chosen: the jitter is keyed by place, not drawn from a
shared generator, so that a simulated run repeats exactly.
"""

from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from evalkit.client.lanes.health import NO_ROOM
from evalkit.client.lanes.lane import Lane
from evalkit.dialogue import Sampling
from evalkit.seeds import derive
from evalkit.wire.http import Verdict

ATTEMPTS = 8
"""Attempts that count, including the first. Probes of a lane that is down count if they may have been billed, or if
only their own request fails; others serve all requests, and cost nothing."""
TOTAL_S = 1800.0
"""From the first attempt to the last, pauses included."""
FIRST_S = 0.5
LONGEST_S = 60.0
TOLD_S = 1.0
"""A server that asks for less than this is asked again by the schedule, in the upper half of its jitter."""


class Retryable(Exception):
    """An attempt failed, and another one may succeed."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message or verdict.kind)
        self.verdict = verdict


class Tries:
    """How much of its bounds one request has used."""

    __slots__ = ("began_at", "counted")

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        """Loop time of the first attempt."""
        self.counted = 0


def backoff_s(verdict: Verdict, failures: int, place: str) -> float:
    """Seconds until the next attempt: as the server says, or full jitter below a bound that doubles each time."""
    told_s = verdict.wait_s
    if told_s is not None and (told_s >= TOLD_S or verdict.kind == NO_ROOM):
        return told_s
    bound = min(LONGEST_S, FIRST_S * 2.0 ** min(failures, 16))
    jitter = derive(place, "backoff", failures) / 2.0**31
    return bound * jitter if told_s is None else bound * (1.0 + jitter) / 2.0


def exhausted(tries: Tries, now: float, upcoming_s: float) -> bool:
    """Whether no further attempt is to be made."""
    return tries.counted >= ATTEMPTS or now + upcoming_s - tries.began_at > TOTAL_S


def retrying(
    tries: Tries, *, place: str, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
) -> AsyncRetrying:
    """The policy for one request after its first failed attempt; it raises the last `Retryable`."""

    def wait(state: RetryCallState) -> float:
        flaw = state.outcome.exception() if state.outcome is not None else None
        assert isinstance(flaw, Retryable)
        # Not by attempts: otherwise requests that probed would sleep longest after an outage.
        return backoff_s(flaw.verdict, tries.counted, place)

    def stop(state: RetryCallState) -> bool:
        return exhausted(tries, clock(), state.upcoming_sleep)

    return AsyncRetrying(retry=retry_if_exception_type(Retryable), wait=wait, stop=stop, sleep=sleep, reraise=True)


# When a cheap tier has no room for a request (flex). That is not billed and no failure of the lane: it is asked again,
# or, where the agent names a next tier, that one is asked after `PATIENCE_S`.
#
# Source: https://developers.openai.com/api/docs/guides/flex-processing (429, "Resource Unavailable", not charged),
# https://ai.google.dev/gemini-api/docs/flex-inference (503, 429), https://console.groq.com/docs/flex-processing (498).

FULL = frozenset({"429", "498", "503"})
"""Outcomes that say so, if they name no limit."""
FLEX_TIMEOUT_S = 900.0
"""For one attempt by a cheap tier, as OpenAI advises."""
PATIENCE_S = 300.0
"""Longer than this, the prompt cache forgets the chat, and waiting saves no more than it costs."""
MOST_AWAY_S = 6 * 3600.0
"""After so long, an episode whose agent names no next tier is left for a later run."""


def away_s(times: int, place: str) -> float:
    """Seconds until a tier is asked again that had no room so often: with jitter, as after other failures."""
    jitter = derive(place, "away", times) / 2.0**31
    return min(LONGEST_S, FIRST_S * 2.0 ** min(times, 16)) * (1.0 + jitter) / 2.0


# When a reply is asked for as a stream: always, never, or (`auto`) where an attempt may be long.
#
# A reply in one piece is silent until it is done, and proxies on the way end connections that are silent. A stream
# shows signs of life. It costs more CPU, and some accounts or servers may not ask for one: so short replies stay as
# they are, and with `auto` a lane goes on without streams once one was refused.

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
