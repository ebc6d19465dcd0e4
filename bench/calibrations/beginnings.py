"""The number of beginnings that the nights' evidence is divided by, simulated where the noise is known.

    python -m bench.calibrations.beginnings

A line is a tolerance in units of a night's noise, the number in use, and the one found: the least with which at most
`ALPHA` of series have a false alarm within 30 nights. It is the greatest over nights of baseline and over the nights on
which a fall of just the tolerance came, the worst harmless history (`evalkit.stats.sustained_drop` says why). All of
them follow.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from evalkit.stats.alarm import HORIZON
from evalkit.stats.sustained_drop import BETS, PARTS, TOLERANCES, beginnings

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

ALPHA = 0.05
SERIES = 4_000
BASELINES, LATER = (2, 7, 30), (0, 7, 14)


def summed(sums: "Doubles", night: int, tolerance: float) -> "Doubles":
    """By series: the log of the sum of e(j) on a night; `sums` are of the levels before each night, noise is 1."""
    first = np.arange(1, night)
    size = night - first
    spread = 1 / size + 1 / first
    beyond = (sums[:, first] / first - (sums[:, [night]] - sums[:, first]) / size - tolerance) / spread
    bets = zip(BETS, PARTS, strict=True)
    total: Doubles = np.log(sum(part * np.exp(bet * beyond - bet * bet / 2 / spread) for bet, part in bets).sum(axis=1))
    return total


def number(draws: np.random.Generator, tolerance: float, baseline: int, later: int) -> float:
    """The number of beginnings for a fall that comes `later` nights after the baseline."""
    levels = draws.standard_normal((SERIES, baseline + HORIZON))
    levels[:, baseline + later :] -= tolerance
    sums = np.concatenate([np.zeros((SERIES, 1)), np.cumsum(levels, axis=1)], axis=1)
    most = np.full(SERIES, -np.inf)
    for night in range(baseline + 1, baseline + HORIZON + 1):
        # What the table leaves: how the number grows with nights is not measured here.
        grown = float(beginnings(np.array(tolerance), night - 1) - beginnings(np.array(tolerance), HORIZON))
        most = np.maximum(most, summed(sums, night, tolerance) - grown)
    return ALPHA * math.exp(float(np.quantile(most, 1 - ALPHA)))


def main() -> None:
    """Print the table."""
    draws = np.random.Generator(np.random.Philox(0))
    for tolerance in TOLERANCES:
        numbers = [number(draws, float(tolerance), baseline, later) for baseline in BASELINES for later in LATER]
        used = math.exp(float(beginnings(np.array(tolerance), HORIZON)))
        print(
            f"{tolerance:5.2f} {used:6.1f} {max(numbers):6.1f}  ", *(f"{found:6.1f}" for found in numbers), flush=True
        )


if __name__ == "__main__":
    main()
