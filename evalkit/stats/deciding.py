"""Which agent is better: questions about many agents, each answered as soon as its evidence suffices.

Every question is about a pair of agents and the evidence of their common draws (`evidence.py`): the longest stretch
from the beginning of the frozen order in which both have ended every episode. `alpha` is for all answers together and
is split before the first draw:

    all, or listed pairs    alpha / pairs each: no answer is wrong, except in a share alpha of runs
    baseline                alpha / (agents - 1), as there are that many pairs
    best                    alpha / (agents - 1), though all pairs are looked at

For `best` only intervals of pairs with the truly best agent b must hold. If they do, b never goes out, since an agent
goes out only when its interval beside another is below 0; and every agent that is left at the end is closer to b than
the margin, since their pair ended so. There are agents - 1 such pairs, whichever agent b is. So only the answer as a
whole is promised then, not each pair's (the argument of successive elimination: Even-Dar, Mannor and Mansour 2006, with
intervals that hold at every look in the place of their bounds).

A question may also be about single agents: where each one's own mean lies, to a half width. Such an agent counts as one
more thing that must hold, so alpha is split over pairs (or agents - 1) and these agents together. An answer about a
pair is the one that the first look would have given, had anyone looked after each turn; a half width is looked at every
`PRECISION_EVERY` draws. So answers do not depend on when anyone looked. Later draws narrow the intervals alone.

An agent without an open question needs no more episodes: agents leave as a whole. Which instances come next never
depends on a score, so the draws of the pairs that go on stay as they were frozen.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from evalkit.stats.evidence import DIFFERENCES, SCORES, Answer, Bounds, Evidence, LookResult, answer
from evalkit.stats.sequential import BETS, log_gains, mixed

if TYPE_CHECKING:
    from evalkit.stats.sequential import Doubles


Asked = Literal["all", "best", "baseline", "listed"]

Pair = tuple[str, str]
"""(first, second): a difference is the second's score less the first's."""

PRECISION_EVERY = 10
"""Draws, rounded up to whole turns."""
AHEAD = 32
"""Draws by which an agent may have begun more than the slowest of those that it is still compared with: so many at most
are wasted. Fewer would wait for chance alone where both are as fast (the table `lanes` of `bench/calibrations`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """What a run is to find out; frozen before its first draw."""

    agents: tuple[str, ...]
    asked: Asked
    pairs: tuple[Pair, ...]
    margin: float
    """On the scale of scores: agents shown to be closer are equal."""
    alpha: float
    turn: int = 1
    centred: bool = False
    total: int = 0
    lead: int = 0
    """All as of `Evidence`."""
    scores: Bounds = SCORES
    """Scores beyond are cut at its ends; differences and margin are shares of it."""
    precision: Mapping[str, float] = field(default_factory=dict)
    """By agent: the half width, on the scale of scores, to which its own mean is wanted."""

    @property
    def alpha_each(self) -> float:
        """Of each pair, and of each agent whose own mean is wanted."""
        pairs = len(self.agents) - 1 if self.asked == "best" else len(self.pairs)
        return self.alpha / (pairs + len(self.precision))

    @property
    def width(self) -> float:
        """Of the range of scores."""
        return self.scores.most - self.scores.least


def question(
    agents: Sequence[str],
    *,
    pairs: str | Sequence[Pair] = "all",
    margin: float,
    alpha: float,
    turn: int = 1,
    scores: Bounds = SCORES,
    precision: Mapping[str, float] = {},
) -> Inquiry:
    """The question about these agents: `pairs` is "all", "best", "baseline:NAME" or a list. Raises ValueError."""
    if len(agents) < (1 if precision and not pairs else 2) or len(set(agents)) < len(agents):
        raise ValueError("a comparison needs two agents or more, each named once")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is above 0 and below 1, not {alpha}")
    if not 0 < margin < scores.most - scores.least:
        raise ValueError(f"the margin is above 0 and below {scores.most - scores.least}, not {margin}")
    for agent, half in precision.items():
        if agent not in agents or not 0 < half < scores.most - scores.least:
            raise ValueError(
                f"a precision is of one of {', '.join(agents)}, above 0 and below {scores.most - scores.least}; "
                f"not of {agent}, {half}"
            )
    asked, chosen = _pairs(tuple(agents), pairs) if pairs or not precision else ("listed", ())
    return Inquiry(
        agents=tuple(agents),
        asked=asked,
        pairs=chosen,
        margin=margin,
        alpha=alpha,
        turn=turn,
        scores=scores,
        precision=dict(precision),
    )


def _pairs(agents: tuple[str, ...], pairs: str | Sequence[Pair]) -> tuple[Asked, tuple[Pair, ...]]:
    if isinstance(pairs, str) and pairs in {"all", "best"}:
        return "all" if pairs == "all" else "best", tuple(combinations(agents, 2))
    if isinstance(pairs, str):
        word, _, name = pairs.partition(":")
        if word != "baseline" or name not in agents:
            raise ValueError(f'pairs is "all", "best", "baseline:NAME" with one of {", ".join(agents)}, or a list')
        return "baseline", tuple((name, other) for other in agents if other != name)
    chosen = tuple((first, second) for first, second in pairs)
    for first, second in chosen:
        if first not in agents or second not in agents or first == second:
            raise ValueError(f"a pair is two of {', '.join(agents)}, not {first} and {second}")
    if not chosen or len({frozenset(pair) for pair in chosen}) < len(chosen):
        raise ValueError("a list of pairs has at least one, and each once")
    return "listed", chosen


class Contest:
    """The evidence of all pairs of a question, and who still plays for it."""

    __slots__ = ("_evidence", "_findings", "_known", "_means", "question")

    def __init__(self, question: Inquiry) -> None:
        self.question = question
        margin, each = question.margin / question.width, question.alpha_each
        begun = partial(Evidence, turn=question.turn, alpha=each, centred=question.centred)
        begun = partial(begun, total=question.total, lead=question.lead)
        self._evidence = {pair: begun(bounds=DIFFERENCES, margin=margin) for pair in question.pairs}
        self._means = {agent: begun(bounds=SCORES) for agent in question.precision}
        self._findings: dict[Pair, LookResult] = {}
        self._known: dict[str, LookResult] = {}

    def look(self, scores: Mapping[str, Sequence[float | None]]) -> list[Pair]:
        """Read what has come since the last look; the pairs that are answered now and were open before.

        scores  by agent: its score at each place of the frozen order, None where its episode has not ended. What an
                earlier look has read is not read again.
        """
        open_before = self.open
        for pair, evidence in self._evidence.items():
            new = self._draws(evidence.seen, scores[pair[0]], scores[pair[1]])
            if new or pair not in self._findings:
                evidence.add(new)
                self._findings[pair] = self._scaled(evidence)
        for agent, evidence in self._means.items():
            new = self._draws(evidence.seen, scores[agent])
            if new or agent not in self._known:
                self._known[agent] = self._measured(agent, evidence, new)
        still = set(self.open)
        return [pair for pair in open_before if pair not in still]

    def _draws(self, start: int, *sides: Sequence[float | None]) -> list[float]:
        """Scores of one side, or differences of two, from a place on up to the first that is not known; 1 for the whole
        range."""
        share, found = self.question.scores.share, []
        for scores in zip(*(side[start:] for side in sides), strict=False):
            known = [share(score) for score in scores if score is not None]
            if len(known) < len(sides):
                break
            found.append(known[-1] - (known[0] if len(sides) == 2 else 0.0))
        return found

    def _scaled(self, evidence: Evidence) -> LookResult:
        width = self.question.width
        found = evidence.finding(self.question.alpha_each, self.question.margin / width)
        return replace(found, mean=found.mean * width, low=found.low * width, high=found.high * width)

    def _measured(self, agent: str, evidence: Evidence, new: Sequence[float]) -> LookResult:
        """An agent's own mean with its new scores; `at` is not 0 once it is known to the half width."""
        asked, least, width = self.question, self.question.scores.least, self.question.width
        every = -(-PRECISION_EVERY // asked.turn) * asked.turn
        at = self._known[agent].at if agent in self._known else 0
        place = 0
        while place < len(new) or not new:
            step = every - evidence.seen % every
            evidence.add(new[place : place + step])
            place += step
            low, high = evidence.interval(asked.alpha_each)
            looked = evidence.seen % every == 0 or evidence.seen == asked.total
            if not at and looked and high - low <= 2 * asked.precision[agent] / width:
                at = evidence.draws
            if not new:
                break
        low, high = evidence.interval(asked.alpha_each)
        return LookResult(
            draws=evidence.draws,
            mean=least + evidence.mean * width,
            low=least + low * width,
            high=least + high * width,
            answer="undecided",
            at=at,
        )

    @property
    def findings(self) -> Mapping[Pair, LookResult]:
        """The last finding of each pair that was looked at, on the scale of scores."""
        return self._findings

    @property
    def known(self) -> Mapping[str, LookResult]:
        """By agent whose own mean is wanted: where it lies; `at` is not 0 once the half width is reached."""
        return self._known

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The agents whose own mean is not known to the half width yet."""
        return tuple(
            agent for agent in self.question.precision if agent not in self._known or not self._known[agent].at
        )

    @property
    def open(self) -> tuple[Pair, ...]:
        """The pairs whose answer is still sought."""
        left = self.left
        return tuple(
            pair
            for pair in self.question.pairs
            if (pair not in self._findings or self._findings[pair].answer == "undecided")
            and (self.question.asked != "best" or (pair[0] in left and pair[1] in left))
        )

    @property
    def left(self) -> frozenset[str]:
        """The agents that may be the best one: those that are below no other. For other questions all."""
        if self.question.asked != "best":
            return frozenset(self.question.agents)
        out = {
            pair[1] if found.answer == "below" else pair[0]
            for pair, found in self._findings.items()
            if found.answer in ("above", "below")
        }
        return frozenset(self.question.agents) - out

    @property
    def playing(self) -> frozenset[str]:
        """The agents that have an open question: no other needs a further episode."""
        return frozenset(agent for pair in self.open for agent in pair) | frozenset(self.unmeasured)


# How many draws an answer will take, told before the first one; for a difference and a spread that are supposed.
#
# After n draws the log of the bet b is about normal, with mean n g_b and variance n v_b, where g_b and v_b are those of
# log(1 + b (D - m) / (m + 1)) (`evidence.py`). All bets watch the same draws and move together, so there is about one
# normal Z, the luck of the second side, with
#
#     M against "at most m":      mean over b of exp(n g_b + Z sqrt(n v_b))
#     M against "at least m":     mean over b of exp(n g_b - Z sqrt(n v_b))
#
# and an answer has been given where Z is so far up, down or in the middle that its refusals reach 2 / alpha. Answers
# that came earlier and would not be given any more are left out, so this is somewhat too long, mostly by less than a
# quarter. Where the draws are N in all and it is their mean that is sought, the n-th sees the others' mean, so gains
# D - m count N L / n times on average and their variance 1 + N L^2 / n times, with L = log(N / (N - n)). What is said
# here is a forecast and promises nothing; the guarantee of an answer does not rest on it.

MOST = 10_000_000
"""Draws beyond which nothing is forecast."""

_FAR, _CLOSE = 9.0, 1e-4
"""Standard deviations of luck: the most that are looked at, and how exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupposedDifference:
    """A difference as draws are supposed to have it."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the draws."""
        return math.fsum(value * weight for value, weight in zip(self.values, self.weights, strict=True))


def graded(difference: float, spread: float) -> SupposedDifference:
    """Draws around a difference with a standard deviation. Raises ValueError if they would leave -1 to 1."""
    if not (spread > 0 and abs(difference) + spread <= 1):
        raise ValueError(f"no draws from -1 to 1 are {difference} on average with a spread of {spread}")
    return SupposedDifference(values=(difference - spread, difference + spread), weights=(0.5, 0.5))


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


def reach(supposed: SupposedDifference, *, margin: float, alpha: float, total: int = 0) -> Reach:
    """When such draws are known to differ from 0, or to be closer to it than the margin; whichever comes first.

    alpha   of this question alone
    total   as of `Evidence`
    """
    half, nine_tenths = (_draws(supposed, margin, alpha, total, share) for share in (0.5, 0.9))
    if math.isinf(nine_tenths):
        return Reach(answer="undecided", half=half, nine_tenths=nine_tenths)
    shares = answered(supposed, int(nine_tenths), margin=margin, alpha=alpha, total=total)
    likeliest: Answer = max(shares, key=lambda one: shares[one])
    return Reach(answer=likeliest, half=half, nine_tenths=nine_tenths)


def answered(
    supposed: SupposedDifference, draws: int, *, margin: float, alpha: float, total: int = 0
) -> dict[Answer, float]:
    """The share of all runs that has each answer after so many draws."""
    if draws < 1:
        return {"above": 0.0, "below": 0.0, "equal": 0.0}
    if 0 < total <= draws:
        said = answer(supposed.mean, supposed.mean, margin)
        return {"above": float(said == "above"), "below": float(said == "below"), "equal": float(said == "equal")}
    rest = math.log(total / (total - draws)) if total else 0.0
    times, noise = total / draws * rest if total else 1.0, math.sqrt(1 + total / draws * rest**2)
    # In units of Z: how lucky the second side must have been for each refusal.
    above = _needed(_bets(supposed, 0.0, times, up=True), draws, alpha)
    below = -_needed(_bets(supposed, 0.0, times, up=False), draws, alpha)
    low = _needed(_bets(supposed, -margin, times, up=True), draws, alpha)
    high = -_needed(_bets(supposed, margin, times, up=False), draws, alpha)
    phi = NormalDist(0.0, noise).cdf
    equal = max(0.0, phi(high) - phi(low))
    if equal > 0.0:
        above, below = max(above, high), min(below, low)
    return {"above": 1 - phi(above), "below": phi(below), "equal": equal}


def _bets(supposed: SupposedDifference, guess: float, times: float, *, up: bool) -> "tuple[Doubles, Doubles]":
    """(mean, standard deviation) of what one draw adds to the log of each bet; each of shape (bets,)."""
    moved = np.array(supposed.values) + (times - 1) * (supposed.mean - guess)
    values = (np.clip(moved, -1.0, 1.0) + 1) / 2
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


def _draws(supposed: SupposedDifference, margin: float, alpha: float, total: int, share: float) -> float:
    """Draws after which this share of runs has an answer."""

    def enough(draws: int) -> bool:
        return sum(answered(supposed, draws, margin=margin, alpha=alpha, total=total).values()) >= share

    most = 1
    while not enough(most):
        most *= 2
        if most > MOST:
            return math.inf
    return float(bisect_left(range(most), True, most // 2 + 1, key=enough))
