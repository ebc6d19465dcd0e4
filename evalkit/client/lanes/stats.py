"""What a lane is doing, as a frozen value for a live display, and the counters for it."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

WINDOW_S = 10
"""Rates are those of the last ten whole seconds."""


class ServerStats(msgspec.Struct, frozen=True, kw_only=True):
    """One of a lane's servers at one moment."""

    server: str
    in_flight: int
    window: int
    """How many requests it may have in flight now."""
    replies: int
    """So far."""
    down_s: float
    """Seconds since it was taken out because it does not answer; 0: it was not."""
    paused_s: float
    """Seconds until it continues, as it asked; 0: not paused."""
    trouble: str
    """Why it does not answer now, in words; empty: it does."""
    latency_s: float
    """Of the last full sample; 0 before the first."""

    @property
    def is_down(self) -> bool:
        """Whether it was taken out."""
        return self.down_s > 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        said = msgspec.structs.asdict(self)
        rounded = {"down_s": round(self.down_s, 1), "paused_s": round(self.paused_s, 1)}
        return said | rounded | {"latency_s": round(self.latency_s, 4)}


def together(seen: Sequence[Sequence[ServerStats]]) -> tuple[ServerStats, ...]:
    """A lane's servers as several processes see them. One is down if any has taken it out: some may not have asked it
    since."""
    found = []
    for each in zip(*filter(None, seen), strict=False):
        sums = {name: sum(getattr(one, name) for one in each) for name in ("in_flight", "window", "replies")}
        most = {name: max(getattr(one, name) for one in each) for name in ("down_s", "paused_s", "latency_s")}
        trouble = next((one.trouble for one in each if one.trouble), "")
        found.append(ServerStats(server=each[0].server, **sums, **most, trouble=trouble))
    return tuple(found)


class LaneStats(msgspec.Struct, frozen=True, kw_only=True):
    """One lane at one moment."""

    lane: str
    in_flight: int
    window: int
    """How many requests it would keep in flight now."""
    waiting: int
    """Requests in its queue."""
    waits_for: str
    """What keeps it from having more in flight, in words: a limit, its window, a pause; empty: nothing does."""
    paused_s: float
    """Seconds until it continues, as its provider asked; 0: not paused."""
    trouble: str
    """Why its provider does not answer now, in words; empty: it does."""
    ended: str
    """Why it takes no more requests; empty while it does."""
    requests: int
    """Replies so far."""
    input_tokens: int
    output_tokens: int
    requests_per_min: float
    input_tokens_per_min: float
    output_tokens_per_min: float
    median_latency_s: float
    """Of the last full sample; 0 before the first."""
    failures: Mapping[str, int]
    """Attempts without a reply, by kind."""
    servers: tuple[ServerStats, ...] = ()
    """Where it has several."""


class SeenElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """What other processes see of a lane, in which they play its episodes."""

    stats: LaneStats
    proven: int
    """Requests that they were allowed in flight when their last replies came."""


class RateMeter:
    """Totals, and counts by the second for rates."""

    __slots__ = ("_past", "_second", "failures", "input", "output", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.input = 0
        self.output = 0
        self.failures: dict[str, int] = {}
        self._second = -1
        self._past: deque[tuple[int, int, int, int]] = deque(maxlen=WINDOW_S + 1)
        """(second, totals at its start), oldest first."""

    def count(self, now: float, input_tokens: int, output_tokens: int) -> None:
        """A reply."""
        second = int(now)
        if second != self._second:
            self._past.append((second, self.requests, self.input, self.output))
            self._second = second
        self.requests += 1
        self.input += input_tokens
        self.output += output_tokens

    def fail(self, kind: str) -> None:
        """An attempt without a reply."""
        self.failures[kind] = self.failures.get(kind, 0) + 1

    def rates_per_min(self, now: float) -> tuple[float, float, float]:
        """(requests, input tokens, output tokens) per minute, over the last `WINDOW_S` seconds at most."""
        recent = [entry for entry in self._past if entry[0] > now - WINDOW_S - 1]
        if not recent:
            return 0.0, 0.0, 0.0
        second, requests, read, written = recent[0]
        per_min = 60.0 / max(1.0, now - second)
        totals = (self.requests - requests, self.input - read, self.output - written)
        return totals[0] * per_min, totals[1] * per_min, totals[2] * per_min
