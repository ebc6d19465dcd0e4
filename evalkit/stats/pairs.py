"""Two sets of values on the same instances: how much they differ, how sure that is, and tests of many such pairs.

The difference of an instance is the difference of its means over replicates; instances that only one side has are left
out and counted. Welch's, Student's, the sign test and the exact permutation test are in `contrasts.py`.

Where one side has more replicates of an instance than the other, its mean varies less, and with scores that are not
symmetric the difference of two like agents is as little symmetric: signs must not be flipped then. The replicates are
dealt to the two sides again instead, within each instance; and the interval's width is that of as many replicates on
both sides as the smaller one has.

Sources: Fisher's permutation test by signs (Good 2005, "Permutation, Parametric and Bootstrap Tests of Hypotheses",
3.6; a drawn p-value counts what was observed as one draw: Phipson and Smyth 2010); McNemar (1947), exact; Holm (1979),
"A Simple Sequentially Rejective Multiple Test Procedure".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from evalkit.seeds import Stream
from evalkit.stats.contrasts import FEW, MANY, NO_DIFFERENCE, HypothesisTest, flips, signs
from evalkit.stats.intervals import ALPHA, Estimate, Interval, estimate

if TYPE_CHECKING:
    import numpy.typing as npt

    from evalkit.stats.intervals import Doubles

    Bytes = npt.NDArray[np.uint8]

LEAST_DRAWS = 9_999
DRAWS_A_TEST = 100
"""With m tests at least so many draws for each of them, so that m times the smallest p-value stays at 0.01."""

_SEED = 0
_BITS = 48
"""Signs taken from one draw of 53 bits."""
_SIGNS_AT_ONCE = 1 << 17
_SAME = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """What two sides share."""

    names: tuple[str, ...]
    """The shared instances, sorted."""
    first: Mapping[str, Sequence[float]]
    second: Mapping[str, Sequence[float]]
    """By shared instance: its replicates' values."""
    only_first: int
    only_second: int
    """Instances that one side alone has."""

    @property
    def even(self) -> bool:
        """Whether both sides have as many replicates of every instance."""
        return all(len(self.first[name]) == len(self.second[name]) for name in self.names)

    @property
    def thinned(self) -> dict[str, float]:
        """As `differences`, of as many first replicates of both sides as the smaller one has."""
        counts = {name: min(len(self.first[name]), len(self.second[name])) for name in self.names}
        return {name: _mean(self.second[name][:n]) - _mean(self.first[name][:n]) for name, n in counts.items()}

    @property
    def differences(self) -> dict[str, float]:
        """By instance: the second side's mean minus the first's."""
        return {name: _mean(self.second[name]) - _mean(self.first[name]) for name in self.names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How the second side differs from the first on the instances they share."""

    first: float
    second: float
    """Means over the shared instances."""
    difference: Estimate
    """Second minus first; its interval is the one that a claim rests on."""
    seen: Interval | None
    """The same of instances like those that were met."""
    test: HypothesisTest
    """The permutation test, two-sided: by signs, or by labels where one side has more replicates."""
    test_by: str
    """How: `all signs`, `drawn signs`, `drawn labels`, `betting`; or why there is no test."""
    least_p: float | None
    """The smallest p-value that so many pairs can have; None if there is no test."""
    signs: HypothesisTest
    """The exact sign test of who wins more often; of answers of yes and no it is McNemar's."""
    wins: int
    losses: int
    """Shared instances on which the second side has more, and less; the others are ties."""

    @property
    def shown(self) -> bool:
        """Whether the interval of the mean leaves out 0: what a claim about the mean needs beside a small p."""
        interval = self.difference.interval
        return interval is not None and (interval.low > 0 or interval.high < 0)


def pair(first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]]) -> Pairs:
    """The instances that both sides have; values by instance, at least one each."""
    names = tuple(sorted(first.keys() & second.keys()))
    return Pairs(
        names=names,
        first={name: first[name] for name in names},
        second={name: second[name] for name in names},
        only_first=len(first) - len(names),
        only_second=len(second) - len(names),
    )


def change(
    pairs: Pairs,
    *,
    place: Sequence[str],
    strata: Mapping[str, str] | None = None,
    width: float = math.inf,
    unmet: float | None = None,
    tests: int = 1,
    alpha: float = ALPHA,
) -> Change:
    """The difference between two sides with interval and tests.

    place   names the draws of a test
    strata  by instance: its stratum, as of `intervals.estimate`
    width   the greatest difference there can be: 1 of scores from 0 to 1
    unmet   the greatest that a pair unlike all that were met is taken to have, as of `intervals.estimate`; None:
            nothing is said of such pairs unless `width` is finite
    tests   how many such tests are made together: more of them need finer p-values
    alpha   of the interval

    Raises ValueError without a shared instance.
    """
    test, test_by = _test(pairs, place, tests)
    # Of as many replicates on both sides: the mean of more of them wins and loses by less, though not as often.
    thinned = pairs.thinned
    values = {name: [value] for name, value in thinned.items()}
    ends = None if unmet is None else (-unmet, unmet)
    estimated = estimate(values, strata=strata, least=-width, most=width, unmet=ends, alpha=alpha)
    least, ends = (0.0, None) if math.isfinite(width) else (-math.inf, None if unmet is None else (0.0, unmet))
    first, second = (
        estimate(one, strata=strata, least=least, most=width, unmet=ends, alpha=alpha)
        for one in (pairs.first, pairs.second)
    )
    whole = _mean(list(pairs.differences.values()))
    seen = _moved(estimated, whole, width).interval
    estimated = _with_unmet_sides(estimated, first, second, math.isfinite(width))
    return Change(
        first=first.mean,
        second=second.mean,
        difference=_moved(estimated, whole, width),
        seen=seen,
        test=test,
        test_by=test_by,
        least_p=None if test.p is None else least_p(pairs),
        signs=signs(list(thinned.values())),
        wins=sum(value > _SAME for value in thinned.values()),
        losses=sum(value < -_SAME for value in thinned.values()),
    )


def _with_unmet_sides(difference: Estimate, first: Estimate, second: Estimate, bounded: bool) -> Estimate:
    """The difference, as unsure of failures that neither side has met as the sides are, which fail apart.

    Each end of what was seen goes as far on as the two sides' own intervals go on for instances unlike all that were
    met, by Pythagoras: the method of variance estimates recovery (Zou and Donner 2008, "Construction of Confidence
    Limits about Effect Measures"), for that part alone. Of what was seen the pairs know more than the sides.
    """
    seen, wide = difference.interval, difference.cautious
    if seen is None or wide is None:
        return difference
    (below, above), (other_below, other_above) = (_beyond(side, bounded) for side in (first, second))
    low, high = seen.low - math.hypot(other_below, above), seen.high + math.hypot(other_above, below)
    return replace(difference, interval=Interval(low=min(wide.low, low), high=max(wide.high, high)))


def _beyond(side: Estimate, bounded: bool) -> tuple[float, float]:
    """How far its cautious interval goes (below, above) what was seen; of answers of yes and no pairs know enough."""
    answers = bounded and side.method == "alike" and side.mean in (0.0, 1.0)
    if side.cautious is None or side.interval is None or answers:
        return 0.0, 0.0
    return side.interval.low - side.cautious.low, side.cautious.high - side.interval.high


def _moved(estimated: Estimate, mean: float, width: float) -> Estimate:
    """The estimate around another mean, within what can be."""
    if estimated.interval is None or estimated.mean == mean:
        return replace(estimated, mean=mean)
    by = mean - estimated.mean
    low, high = max(-width, estimated.interval.low + by), min(width, estimated.interval.high + by)
    return replace(estimated, mean=mean, interval=Interval(low=min(low, mean), high=max(high, mean)))


def _test(pairs: Pairs, place: Sequence[str], tests: int) -> tuple[HypothesisTest, str]:
    """(the permutation test of the difference, how it was made or why it was not)."""
    if not pairs.even:
        result = relabelled(pairs, place=place, tests=tests)
        return result, result.why or "drawn labels"
    result, exact = sign_flips(list(pairs.differences.values()), place=place, tests=tests)
    return result, result.why or ("all signs" if exact else "drawn signs")


def least_p(pairs: Pairs) -> float:
    """The smallest p-value that the permutation test can give of so many pairs that differ."""
    ways = 1.0
    for name in pairs.names:
        first, second = pairs.first[name], pairs.second[name]
        even = len(first) == len(second)
        if not even and max(*first, *second) - min(*first, *second) > _SAME:
            ways *= math.comb(len(first) + len(second), len(first))
        elif even and abs(_mean(second) - _mean(first)) > _SAME:
            ways *= 2
        ways = min(ways, 1e300)
    return min(1.0, (2.0 if pairs.even else 1.0) / ways)


def relabelled(pairs: Pairs, *, place: Sequence[str], tests: int = 1) -> HypothesisTest:
    """The two-sided permutation test that deals the replicates of each instance to the two sides again.

    Instances with as many on both sides have their sides swapped. `LEAST_DRAWS` or more, drawn at `place`.
    """
    if len(pairs.names) < 2:
        return HypothesisTest(why=FEW)
    groups: dict[tuple[int, int], list[list[float]]] = {}
    for name in pairs.names:
        first, second = pairs.first[name], pairs.second[name]
        # Even sides are two blocks: nothing is assumed of replicates within one.
        pool = [_mean(first), _mean(second)] if len(first) == len(second) else [*first, *second]
        counts = (1, 1) if len(first) == len(second) else (len(first), len(second))
        groups.setdefault(counts, []).append(pool)
    pools = {counts: np.array(blocks) for counts, blocks in sorted(groups.items())}
    if all(float(np.ptp(pool, axis=1).max()) <= _SAME for pool in pools.values()):
        return HypothesisTest(why=NO_DIFFERENCE)
    draws = max(LEAST_DRAWS, DRAWS_A_TEST * tests - 1)
    observed = abs(math.fsum(pairs.differences.values()))
    least = observed - 1e-9 * sum(float(np.abs(pool).sum()) for pool in pools.values())
    stream, hits = Stream(_SEED, "report", "labels", *place), 0
    rows = max(1, _SIGNS_AT_ONCE // sum(pool.size for pool in pools.values()))
    for done in range(0, draws, rows):
        count = min(rows, draws - done)
        sums = sum(_dealt(pool, counts, stream, count) for counts, pool in pools.items())
        hits += int(np.count_nonzero(np.abs(sums) >= least))
    return HypothesisTest(p=max((1 + hits) / (1 + draws), least_p(pairs)))  # draws may miss some of the deals


def _dealt(pool: "Doubles", counts: tuple[int, int], stream: Stream, draws: int) -> "Doubles":
    """Sums over instances of (mean of the second side - mean of the first), shape (draws,), dealt again each time.

    pool    shape (instances, replicates of both sides)
    """
    first, second = counts
    words = stream.words(draws * pool.size).reshape(draws, *pool.shape)
    chosen = words <= np.partition(words, second - 1, axis=2)[..., second - 1, None]
    dealt = (pool * chosen).sum(axis=2)
    sums: Doubles = (dealt / second - (pool.sum(axis=1) - dealt) / first).sum(axis=1)
    return sums


def sign_flips(differences: Sequence[float], *, place: Sequence[str], tests: int = 1) -> tuple[HypothesisTest, bool]:
    """(the two-sided permutation test of paired differences, whether it is exact).

    Up to 20 differences other than 0 all signs are tried; beyond, `LEAST_DRAWS` or more, drawn at `place`.
    """
    result = flips(differences)
    if result.why != MANY:
        return result, result.why not in (FEW, NO_DIFFERENCE)
    sizes = np.array([abs(value) for value in differences if abs(value) > _SAME])
    draws = max(LEAST_DRAWS, DRAWS_A_TEST * tests - 1)
    least = abs(math.fsum(differences)) - 1e-9 * float(sizes.sum())
    stream = Stream(_SEED, "report", "signs", *place)
    rows = max(1, _SIGNS_AT_ONCE // len(sizes))
    hits = 0
    for first in range(0, draws, rows):
        count = min(rows, draws - first)
        up = _bits(stream, count * len(sizes)).reshape(count, len(sizes))
        hits += int(np.count_nonzero(np.abs(up @ (2 * sizes) - sizes.sum()) >= least))
    return HypothesisTest(p=(1 + hits) / (1 + draws)), False


def _bits(stream: Stream, n: int) -> "Doubles":
    """`n` random bits as 0.0 and 1.0, shape (n,)."""
    drawn = (stream.uniforms(-(-n // _BITS)) * 2.0**_BITS).astype("<u8")
    octets: Bytes = drawn.view(np.uint8).reshape(-1, 8)[:, : _BITS // 8]
    return np.unpackbits(octets)[:n].astype(np.float64)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values, in the order given; tests without a p-value are not counted.

    Calling everything with an adjusted value up to 0.05 a difference is wrong somewhere in at most 5 % of families.
    """
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    so_far = 0.0
    for done, (value, index) in enumerate(ranked):
        so_far = max(so_far, min(1.0, (len(ranked) - done) * value))
        adjusted[index] = so_far
    return adjusted


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
