"""Rates as token buckets: when may a request of a given size go. Arithmetic only, tested by table.

A bucket starts empty and holds at most one second's worth, or what the request at the head of the line needs if that is
more: so it is never ahead of its rate by more than a second or one request, and a request of any size goes in the end.
"""

from dataclasses import dataclass

import msgspec

from evalkit.spec.model import Limits
from evalkit.wire.allowance import Allowance

BURST_S = 1.0

_LOW = 0.1
"""A provider's own limit that is not configured is paced by once less than this part of it remains ..."""
_HIGH = 0.5
"""... and forgotten when more than this part of it remains again."""


@dataclass(slots=True, kw_only=True)
class Bucket:
    """One rate."""

    per_s: float
    at_s: float
    """When `level` held."""
    level: float = 0.0
    adopted: bool = False
    """Whether it came from a provider's headers; configured ones stay."""

    def level_at(self, now: float, need: float) -> float:
        """The level at `now`, with room for `need`."""
        most = max(self.per_s * BURST_S, need)
        return min(most, self.level + (now - self.at_s) * self.per_s)

    def wait_s(self, need: float, now: float) -> float:
        """Seconds until `need` is there; 0 when it is."""
        # Without the bucket's bound: it is never below `need`, so it cannot change whether that is there.
        short = need - (self.level + (now - self.at_s) * self.per_s)
        # A timer may fire a rounding error early; nobody should be made to wait a picosecond for that.
        return short / self.per_s if short > 1e-9 * need else 0.0

    def take(self, need: float, now: float) -> None:
        """Book `need`."""
        self.level = self.level_at(now, need) - need
        self.at_s = now

    def give(self, amount: float) -> None:
        """Correct a booking that was too high (or, below zero, too low)."""
        self.level += amount


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one request takes of each limit, as estimated when it is admitted."""

    input: float
    output: float

    def of(self, name: str) -> float:
        """Its share of one bucket."""
        if name == "requests":
            return 1.0
        if name == "input":
            return self.input
        return self.output if name == "output" else self.input + self.output


def open_buckets(limits: Limits, now: float) -> dict[str, Bucket]:
    """The configured limits as empty buckets, by name: `requests`, `input`, `output`."""
    rates = {
        "requests": limits.requests_per_minute,
        "input": limits.input_tokens_per_minute,
        "output": limits.output_tokens_per_minute,
    }
    return {name: Bucket(per_s=rate / 60.0, at_s=now) for name, rate in rates.items() if rate is not None}


def wait_s(buckets: dict[str, Bucket], need: Need, now: float) -> float:
    """Seconds until every bucket has what the request needs."""
    return max([bucket.wait_s(need.of(name), now) for name, bucket in buckets.items()], default=0.0)


def heed(buckets: dict[str, Bucket], name: str, said: Allowance, now: float) -> None:
    """Take over what a provider says is left of its limit on `name` (`requests`, or `tokens` in and out together).

    A configured bucket is only ever lowered by it: the configured rate is the user's word. A limit nobody configured is
    adopted when little of it remains, at the rate at which the provider refills it, and dropped when much remains.
    Chosen: the rate is `(limit - remaining) / reset` and not `limit` a minute, since some providers count by the day.
    """
    bucket = buckets.get(name)
    if bucket is not None and not bucket.adopted:
        bucket.level = min(bucket.level_at(now, 0.0), said.remaining)
        bucket.at_s = now
    elif said.remaining < _LOW * said.limit:
        per_s = (said.limit - said.remaining) / max(said.reset_s, 1e-3)
        level = said.remaining if bucket is None else min(bucket.level_at(now, 0.0), said.remaining)
        buckets[name] = Bucket(per_s=per_s, at_s=now, level=min(level, per_s * BURST_S), adopted=True)
    elif bucket is not None and said.remaining > _HIGH * said.limit:
        del buckets[name]
