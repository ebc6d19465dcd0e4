"""The simulated provider's own limits: requests and tokens a minute, each a bucket that refills steadily.

Pure arithmetic over a `now` in seconds that never goes back.
"""

import math
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Bucket:
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
        # A hair is forgiven: refilling in many small parts loses some in rounding.
        return missing * 60 / self.per_minute if missing > 1e-9 * self.capacity else 0.0

    def take(self, amount: float) -> None:
        """Take it, also below zero."""
        self.level -= amount

    @property
    def full_in_s(self) -> float:
        """Seconds until the bucket is full again."""
        return (self.capacity - self.level) * 60 / self.per_minute


def bucket(per_minute: float, burst_s: float, now_s: float) -> Bucket:
    """A full bucket that saves up at most `burst_s` seconds' worth, but at least one unit."""
    capacity = max(1.0, per_minute * burst_s / 60)
    return Bucket(per_minute=per_minute, capacity=capacity, level=capacity, at_s=now_s)


def headers(kind: str, bucket: Bucket) -> dict[str, str]:
    """The usual three headers of a limit; `kind` is `requests` or `tokens`."""
    return {
        f"x-ratelimit-limit-{kind}": str(math.floor(bucket.per_minute)),
        f"x-ratelimit-remaining-{kind}": str(max(0, math.floor(bucket.level + 1e-9))),
        f"x-ratelimit-reset-{kind}": show_span(bucket.full_in_s),
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
