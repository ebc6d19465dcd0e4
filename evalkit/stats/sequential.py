"""Intervals that hold at every look: for a run that is cut short, or read every night until it looks good.

An ordinary 95 % interval holds at a moment fixed beforehand; who looks again and again, and stops when it pleases, is
misled far more often. A confidence sequence holds at all looks together, for scores from 0 to 1.

    by betting: the capital of `evidence.py`, in whole turns. A turn holds each stratum in its proportion, as strata
    differ; of each stratum its first draws are taken.

Source: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", section 4.2 (hedged
capital), with a mixture of fixed bets; `evidence.py` has the argument for turns.
Chosen: replicates of an instance are not new draws, so a cell's sequence is the first replicate of its instances. Bets
that are fixed beforehand: their capital grows with every value, so an episode that has begun and not ended counts as
the worst for the lower end and as the best for the upper one, and nothing depends on which episodes are the short ones.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evalkit.stats.intervals import ALPHA

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

GRID = 501
"""Means that are tried, from 0 to 1: bounds are rounded outwards by at most 0.002."""

BETS = (0.01, 0.02, 0.04, 0.07, 0.11, 0.16, 0.23, 0.32, 0.43, 0.57, 0.74, 0.93)
"""What each bet of the mixture puts at stake of its capital, so that no value ruins it; each has as much to begin with.
Small ones suit answers of yes and no, large ones graded scores."""
_LEAST_STAKE = 0.01
"""Of a guess near 0: one value refutes nothing."""


def in_turns(strata: Sequence[str], turn: Mapping[str, int]) -> list[int]:
    """The places of the draws that make whole turns, turn by turn; `turn`: draws of each stratum in one, those of a
    stratum that it lacks are left out."""
    members = {stratum: [i for i, one in enumerate(strata) if one == stratum] for stratum in turn}
    turns = min((len(members[stratum]) // count for stratum, count in turn.items() if count), default=0)
    return [
        place
        for first in range(turns)
        for stratum, count in turn.items()
        for place in members[stratum][first * count : (first + 1) * count]
    ]


def sequence(low: "Doubles", high: "Doubles", turn: int = 1, *, alpha: float = ALPHA) -> tuple[float, float] | None:
    """(low, high): where the mean of values from 0 to 1 lies, valid at all looks; None before a whole turn.

    low, high   shape (looks,): each value, or what it is at least and at most where it is not known yet
    """
    _check(low)
    _check(high)
    if len(low) < turn:
        return None
    enough, grid = math.log(2 / alpha), np.linspace(0, 1, GRID).tolist()

    def last_refuted(values: "Doubles", guesses: Sequence[float], *, up: bool) -> float:
        """A bisection, since the bet gains less with each guess; the first of all if none is refuted."""
        first = bisect_left(guesses, True, key=lambda one: bool(capital(values, one, up=up, turn=turn)[-1] < enough))
        return guesses[max(0, first - 1)]

    least, most = last_refuted(low, grid, up=True), last_refuted(high, grid[::-1], up=False)
    return min(least, most), max(least, most)


def capital(
    values: "Doubles", guess: "float | Doubles", *, up: bool, turn: int = 1, room: "float | Doubles" = 0.0
) -> "Doubles":
    """Log of the most that a mixture of fixed bets against `guess` has made so far of 1.

    values  shape (..., draws), 0 to 1; `room`, as of `log_gains`, more
    up      whether the bet is that the mean is above `guess`, else below
    turn    how many values make one look (`evidence.py` says why a look may need several); the result has a look each
    """
    each = np.add.accumulate(log_gains(values, guess, up=up, room=room), axis=-1)[..., turn - 1 :: turn]
    best: Doubles = np.maximum.accumulate(mixed(each), axis=-1)
    return best


def log_gains(values: "Doubles", guess: "float | Doubles", *, up: bool, room: "float | Doubles" = 0.0) -> "Doubles":
    """Log of what each bet makes of 1 with each value; shape (bets, ...) of what `values`, `guess` and `room` have
    together. `room`: by how much values may lie beyond 0 and 1."""
    stake = np.maximum(guess if up else 1 - guess, _LEAST_STAKE) + room
    gains = (values - guess) * (1 if up else -1) / stake
    # All bets at once: a sequence is short, and a call of numpy a bet would take most of the time.
    return np.log1p(np.multiply.outer(BETS, gains))


def mixed(each: "Doubles") -> "Doubles":
    """Log of what the mixture has, from the logs of its bets, shape (bets, ...): their mean, as each began alike."""
    total: Doubles = np.logaddexp.reduce(each, axis=0)
    return total - math.log(len(BETS))


def sequential_p(low: "Doubles", high: "Doubles", guess: float, turn: int = 1) -> float:
    """The p-value of `guess`, two-sided and valid at all looks together: 1 / p is what the better side has made.

    low, high   shape (looks,), 0 to 1: each value, or what it is at least and at most where it is not known yet
    """
    _check(low)
    _check(high)
    if len(low) < turn:
        return 1.0
    best = max(capital(low, guess, up=True, turn=turn)[-1], capital(high, guess, up=False, turn=turn)[-1])
    return min(1.0, 2 * math.exp(-float(best)))


def _check(values: "Doubles") -> None:
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ValueError("a confidence sequence needs values from 0 to 1")


def filled(values: Sequence[float | None], unknown: float) -> "Doubles":
    """The values, shape (looks,), with `unknown` for those that are not known."""
    return np.array([unknown if value is None else value for value in values], np.float64)
