"""When a failed attempt is made again: tenacity, exponential with full jitter, bounded by attempts and by time.

Only failures are handled here. A first attempt that succeeds is a plain await, because a retry object costs as much CPU
as the rest of a step. If the server states when to come back, that overrides the schedule, unless it is at once or
nearly so: eight attempts would be over within milliseconds. Chosen: the jitter is keyed by place, not drawn from a
shared generator, so that a simulated run repeats exactly.
"""

from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

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
    if told_s is not None and told_s >= TOLD_S:
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
