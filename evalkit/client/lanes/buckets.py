"""Rates as token buckets: when a request of a given size may be sent. Arithmetic only, tested by table.

A bucket starts empty and saves up at most half a second's worth, or the need of the request at the head of the queue if
that is more; so a request of any size is sent eventually. A bucket fills a little below its rate: a server may count by
minutes that begin at any time, and no such minute may exceed the limit. Returned tokens were already waited for, and
are kept.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from evalkit.dialogue import Usage
from evalkit.spec.model import Limits
from evalkit.wire.allowance import LONGEST_S, Allowance

BURST_S = 0.5
PACE = 0.98
"""The used part of a configured limit. The rest covers bursts, and requests that arrive less evenly than they were
sent."""

_LOW = 0.1
"""A limit that only the provider's headers state is applied once less than this part of it remains ..."""
_HIGH = 0.5
"""... and forgotten when more than this part of it remains again."""


@dataclass(slots=True, kw_only=True)
class Bucket:
    """One rate."""

    per_s: float
    at_s: float
    """The time of `level`."""
    level: float = 0.0
    adopted: bool = False
    """Whether it came from a provider's headers; configured ones stay."""
    awaited: float = 0.0
    """The need of the waiting request: the bucket has room for it."""

    def level_at(self, now: float, need: float) -> float:
        """The level at `now`, with room for `need`."""
        level = self.level + (now - self.at_s) * self.per_s
        if level > self.per_s * BURST_S:  # without `max` and `min`: this is done for every request, several times
            level = min(level, max(self.per_s * BURST_S, need, self.awaited))
        return level if level > self.level else self.level

    def wait_s(self, need: float, now: float) -> float:
        """Seconds until `need` is there; 0 when it is, infinite if it will not be at this rate."""
        # Without the bucket's bound: it is never below `need`, so it cannot change whether that is there.
        short = need - (self.level + (now - self.at_s) * self.per_s)
        if short <= 0.0:
            return 0.0
        if not self.per_s:  # a share of nothing, until there is another
            return math.inf
        # A timer may fire early by a rounding error. A request should not wait a picosecond for that, or for a rate so
        # high that the clock cannot show the wait.
        if short <= max(1e-9 * need, 1e-6 * self.per_s):
            return 0.0
        self.awaited = need
        return short / self.per_s

    def take(self, need: float, now: float) -> None:
        """Book `need`."""
        self.level = self.level_at(now, need) - need
        self.at_s = now
        self.awaited = 0.0

    def delay(self, need: float, booked_at: float, now: float) -> None:
        """What was booked is used only now: what has come in since, up to `need`, is not there for others. Otherwise
        those behind it would follow it more closely than the rate."""
        level = self.level_at(now, 0.0) - min(need, (now - booked_at) * self.per_s)
        # Where nobody has booked since, it is as if it were booked now: no less is there than behind a booking.
        self.level = level if self.at_s > booked_at else max(level, min(self.level, 0.0))
        self.at_s = now

    def give(self, amount: float) -> None:
        """Correct a booking that was too high (or, below zero, too low)."""
        self.level += amount

    def lower(self, level: float, now: float) -> None:
        """The level is at most `level`."""
        self.level = min(self.level_at(now, 0.0), level)
        self.at_s = now


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one request takes of each limit, as estimated when it is admitted. Each part has its bucket's name."""

    input: float
    output: float
    requests: float = 1.0
    blind: bool = False
    """Whether no reply was known yet: the booking is then a bound, far above the real use."""

    @property
    def tokens(self) -> float:
        """Both together."""
        return self.input + self.output


Buckets = dict[str, Bucket]
"""By name: `requests`, `input`, `output`, and `tokens` (both together) if headers state them."""

WORDS = {"requests": "requests/min", "input": "input tokens/min", "output": "output tokens/min", "tokens": "tokens/min"}


def open_buckets(limits: Limits, now: float) -> Buckets:
    """The configured limits as empty buckets."""
    rates = {
        "requests": limits.requests_per_minute,
        "input": limits.input_tokens_per_minute,
        "output": limits.output_tokens_per_minute,
    }
    return {name: Bucket(per_s=PACE * rate / 60.0, at_s=now) for name, rate in rates.items() if rate is not None}


def reshare(buckets: Buckets, rates: Mapping[str, float], now: float) -> None:
    """The configured limits have changed to these, each by its bucket's name, a minute. What was saved up above the new
    bound goes."""
    for name, rate in rates.items():
        bucket = buckets.get(name)
        if bucket is not None and not bucket.adopted:
            level, per_s = bucket.level_at(now, 0.0), PACE * rate / 60.0
            buckets[name] = Bucket(
                per_s=per_s, at_s=now, level=min(level, max(per_s * BURST_S, bucket.awaited)), awaited=bucket.awaited
            )


def wait_s(buckets: Buckets, need: Need, now: float) -> float:
    """Seconds until every bucket has what the request needs."""
    longest = 0.0
    for name, bucket in buckets.items():
        wait = bucket.wait_s(getattr(need, name), now)
        if wait > 0.0:
            longest = max(longest, wait)
    return longest


def told_wait_s(buckets: Buckets, need: Need, now: float) -> tuple[float, str]:
    """(seconds until the limits from providers' headers have what the request needs, the limit that takes longest)."""
    told = {name: bucket.wait_s(getattr(need, name), now) for name, bucket in buckets.items() if bucket.adopted}
    name = max(told, key=lambda limit: told[limit], default="")
    return told.get(name, 0.0), name


def scarcest(buckets: Buckets, need: Need, now: float) -> str:
    """The limit that a request waits for, in words; empty: for none."""
    waits = {name: bucket.wait_s(getattr(need, name), now) for name, bucket in buckets.items()}
    name = max(waits, key=lambda limit: waits[limit], default="")
    return WORDS[name] if name and waits[name] > 0 else ""


def book(buckets: Buckets, need: Need, now: float) -> None:
    """A request is sent."""
    for name, bucket in buckets.items():
        bucket.take(getattr(need, name), now)


def delay(buckets: Buckets, need: Need, booked_at: float, now: float) -> None:
    """A request that was booked at `booked_at` is sent only now."""
    for name, bucket in buckets.items():
        bucket.delay(getattr(need, name), booked_at, now)


def unbook(buckets: Buckets, need: Need, *, sent: bool) -> None:
    """A request used no tokens; where it was not even `sent`, it counts as none."""
    for name, bucket in buckets.items():
        if name != "requests" or not sent:
            bucket.give(getattr(need, name))


def correct(buckets: Buckets, booked: Need, used: Need) -> None:
    """The booking was an estimate: put it right."""
    for name, bucket in buckets.items():
        if name != "requests":
            bucket.give(getattr(booked, name) - getattr(used, name))
            if booked.blind:  # what was held back for the worst case must not be sent all at once
                bucket.level = min(bucket.level, max(bucket.per_s * BURST_S, bucket.awaited))


def apply_allowance(buckets: Buckets, name: str, allowance: Allowance, now: float) -> None:
    """Apply what a provider reports as remaining of its limit on `name` (`requests`, or `tokens` in and out together).

    A configured bucket is only ever lowered by it: the configured rate is the user's choice. A limit that is not
    configured is adopted when little of it remains, at the rate at which the provider refills it, and dropped when much
    remains. Chosen: the rate is `(limit - remaining) / reset` and not `limit` per minute, since some providers count by
    the day. Chosen: a limit that is full again only after `LONGEST_S` or later counts as not refilling: what remains
    may be used, and no more.
    """
    bucket = buckets.get(name)
    if bucket is not None and not bucket.adopted:
        bucket.lower(allowance.remaining, now)
    elif allowance.remaining < _LOW * allowance.limit:
        level = allowance.remaining if bucket is None else min(bucket.level_at(now, 0.0), allowance.remaining)
        if allowance.reset_s >= LONGEST_S:
            per_s = 1.0 / LONGEST_S
        else:
            per_s = (allowance.limit - allowance.remaining) / max(allowance.reset_s, 1e-3)
            level = min(level, per_s * BURST_S)
        buckets[name] = Bucket(per_s=per_s, at_s=now, level=level, adopted=True)
    elif bucket is not None and allowance.remaining > _HIGH * allowance.limit:
        del buckets[name]


# What a request will use, guessed from its size and from the replies so far. Arithmetic only.

FIRST_TOKENS_PER_BYTE = 0.25
"""Of a request body, until replies have shown the true ratio."""
_LEARN = 0.1
"""Weight of the newest reply in the running estimates."""


class TokenEstimate:
    """Input tokens per byte sent, and output tokens, of one lane's requests."""

    __slots__ = ("_output", "_tokens_per_byte")

    def __init__(self) -> None:
        self._tokens_per_byte = FIRST_TOKENS_PER_BYTE
        self._output: float | None = None

    def need(self, body_bytes: int, max_tokens: int) -> Need:
        """The estimate for a request; `max_tokens` bounds its reply, and is used as its estimate until a reply is
        known."""
        blind = self._output is None
        output = max_tokens if self._output is None else min(self._output, max_tokens)
        return Need(input=body_bytes * self._tokens_per_byte, output=float(output), blind=blind)

    def learn(self, body_bytes: int, booked: Need, usage: Usage) -> Need:
        """Learn from what a request of that size has used. If its input was not counted (0), the booking is used
        instead."""
        if usage.input:
            self._tokens_per_byte += _LEARN * (usage.input / body_bytes - self._tokens_per_byte)
        before = usage.output if self._output is None else self._output
        self._output = before + _LEARN * (usage.output - before)
        return Need(input=usage.input or booked.input, output=usage.output)


# How wide a lane may open by the limits that its provider announces in a reply's headers. Arithmetic only.
#
# A window that starts at a few requests needs ten round trips to reach some hundreds: minutes, where a reply takes 20
# seconds. A provider that announces its limits has said how much it takes.

MINUTE_S = 60.0
"""Chosen: a limit is taken as one per minute, which it is for nearly all providers. Where it is counted by the day,
what remains of it bounds the window, and the buckets slow down when little remains."""


def announced_room(
    requests: Allowance | None, tokens: Allowance | None, *, in_flight: int, took_s: float, used: int
) -> float:
    """Requests in flight that the announced limits allow; 0 where no limit was announced.

    By each limit it is the lower of two: as many as come back in the time of one reply at the limit's rate, and those
    in flight with what remains. `in_flight`: requests, the answered one among them. `took_s`: seconds that it took.
    `used`: its tokens; if more than that is missing from the limit per request in flight, that counts.
    """
    return min(_rooms(requests, tokens, in_flight, took_s, used), default=0.0)


def _rooms(
    requests: Allowance | None, tokens: Allowance | None, in_flight: int, took_s: float, used: int
) -> Iterator[float]:
    if requests is not None:
        yield _room(requests, 1.0, in_flight, took_s)
    if tokens is not None:
        missing = (tokens.limit - tokens.remaining) / max(1, in_flight)
        yield _room(tokens, max(1.0, used, missing), in_flight, took_s)


def _room(limit: Allowance, need: float, in_flight: int, took_s: float) -> float:
    return min(limit.limit / need * took_s / MINUTE_S, in_flight + limit.remaining / need)
