"""Intervals that hold at every look: for a run that is cut short, or read every night until it looks good.

An ordinary 95 % interval holds at a moment fixed beforehand; who looks again and again, and stops when it pleases, is
misled far more often. A confidence sequence holds at all looks together, for scores from 0 to 1.

    betting      where each value has the same mean given those before it: instances that are drawn alike. Strata that
                 take turns are averaged first, a round of all of them at a time
    bernstein    where that mean may change: holds for the average of those means so far; wider

Sources: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", theorem 3 and section
4.2 (hedged capital), with a mixture of fixed bets; Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", theorems 1 and 4 (stitched boundary, empirical Bernstein).
Chosen: replicates of an instance are not new draws, so a cell's sequence is the first replicate of its instances. Bets
that are fixed beforehand: their capital grows with every value, so an episode that has begun and not ended counts as
the worst for the lower end and as the best for the upper one, and nothing depends on which episodes are the short ones.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evalkit.stats.intervals import Method

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

LEVEL = 0.95
GRID = 501
"""Means that are tried, from 0 to 1: bounds are rounded outwards by at most 0.002."""

BETS = (0.01, 0.02, 0.04, 0.07, 0.11, 0.16, 0.23, 0.32, 0.43, 0.57, 0.74, 0.93)
"""What each bet of the mixture puts at stake of its capital, so that no value ruins it; each has as much to begin with.
Small ones suit answers of yes and no, large ones graded scores."""
_LEAST_STAKE = 0.01
"""Of a guess near 0: one value refutes nothing."""
_RATIO, _POWER, _START = 2.0, 1.4, 1.0
"""Of the stitched boundary: how epochs of variance grow, how its error falls with them, where the first begins."""


def betting(values: "Doubles", *, level: float = LEVEL) -> "tuple[Doubles, Doubles]":
    """(low, high), both of shape (looks,): after each value, where the mean lies; true at all looks at once.

    values  shape (looks,), 0 to 1, in the order in which they came
    """
    _check(values)
    looks = len(values)
    low, high = np.zeros(looks), np.ones(looks)
    below, above = (np.zeros(looks, np.bool_),) * 2
    grid = np.linspace(0, 1, GRID)
    # Betting that the mean is above `guess` gains less the greater the guess is: the first that stands ends the search.
    for guess in grid:
        below = wealth(values, float(guess), level=level, up=True) >= 0
        if not below.any():
            break
        low[below] = guess
    for guess in grid[::-1]:
        above = wealth(values, float(guess), level=level, up=False) >= 0
        if not above.any():
            break
        high[above] = guess
    return np.minimum(low, high), np.maximum(low, high)


def betting_now(values: "Doubles", *, level: float = LEVEL) -> tuple[float, float]:
    """The last of `betting`'s (low, high), for a fiftieth of its cost; 0 and 1 before the first value."""
    _check(values)
    if not len(values):
        return 0.0, 1.0
    grid = np.linspace(0, 1, GRID).tolist()
    low, high = _last_refuted(values, grid, level, up=True), _last_refuted(values, grid[::-1], level, up=False)
    return min(low, high), max(low, high)


def _last_refuted(values: "Doubles", guesses: Sequence[float], level: float, *, up: bool) -> float:
    """The last guess that is refuted, or the first of all: a bisection, since the bet gains less with each guess."""

    def stands(guess: float) -> bool:
        return bool(wealth(values, guess, level=level, up=up)[-1] < 0)

    return guesses[max(0, bisect_left(guesses, True, key=stands) - 1)]


def wealth(values: "Doubles", guess: float, *, level: float = LEVEL, up: bool) -> "Doubles":
    """Log of the most that a bet against `guess` has made so far, less what refutes it: 0 and more does.

    values  shape (..., looks); the result has the same
    up      whether the bet is that the mean is above `guess`, else below
    """
    # As many bets on each side as half the error allows.
    return capital(values, guess, up=up) - math.log(2 / (1 - level))


def capital(values: "Doubles", guess: float, *, up: bool, turn: int = 1) -> "Doubles":
    """Log of the most that a mixture of fixed bets against `guess` has made so far of 1; parameters as of `wealth`.

    turn    how many values make one look (`evidence.py` says why a look may need several); the result has a look each
    """
    each = np.add.accumulate(log_gains(values, guess, up=up), axis=-1)[..., turn - 1 :: turn]
    best: Doubles = np.maximum.accumulate(mixed(each), axis=-1)
    return best


def log_gains(values: "Doubles", guess: "float | Doubles", *, up: bool) -> "Doubles":
    """Log of what each bet makes of 1 with each value; shape (bets, ...) of what `values` and `guess` have together."""
    stake = np.maximum(guess if up else 1 - guess, _LEAST_STAKE)
    gains = (values - guess) * (1 if up else -1) / stake
    # All bets at once: a sequence is short, and a call of numpy a bet would take most of the time.
    return np.log1p(np.multiply.outer(BETS, gains))


def mixed(each: "Doubles") -> "Doubles":
    """Log of what the mixture has, from the logs of its bets, shape (bets, ...): their mean, as each began alike."""
    total: Doubles = np.logaddexp.reduce(each, axis=0)
    return total - math.log(len(BETS))


def sequential_p(low: "Doubles", high: "Doubles", guess: float) -> float:
    """The p-value of `guess`, two-sided and valid at all looks together: 1 / p is what the better side has made.

    low, high   shape (looks,), 0 to 1: each value, or what it is at least and at most where it is not known yet
    """
    _check(low)
    _check(high)
    if not len(low):
        return 1.0
    best = max(capital(low, guess, up=True)[-1], capital(high, guess, up=False)[-1])
    return min(1.0, 2 * math.exp(-float(best)))


def bernstein(values: "Doubles", *, level: float = LEVEL) -> "tuple[Doubles, Doubles]":
    """(low, high), each of the shape of `values`: after each value, where the average of the means so far lies.

    values  shape (..., looks), 0 to 1, in the order in which they came
    """
    _check(values)
    from scipy.special import zeta

    looks = np.arange(1, values.shape[-1] + 1)
    total = np.cumsum(values, axis=-1)
    guess = (0.5 + total - values) / looks
    spread = np.maximum(_START, np.cumsum((values - guess) ** 2, axis=-1))
    epoch = np.log(spread / _START) / math.log(_RATIO)
    error = _POWER * np.log1p(epoch) + math.log(float(zeta(_POWER)) * 2 / (1 - level))
    wide, narrow = (_RATIO**0.25 + _RATIO**-0.25) / math.sqrt(2), (math.sqrt(_RATIO) + 1) / 2
    half = (np.sqrt(wide**2 * spread * error + (narrow * error) ** 2) + narrow * error) / looks
    mean = total / looks
    return np.maximum(0.0, mean - half), np.minimum(1.0, mean + half)


def _check(values: "Doubles") -> None:
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ValueError("a confidence sequence needs values from 0 to 1")


def rounds(values: "Doubles", strata: Sequence[str]) -> "Doubles | None":
    """The averages of whole rounds in which each stratum has its turn; None if they do not take turns.

    values  shape (looks,); strata: of each of them. A last round that is not whole is left out.
    """
    size = len(set(strata))
    in_rounds = len(values) // size * size if size else 0
    turns = [strata[first : first + size] for first in range(0, len(values), size or 1)]
    if any(len(set(turn)) < len(turn) for turn in turns):
        return None
    averages: Doubles = values[:in_rounds].reshape(-1, size or 1).mean(axis=1)
    return averages


def filled(values: Sequence[float | None], unknown: float) -> "Doubles":
    """The values, shape (looks,), with `unknown` for those that are not known."""
    return np.array([unknown if value is None else value for value in values], np.float64)


def sequence(low: "Doubles", high: "Doubles", strata: Sequence[str]) -> tuple[float, float, Method] | None:
    """(low, high, method): where the mean of values from 0 to 1 lies, valid at all looks; None before the first.

    low, high   shape (looks,): each value, or what it is at least and at most where it is not known yet
    strata      of each of them
    """
    method: Method
    both = rounds(low, strata), rounds(high, strata)
    if both[0] is None or both[1] is None:
        (lows, _), (_, highs), method = bernstein(low), bernstein(high), "bernstein"
        return (float(lows[-1]), float(highs[-1]), method) if len(lows) else None
    (least, _), (_, most), method = betting_now(both[0]), betting_now(both[1]), "betting"
    return (least, most, method) if len(both[0]) else None
