"""How long the simulated provider takes to answer: a distribution, written as one word and drawn by place.

| text | meaning |
|---|---|
| `50ms` | always that long |
| `uniform:10ms:50ms` | between the two |
| `lognormal:200ms:0.5` | of that median; the logarithm has that standard deviation |
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from evalkit.seeds import Stream
from evalkit.spec.reading import parse_span

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A distribution of seconds."""

    kind: str
    """`fixed`, `uniform` or `lognormal`."""
    first: float
    """Seconds: the value, the lower end or the median."""
    second: float = 0.0
    """The upper end in seconds, or the standard deviation of the logarithm."""

    def draw(self, draws: Stream) -> float:
        """Seconds for one request; a fixed latency draws nothing."""
        if self.kind == "fixed":
            return self.first
        # Moved off 0 by half a step, so that every logarithm and quantile below is finite.
        quantile = draws.uniform() + 2.0**-54
        if self.kind == "uniform":
            return self.first + (self.second - self.first) * quantile
        return self.first * math.exp(self.second * _NORMAL.inv_cdf(min(quantile, 1 - 2.0**-53)))

    @property
    def mean_s(self) -> float:
        """Seconds on average."""
        if self.kind == "uniform":
            return (self.first + self.second) / 2
        return self.first * math.exp(self.second**2 / 2) if self.kind == "lognormal" else self.first


INSTANT = Latency(kind="fixed", first=0.0)


def parse_latency(text: str) -> Latency:
    """A latency as text (table above). Raises ValueError saying how to write one."""
    kind, *parts = text.strip().split(":")
    if not parts:
        return Latency(kind="fixed", first=parse_span(kind))
    if kind == "uniform" and len(parts) == 2:
        low, high = parse_span(parts[0]), parse_span(parts[1])
        if low > high:
            raise ValueError(f"{text!r}: the lower end {parts[0]} is above the upper end {parts[1]}")
        return Latency(kind=kind, first=low, second=high)
    if kind == "lognormal" and len(parts) == 2:
        return Latency(kind=kind, first=parse_span(parts[0]), second=_spread(parts[1]))
    raise ValueError(
        f"{text!r} is not a latency: write 50ms, uniform:10ms:50ms or lognormal:200ms:0.5 (of that median)"
    )


def _spread(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 5:
        raise ValueError(f"{text!r} is not a spread: expected the logarithm's standard deviation, from 0 to 5")
    return value
