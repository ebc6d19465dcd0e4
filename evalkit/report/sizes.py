"""How many more instances, or replicates, an interval of a wanted half width takes.

A score varies between instances and, with replicates, within one. With n instances of r replicates the mean's variance
is (between + within / r) / n, so replicates alone narrow an interval only so far. Both are estimated by the one-way
analysis of variance (Searle, Casella and McCulloch 1992, "Variance Components", 3.6), within strata where there are
some.

A plan is as certain as the spread that it was made from, which a few instances show badly. So each plan has a range:
from the 10th to the 90th percentile of the variance that may be behind the one that was seen. Who plays as many
instances as the middle says reaches the width in about half of the cases; with the upper end in about nine of ten.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.report import queries
from evalkit.report.run_data import RunData
from evalkit.report.scores import cell_table, scores_by_instance, strata_of
from evalkit.report.tables import Column, Table, columns_of
from evalkit.stats.bootstrap import LEAST_INSTANCES, LEVEL, instance_means
from evalkit.stats.intervals import known_freedom

ASSURED = 0.9
"""The chance with which the upper end of a plan's range is enough."""

MOST = 10_000_000
"""More instances than this are not counted out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What an estimate has, and what a half width would take."""

    instances: int
    replicates: float
    """An instance, the harmonic mean."""
    between: float
    """Standard deviation of instances' true means."""
    within: float | None
    """Standard deviation between replicates of an instance; None if no instance has two."""
    half_width: float
    """Of Student's 95 % interval as it stands."""
    more_instances: int | None
    """Further instances with as many replicates each; 0 if it is narrow enough; None beyond `MOST`."""
    more_replicates: int | None
    """Further replicates of every instance instead; None if no number of them would do, or where it is not known."""
    more_range: tuple[int | None, int | None]
    """Further instances at the 10th and at the 90th percentile of the variance; None beyond `MOST`."""


def size(
    replicates: Mapping[str, Sequence[float]], wanted: float, strata: Mapping[str, str] | None = None
) -> Size | None:
    """What a 95 % interval of +- `wanted` would take; None with fewer than 3 instances or without any spread.

    replicates  by instance: its replicates' values, at least one
    strata      by instance: its stratum, as of `bootstrap.mean_interval`

    Raises ValueError unless `wanted` is above 0.
    """
    if not wanted > 0:
        raise ValueError(f"a half width is above 0, not {wanted}")
    if len(replicates) < LEAST_INSTANCES:
        return None
    groups = [group.tolist() for group in instance_means(replicates, strata)]
    n, free = len(replicates), sum(len(group) - 1 for group in groups)
    variance = math.fsum(_squares(group) for group in groups) / free
    within = _within(replicates)
    if variance == 0 and not within:
        return None
    r = n / math.fsum(1 / len(values) for values in replicates.values())
    between = max(0.0, variance - (within or 0.0) / r)
    lost = n - free
    return Size(
        instances=n,
        replicates=r,
        between=math.sqrt(between),
        within=None if within is None else math.sqrt(within),
        half_width=half_width(variance, n, lost),
        more_instances=_more_instances(variance, n, lost, wanted),
        more_replicates=None if within is None else _more_replicates(between, within, n, r, lost, wanted),
        more_range=_range(groups, variance, n, lost, wanted),
    )


def _range(
    groups: Sequence[Sequence[float]], variance: float, n: int, lost: int, wanted: float
) -> tuple[int | None, int | None]:
    """Further instances for the least and the greatest variance that is likely (80 %), given the one that was seen."""
    from scipy.special import chdtri

    if variance == 0:
        return (0, 0)
    free = known_freedom([[value - math.fsum(group) / len(group) for value in group] for group in groups])
    # chdtri takes the chance of more: the upper tail of chi-squared.
    low, high = (variance * free / float(chdtri(free, tail)) for tail in ((1 - ASSURED), ASSURED))
    return _more_instances(low, n, lost, wanted), _more_instances(high, n, lost, wanted)


def half_width(variance: float, n: int, lost: int = 1) -> float:
    """Of Student's 95 % interval of the mean of `n` instances; `lost` degrees of freedom: one a stratum."""
    from scipy.special import stdtrit

    return float(stdtrit(n - lost, (1 + LEVEL) / 2)) * math.sqrt(variance / n)


def _within(replicates: Mapping[str, Sequence[float]]) -> float | None:
    """The variance between replicates of an instance, pooled."""
    free = sum(len(values) - 1 for values in replicates.values())
    return math.fsum(_squares(values) for values in replicates.values()) / free if free else None


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _more_instances(variance: float, n: int, lost: int, wanted: float) -> int | None:
    # The half width falls with n: halving finds the first that is narrow enough.
    if half_width(variance, n, lost) <= wanted:
        return 0
    if half_width(variance, MOST, lost) > wanted:
        return None
    low, high = n, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(variance, middle, lost) <= wanted else (middle, high)
    return high - n


def _more_replicates(between: float, within: float, n: int, r: float, lost: int, wanted: float) -> int | None:
    if half_width(between + within / r, n, lost) <= wanted:
        return 0
    room = (wanted / half_width(1.0, n, lost)) ** 2 - between
    return math.ceil(within / room - r) if room > 0 else None


def sizes_table(source: RunData, wanted: float) -> Table:
    """Suite by agent: how many more instances or replicates the mean score takes for +- `wanted` (0.05: 5 points)."""
    cells = source.cells
    methods = {
        "half_width, between, within, more_instances, more_low, more_high, more_replicates": (
            "evalkit.report.sizes.size over select agent, suite, instance, stratum, score from episodes where used"
        )
    }
    figures = (queries.inside("episodes", "count(*)"), queries.derived("instances", "count(instance)"))
    spread = "standard deviation, points"
    return cell_table(
        source,
        cells,
        name="sizes",
        title=f"What an interval of ± {100 * wanted:g} would take",
        query=queries.by_cell(cells, figures, keep="", methods=methods),
        more=lambda cell, _: _figures(size(scores_by_instance(cell), wanted, strata_of(cell))),
        columns=(
            Column(key="instances", title="Instances", kind="count"),
            Column(key="half_width", title="Now ±", kind="score", unit="points of score"),
            *columns_of("score", spread, between="Between", within="Within"),
            Column(key="more_instances", title="More instances", kind="count"),
            Column(key="more_low", title="from", kind="count", unit="instances, 10th percentile"),
            Column(key="more_high", title="to", kind="count", unit="instances, 90th percentile"),
            Column(key="more_replicates", title="or replicates", kind="count", unit="further ones per instance"),
        ),
        notes=lambda _: (
            f"half width {100 * wanted:g} points of Student's 95 % interval of the mean, at the spread seen so far",
            "more instances: enough in about half of the cases, because the spread is itself an estimate; from, to: "
            "the 10th and 90th percentile; the upper end is enough in about nine of ten cases",
            "between: the spread between instances; within: between the replicates of one; if the first alone is too "
            "wide, no number of replicates is enough",
        ),
    )


def _figures(size: Size | None) -> dict[str, Any]:
    if size is None:
        return {}
    return {
        "half_width": 100 * size.half_width,
        "between": 100 * size.between,
        "within": None if size.within is None else 100 * size.within,
        "more_instances": size.more_instances,
        "more_low": size.more_range[0],
        "more_high": size.more_range[1],
        "more_replicates": size.more_replicates,
    }
