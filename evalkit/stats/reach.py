"""How many draws an answer will take, told before the first one; for a difference and a spread that are supposed.

After n draws the log of the bet b is about normal, with mean n g_b and variance n v_b, where g_b and v_b are those of
log(1 + b (D - m) / (m + 1)) (`evidence.py`). All bets watch the same draws and move together, so there is about one
normal Z, the luck of the second side, with

    M against "at most m":      mean over b of exp(n g_b + Z sqrt(n v_b))
    M against "at least m":     mean over b of exp(n g_b - Z sqrt(n v_b))

and an answer has been given where Z is so far up, down or in the middle that its refusals reach 2 / alpha. Answers that
came earlier and would not be given any more are left out, so this is somewhat too long, mostly by less than a quarter.
What is said here is a forecast and promises nothing; the guarantee of an answer does not rest on it.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from evalkit.stats.evidence import Answer
from evalkit.stats.sequential import BETS, log_gains, mixed

if TYPE_CHECKING:
    from evalkit.stats.sequential import Doubles

MOST = 10_000_000
"""Draws beyond which nothing is forecast."""

_FAR, _CLOSE = 9.0, 1e-4
"""Standard deviations of luck: the most that are looked at, and how exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposed:
    """A difference as draws are supposed to have it."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the draws."""
        return math.fsum(value * weight for value, weight in zip(self.values, self.weights, strict=True))


def graded(difference: float, spread: float) -> Supposed:
    """Draws around a difference with a standard deviation. Raises ValueError if they would leave -1 to 1."""
    if not (spread > 0 and abs(difference) + spread <= 1):
        raise ValueError(f"no draws from -1 to 1 are {difference} on average with a spread of {spread}")
    return Supposed(values=(difference - spread, difference + spread), weights=(0.5, 0.5))


def yes_no(difference: float, discordant: float) -> Supposed:
    """Answers of yes and no, of which a share `discordant` differs between the sides. Raises ValueError."""
    if not abs(difference) <= discordant <= 1:
        raise ValueError(f"{discordant} of the answers differ: that cannot make a difference of {difference}")
    up, down = (discordant + difference) / 2, (discordant - difference) / 2
    return Supposed(values=(-1.0, 0.0, 1.0), weights=(down, 1 - discordant, up))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What an answer is expected to take."""

    answer: Answer
    """Which one is the likeliest then; `undecided` if none comes within `MOST` draws."""
    half: float
    """Draws after which half of all runs have an answer; inf if they never do."""
    nine_tenths: float
    """The same for nine of ten."""


def least_draws(alpha: float) -> int:
    """The fewest draws that can answer anything: as many differences of 1, the greatest there is."""
    n = 1
    while mixed(n * np.log1p(np.array(BETS))) < math.log(2 / alpha):
        n += 1
    return n


def reach(supposed: Supposed, *, margin: float, alpha: float) -> Reach:
    """When such draws are known to differ from 0, or to be closer to it than the margin; whichever comes first.

    alpha   of this question alone
    """
    half, nine_tenths = (_draws(supposed, margin, alpha, share) for share in (0.5, 0.9))
    if math.isinf(nine_tenths):
        return Reach(answer="undecided", half=half, nine_tenths=nine_tenths)
    shares = answered(supposed, int(nine_tenths), margin=margin, alpha=alpha)
    likeliest: Answer = max(shares, key=lambda one: shares[one])
    return Reach(answer=likeliest, half=half, nine_tenths=nine_tenths)


def answered(supposed: Supposed, draws: int, *, margin: float, alpha: float) -> dict[Answer, float]:
    """The share of all runs that has each answer after so many draws."""
    if draws < 1:
        return {"above": 0.0, "below": 0.0, "equal": 0.0}
    # In units of Z: how lucky the second side must have been for each refusal.
    above = _needed(_bets(supposed, 0.0, up=True), draws, alpha)
    below = -_needed(_bets(supposed, 0.0, up=False), draws, alpha)
    low = _needed(_bets(supposed, -margin, up=True), draws, alpha)
    high = -_needed(_bets(supposed, margin, up=False), draws, alpha)
    phi = NormalDist().cdf
    equal = max(0.0, phi(high) - phi(low))
    if equal > 0.0:
        above, below = max(above, high), min(below, low)
    return {"above": 1 - phi(above), "below": phi(below), "equal": equal}


def _bets(supposed: Supposed, guess: float, *, up: bool) -> "tuple[Doubles, Doubles]":
    """(mean, standard deviation) of what one draw adds to the log of each bet; each of shape (bets,)."""
    values = (np.array(supposed.values) + 1) / 2
    each, weights = log_gains(values, (guess + 1) / 2, up=up), np.array(supposed.weights)
    mean = each @ weights
    return mean, np.sqrt(np.maximum(0.0, (each - mean[:, None]) ** 2 @ weights))


def _needed(bets: "tuple[Doubles, Doubles]", draws: int, alpha: float) -> float:
    """How many standard deviations of luck the bets need after so many draws."""
    (mean, spread), wanted = bets, math.log(2 / alpha)
    low, high = -_FAR, _FAR
    while high - low > _CLOSE:
        middle = (low + high) / 2
        if mixed(draws * mean + middle * math.sqrt(draws) * spread) >= wanted:
            high = middle
        else:
            low = middle
    return high


def _draws(supposed: Supposed, margin: float, alpha: float, share: float) -> float:
    """Draws after which this share of runs has an answer."""

    def enough(draws: int) -> bool:
        return sum(answered(supposed, draws, margin=margin, alpha=alpha).values()) >= share

    most = 1
    while not enough(most):
        most *= 2
        if most > MOST:
            return math.inf
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return float(most)
