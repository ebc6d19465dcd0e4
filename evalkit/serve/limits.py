"""The simulated provider's own limits: requests and tokens per minute, each a bucket that refills steadily, and a
maximum of requests in flight.

Pure arithmetic over a `now` in seconds that never goes back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class RateAllowance:
    """What one model may still be asked for. Mutable; changed by `refill` and `take` alone."""

    per_minute: float
    capacity: float
    """The most that can be saved up."""
    level: float
    """What is there at `at_s`; below zero where a reply cost more than was known when its request came."""
    at_s: float

    def refill(self, now_s: float) -> None:
        """Bring the level up to date."""
        self.level = min(self.capacity, self.level + (now_s - self.at_s) * self.per_minute / 60)
        self.at_s = now_s

    def wait_s(self, amount: float) -> float:
        """Seconds until `amount` is there, 0 if it is. More than the capacity waits for a full bucket."""
        missing = min(amount, self.capacity) - self.level
        # A small difference is allowed: refilling in many small parts loses some by rounding.
        return missing * 60 / self.per_minute if missing > 1e-9 * self.capacity else 0.0

    def take(self, amount: float) -> None:
        """Take it, also below zero."""
        self.level -= amount

    @property
    def full_in_s(self) -> float:
        """Seconds until the bucket is full again."""
        return (self.capacity - self.level) * 60 / self.per_minute


def bucket(per_minute: float, burst_s: float, now_s: float) -> RateAllowance:
    """A full bucket that saves up at most `burst_s` seconds' worth, but at least one unit."""
    capacity = max(1.0, per_minute * burst_s / 60)
    return RateAllowance(per_minute=per_minute, capacity=capacity, level=capacity, at_s=now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStanding:
    """The state of one limit, as headers report it."""

    limit: int
    """A minute."""
    remaining: int
    full_in_s: float
    """Seconds until the bucket is full again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a request is not admitted."""

    kind: str
    """`requests`, `tokens`, `input_tokens`, `output_tokens` or `in_flight`."""
    wait_s: float | None
    """Seconds until it would be; None if unknown."""


@dataclass(slots=True, kw_only=True)
class ServedLimits:
    """The limits of one model, or of all together. Mutable."""

    buckets: Mapping[str, RateAllowance] = field(default_factory=dict)
    """By kind; a kind that is not there is unlimited."""
    most_in_flight: int | None = None
    in_flight: int = 0
    """Let in, and not yet left."""

    def admit(self, amounts: Mapping[str, float], now_s: float) -> Shortage | None:
        """Admit a request and take its amounts, by kind; or return what is short, and take nothing."""
        if self.most_in_flight is not None and self.in_flight >= self.most_in_flight:
            return Shortage(kind="in_flight", wait_s=None)
        short = Shortage(kind="", wait_s=0.0)
        for kind, bucket in self.buckets.items():
            bucket.refill(now_s)
            wait_s = bucket.wait_s(amounts[kind])
            if wait_s > (short.wait_s or 0.0):
                short = Shortage(kind=kind, wait_s=wait_s)
        if short.kind:
            return short
        for kind, bucket in self.buckets.items():
            bucket.take(amounts[kind])
        self.in_flight += 1
        return None

    def spend(self, output_tokens: int) -> None:
        """Take a reply's tokens, which were unknown when its request was admitted; so a bucket may go below zero."""
        for kind in ("tokens", "output_tokens"):
            if kind in self.buckets:
                self.buckets[kind].take(output_tokens)

    def standings(self) -> dict[str, LimitStanding]:
        """The state of every bucket."""
        return {
            kind: LimitStanding(
                limit=math.floor(bucket.per_minute),
                remaining=max(0, math.floor(bucket.level + 1e-9)),
                full_in_s=bucket.full_in_s,
            )
            for kind, bucket in self.buckets.items()
        }


def show_span(seconds: float) -> str:
    """A time as these headers write it: `120ms`, `1.5s`, `6m0s`, `1h2m3s`; rounded up to a millisecond."""
    millis = math.ceil(max(0.0, seconds) * 1000 - 1e-6)
    if millis < 1000:
        return f"{millis}ms"
    minutes, rest = divmod(millis, 60_000)
    shown = f"{rest / 1000:g}s"
    if minutes < 60:
        return f"{minutes}m{shown}" if minutes else shown
    return f"{minutes // 60}h{minutes % 60}m{shown}"
