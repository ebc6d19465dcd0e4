"""Evidence about a mean that may be looked at after every draw: for comparisons that end when they are answered.

What is drawn is, for a pair of agents, the difference of their scores on one instance, D from -1 to 1; for one agent
its score. The draws come in an order that was frozen before the first of them, and none is left out.

The evidence against "the mean is at most m" is the capital of a bettor who begins with 1 and stakes on every draw the
share b of what a draw can take from them. After n draws the bet b has made

    K_b = prod over t of (1 + b (D_t - m) / (m + 1)),  0 < b < 1

No factor is below 1 - b, since D >= -1. Against "at least m" the bettor stakes on -D and -m. The evidence is M, the
mean of K_b over a list of bets that was frozen beforehand (`sequential.BETS`).

**Why it holds at every look.** Let the draws of one turn have the expected values m_1, ..., m_k, whatever came before
them, and let their mean be mu <= m. What the turn multiplies K_b by has the expected value

    prod over i of (1 + b (m_i - m) / (m + 1)) <= (1 + b (mu - m) / (m + 1))^k <= 1

by the inequality of the arithmetic and the geometric mean, since no factor is negative. So K_b, seen where turns end,
is a supermartingale that begins with 1; so is M, a mean of such; and P(M >= 1 / a at any look) <= a (Ville's
inequality). The two sides have a = alpha / 2 each. All m that neither side refutes form the interval; it is one, since
each factor falls as m grows. Whatever decides when to look, or to stop, the mean is outside in at most alpha of all
runs.

**What a turn is.**

    instances like these    an instance is a draw: k = 1. Where strata take turns, a turn is the shortest stretch of the
                            order that holds each stratum in its proportion, and mu is the mean of that mix.
    this suite              an instance is a stratum with an expected value of its own, and a replicate is a draw of it.
                            A turn is one replicate of all instances. Within a turn nothing can be said: the instances
                            met so far are not the suite. After one whole turn the mean of its scores is known exactly,
                            and what another turn would give is not; the evidence is about the latter.

                            Draws are *centred*: from D of instance i a part of c_i - c is taken, its mean over the
                            turns before less that of all; the part that is no chance. That leaves the mean of a turn
                            as it is, and what is known of single instances is no noise any more. What is left is from
                            -1 - w to 1 + w, w the most that is taken, which is known when the turn begins. With
                            m + 1 + w in the place of m + 1 no factor is negative, and the inequality above holds.
    this suite once         each of the N instances is drawn once, in random order within its stratum, and m is the mean
                            of what all N will have given. After n draws with the sum S, "at most m" says of the others
                            that their mean is at most (N m - S) / (N - n), which takes the place of m for a turn. A
                            turn has each stratum in the proportion in which it is left: the draws that fit no whole
                            turn come first, with no bet on them. Within a turn two draws of a stratum hang together,
                            but a product of factors that grow is then at most what independent draws would give
                            (negative association: Joag-Dev and Proschan 1983). What the draws to come cannot undo is
                            certain, and the last one leaves nothing open.

**Yes and no.** At m = 0 a pair with the same answer on both sides has the factor 1, and a pair with different ones
1 + b or 1 - b: only discordant pairs count, and K_b is the likelihood ratio of a coin that shows one side with
probability (1 + b) / 2 and a fair one. This is the sign test of McNemar, made sequential.

Sources: Ville 1939, as stated in Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic
confidence sequences"; Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting" (the
capital and its inversion, for draws with one mean); Ramdas, Gruenwald, Vovk and Shafer 2023, "Game-theoretic statistics
and safe anytime-valid inference" (stopping whenever one likes; a mean of test martingales is one). Spertus, Sridhar and
Stark 2024, "Sequential stratified inference for the mean", multiply strata too; a bet that is the same in all strata
makes their maximum over strata means the inequality above. Waudby-Smith and Ramdas 2020, "Confidence sequences for
sampling without replacement". Chosen: bets that are fixed, so that a look costs no more
than its new draws and `verify` finds the same numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from evalkit.stats.sequential import BETS, log_gains, mixed

if TYPE_CHECKING:
    import numpy.typing as npt

    from evalkit.stats.sequential import Doubles

BETS_VERSION = 2
"""Of `sequential.BETS` and of the formula above: other bets are another version, and old runs keep theirs."""

GRID = 401
"""Means that are tried over the whole range, so ends are rounded outwards by at most half a point of a difference."""

Answer = Literal["above", "below", "equal", "undecided"]
"""Of the second agent compared with the first one; `equal`: closer than the margin."""

_AT_ONCE = 64
"""Draws in one call of numpy: what bounds its memory."""

_NEVER = 1 << 62
_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """From where to where draws can lie."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.least) and math.isfinite(self.most) and self.least < self.most):
            raise ValueError(
                f"draws from {self.least} to {self.most} have no two bounds, so nothing holds at every look: "
                "fix a range beforehand, at whose ends scores are cut"
            )

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1; those beyond an end count as that end. Raises ValueError of no number."""
        if math.isnan(value):
            raise ValueError("a score that is no number cannot be compared")
        return (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)


SCORES = Bounds(least=0.0, most=1.0)
DIFFERENCES = Bounds(least=-1.0, most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """What a look finds."""

    draws: int
    """In whole turns: those that count."""
    mean: float
    """Of them; nan before the first turn. Biased away from 0 at a stop, which comes when luck adds to a difference."""
    low: float
    high: float
    """Where the true mean lies, valid at all looks together."""
    answer: Answer
    at: int = 0
    """The draws with which the answer was given; 0 while it is open. Later draws narrow the interval alone."""


class Evidence:
    """The evidence of draws against each of a list of means; grows draw by draw and costs no more than the new ones.

    How the draws are split into calls changes nothing, not even the last digit.

    centred whether each place of a turn is one instance, turn after turn, so that its earlier draws are known of it
    total   draws that there are, where it is their mean that is sought; 0: that of draws without end
    lead    of these, how many come before the first turn
    alpha   where it is known, means that have been refuted are not tried any more, and `answered` says when an answer
            about the margin was given first
    """

    __slots__ = (
        *("_asked", "_before", "_best", "_centre", "_enough", "_first", "_guesses", "_logs", "_seen", "_standing"),
        *("_sum", "alpha", "bounds", "draws", "lead", "margin", "mean", "total", "turn"),
    )

    def __init__(
        self,
        *,
        bounds: Bounds = DIFFERENCES,
        margin: float | None = None,
        turn: int = 1,
        alpha: float | None = None,
        centred: bool = False,
        total: int = 0,
        lead: int = 0,
    ) -> None:
        if turn < 1:
            raise ValueError("a turn has at least one draw")
        if margin is not None and not 0 < margin < bounds.most:
            raise ValueError(f"a margin is above 0 and below {bounds.most}, not {margin}")
        self.bounds, self.turn, self.margin, self.alpha = bounds, turn, margin, alpha
        self.total, self.lead = total, lead
        self._guesses = guesses(bounds, margin)
        self._enough = math.inf if alpha is None else math.log(2 / alpha)
        # The means that are still tried, on each side; and when those that an answer depends on were refuted.
        self._standing = [slice(0, len(self._guesses)), slice(0, len(self._guesses))]
        self._asked = [int(np.searchsorted(self._guesses, one)) for one in _asked(bounds, margin)]
        self._first: list[dict[int, int]] = [{}, {}]
        # Against "at most" and against "at least" each guess: the log of each bet's capital, and the mixture's best.
        self._logs = np.zeros((2, len(BETS), len(self._guesses)))
        self._best = np.full((2, len(self._guesses)), -math.inf)
        # Draws, their sum, and what that was before the turn that is under way.
        self._seen, self._sum, self._before = 0, 0.0, 0.0
        self._centre = np.zeros((3, turn)) if centred else None
        """Of each place of a turn: the sum of its draws in earlier turns and of their squares; its draw in this one."""
        self.draws, self.mean = 0, math.nan

    @property
    def seen(self) -> int:
        """Draws so far, those of a turn that is not whole among them."""
        return self._seen

    def add(self, draws: Sequence[float]) -> None:
        """Take the next draws in the frozen order. Raises ValueError of one that is outside the range."""
        first = 0
        while first < len(draws):
            # What centres draws changes with each turn.
            most = _AT_ONCE if self._centre is None else min(_AT_ONCE, self.turn - self._seen % self.turn)
            self._add(np.asarray(draws[first : first + most], np.float64))
            first += most

    def _add(self, draws: "Doubles") -> None:
        least, most = self.bounds.least, self.bounds.most
        if not (draws.min() >= least and draws.max() <= most):
            raise ValueError(f"a draw is from {least} to {most}; these are from {draws.min()} to {draws.max()}")
        off, room = self._off(draws)
        shares = (draws - off - least) / (most - least)
        places = np.arange(self._seen, self._seen + len(draws)) - self.lead
        ends = np.flatnonzero((places >= 0) & ((places + 1) % self.turn == 0))
        sums = np.add.accumulate(np.concatenate([[self._sum], draws]))
        still = after = self._guesses[:, None]
        if self.total:
            begun = np.maximum(places // self.turn * self.turn + self.lead, 0)
            # What was known when a draw's turn began, in an earlier call or in this one.
            known = np.where(begun < self._seen, self._before, sums[np.maximum(begun - self._seen, 0)])
            still = left(still, known, begun, self.total)
            after = left(after, sums[ends + 1], self._seen + ends + 1, self.total)
        tried = (still - least) / (most - least)
        for side in (0, 1):
            part = self._standing[side]
            each = log_gains(shares[None, :], tried[part], up=side == 0, room=room / (most - least))
            each[..., places < 0] = 0.0
            each[..., 0] += self._logs[side][:, part]
            # One draw after the other, so that it does not matter how many came together.
            np.add.accumulate(each, axis=-1, out=each)
            self._logs[side][:, part] = each[..., -1]
            if len(ends):
                told = mixed(each[..., ends])
                if self.total:
                    told[after[part] < least - _SAME if side == 0 else after[part] > most + _SAME] = math.inf
                self._best[side][part] = np.maximum(self._best[side][part], told.max(axis=-1))
                if self.alpha is not None:
                    self._refute(side, told, ends)
        self._sum, self._seen = float(sums[-1]), self._seen + len(draws)
        begins = np.flatnonzero((places >= -1) & ((places + 1) % self.turn == 0)) + 1
        if len(begins):
            self._before = float(sums[begins[-1]])
        if len(ends):
            self.draws = self._seen - (len(draws) - int(begins[-1]))
            self.mean = self._before / self.draws

    def _off(self, draws: "Doubles") -> "tuple[Doubles | float, float]":
        """(what is taken from these draws of one turn, how far beyond the range that may bring any of the turn)."""
        if self._centre is None:
            return 0.0, 0.0
        turns, place = divmod(self._seen, self.turn)
        if place == 0 and turns:
            self._centre[:2] += self._centre[2], self._centre[2] ** 2
        known = centre(self._centre[0], self._centre[1], turns)
        self._centre[2, place : place + len(draws)] = draws
        return known[place : place + len(draws)], float(np.abs(known).max())

    def _refute(self, side: int, told: "Doubles", ends: "npt.NDArray[np.intp]") -> None:
        """Note which means have just been refuted on one side; a mean that is easier to refute than one of them is too.

        told    log of the mixture against each standing mean where turns end; shape (standing, ends)
        """
        first, last = self._standing[side].start, self._standing[side].stop
        for place in self._asked:
            if not first <= place < last:
                continue
            hits = np.flatnonzero(told[place - first] >= self._enough)
            if len(hits):
                self._first[side][place] = self._seen + int(ends[hits[0]]) + 1
        refuted = np.flatnonzero(self._best[side][first:last] >= self._enough)
        if len(refuted):
            self._standing[side] = (
                slice(first + int(refuted[-1]) + 1, last) if side == 0 else slice(first, first + int(refuted[0]))
            )

    @property
    def answered(self) -> tuple[int, Answer]:
        """(draws, answer) of the first look that gave one, as if anyone had looked after each turn; (0, `undecided`)
        before, and where no `alpha` is known."""
        if self.margin is None:
            return 0, "undecided"
        (low, zero, high), up, down = self._asked, self._first[0], self._first[1]
        both = max(up.get(low, _NEVER), down.get(high, _NEVER))
        # At one look the first of these says what `answer` would.
        found: list[tuple[int, Answer]] = [
            (both, "equal"),
            (up.get(zero, _NEVER), "above"),
            (down.get(zero, _NEVER), "below"),
        ]
        at, first = min(found, key=lambda one: one[0])
        return (0, "undecided") if at == _NEVER else (at, first)

    def refuted_at(self, guess: float, *, up: bool) -> int:
        """The draws of the first look that refuted "at most `guess`" (`up`), or "at least", one of those that answers
        depend on; 0 while none has."""
        return self._first[0 if up else 1].get(int(np.searchsorted(self._guesses, guess)), 0)

    def interval(self, alpha: float) -> tuple[float, float]:
        """(low, high): the means that no look has refuted; outside in at most `alpha` of all runs.

        Raises ValueError where another `alpha` was said from the beginning.
        """
        if self.alpha not in (None, alpha):
            raise ValueError(f"this evidence was gathered for alpha = {self.alpha}, not {alpha}")
        if self.draws and self.draws == self.total:
            return self.mean, self.mean
        refuted = self._best >= math.log(2 / alpha)
        low = float(self._guesses[refuted[0]].max(initial=self.bounds.least))
        high = float(self._guesses[refuted[1]].min(initial=self.bounds.most))
        return min(low, high), max(low, high)

    def finding(self, alpha: float, margin: float) -> LookResult:
        """What is known of a difference: closer than `margin` to 0 is equal, else away from 0 is above or below. Where
        `alpha` was said from the beginning, the first answer stays."""
        low, high = self.interval(alpha)
        at, first = self.answered
        said = answer(low, high, margin) if self.alpha is None else first
        return LookResult(draws=self.draws, mean=self.mean, low=low, high=high, answer=said, at=at)


def left(guess: "float | Doubles", sums: "Doubles", drawn: "npt.NDArray[np.intp]", total: int) -> "Doubles":
    """The mean of what is left of `total` draws if that of all is `guess`; far beyond any bound where nothing is."""
    rest: Doubles = (total * guess - sums) / np.maximum(total - drawn, _SAME)
    return rest


def centre(sums: "Doubles", squares: "Doubles", turns: "int | Doubles") -> "Doubles":
    """By how much the earlier draws of each place of a turn were above those of all, as far as that is no chance: 0 in
    the first two turns, and nearly 0 where places differ by what their draws vary alone.

    sums, squares   of the draws of `turns` turns; shape (..., places)
    """
    count = np.maximum(turns, 2.0)
    means = sums / count
    within = np.maximum(0.0, squares / count - means**2).mean(axis=-1, keepdims=True) / (count - 1)
    between = np.maximum(means.var(axis=-1, keepdims=True), 1e-12)
    part = np.where(np.asarray(turns) < 2, 0.0, np.maximum(0.0, 1 - within / between))
    return np.asarray(part * (means - means.mean(axis=-1, keepdims=True)))


def answer(low: float, high: float, margin: float) -> Answer:
    """What an interval of a difference says. One that is within the margin says `equal`, even if it lacks 0."""
    if -margin <= low and high <= margin:
        return "equal"
    if low >= 0:
        return "above"
    return "below" if high <= 0 else "undecided"


def guesses(bounds: Bounds, margin: float | None) -> "Doubles":
    """The means that are tried, from least to most: an even grid, and what questions are about, 0 and the margin."""
    steps = GRID - 1
    grid = (np.arange(GRID) * bounds.most + np.arange(steps, -1, -1) * bounds.least) / steps
    return np.union1d(grid, _asked(bounds, margin))


def _asked(bounds: Bounds, margin: float | None) -> list[float]:
    """The means that an answer depends on."""
    asked = [] if margin is None else [-margin, 0.0, margin]
    return [one for one in asked if bounds.least < one < bounds.most]
