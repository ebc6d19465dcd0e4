"""Differences of two sides that are looked at before they are complete: what holds at every look.

An ordinary p-value is of one look, fixed beforehand: who looks at 20 pairs, at 40, and stops when it is small calls two
like agents different far more often than 1 time in 20 (`docs/statistics.md` has the figures). So where a side is
partial, interval and p-value are those of a sequence (`sequential.py`) over the pairs that both sides have begun.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from evalkit.results.cells import Cell
from evalkit.stats.bootstrap import LEAST_INSTANCES, Interval
from evalkit.stats.contrasts import FEW, NO_DIFFERENCE, HypothesisTest
from evalkit.stats.intervals import NONE
from evalkit.stats.pairs import Change
from evalkit.stats.sequential import filled, sequence, sequential_p

BY = "betting"

Figures = Mapping[str, float]
"""By episode id: a measure of it, of those that have one."""

_Place = tuple[int, str, float | None]
"""(place in the admission order, stratum, the value; None if the episode has not ended)."""


def at_every_look(change: Change, cells: tuple[Cell, Cell], figures: tuple[Figures, Figures], width: float) -> Change:
    """The difference with interval and p-value that hold at every look, over first replicates that both have begun.

    What has not ended may be the worst or the best. The p-value is of the question whether a difference is as likely to
    have the other sign; greater ones than `width` or 1 count as 1. Where `width` is not finite there is no interval.
    """
    pairs = _joint(*map(_begun, cells, figures))
    most = width if math.isfinite(width) else 1.0
    low, high = ([_difference(*pair, most, unknown) for pair in pairs] for unknown in (-1.0, 1.0))
    # From -most..most to 0..1.
    ends = [filled([(gap / most + 1) / 2 for gap in side], 0.0) for side in (low, high)]
    if len(pairs) < LEAST_INSTANCES:
        return replace(
            change,
            difference=replace(change.difference, interval=None, method=NONE, why="too few have begun on both sides"),
            test=HypothesisTest(why=FEW),
            test_by=FEW,
            least_p=None,
        )
    bounds = sequence(ends[0], ends[1], [stratum for (_, stratum, _), _ in pairs]) if math.isfinite(width) else None
    difference = change.difference
    if bounds is not None:
        # It is of first replicates: the mean over all of them may lie elsewhere.
        interval = Interval(
            low=min(most * (2 * bounds[0] - 1), difference.mean), high=max(most * (2 * bounds[1] - 1), difference.mean)
        )
        difference = replace(difference, interval=interval, method=bounds[2], stratified=False, why="")
    elif math.isfinite(width):
        difference = replace(difference, interval=None, method=NONE, why="before a whole round of strata")
    else:
        difference = replace(difference, interval=None, method=NONE, why="no bounds: nothing holds at every look")
    if not any(left[2] != right[2] for left, right in pairs if None not in (left[2], right[2])):
        return replace(
            change, difference=difference, test=HypothesisTest(why=NO_DIFFERENCE), test_by=NO_DIFFERENCE, least_p=None
        )
    test = HypothesisTest(p=sequential_p(ends[0], ends[1], 0.5))
    return replace(change, difference=difference, test=test, test_by=BY, least_p=None)


def _joint(first: Mapping[str, _Place], second: Mapping[str, _Place]) -> list[tuple[_Place, _Place]]:
    """The pairs of instances that both sides have begun, in the order in which both have come to them."""
    names = [name for name in first if name in second]
    names.sort(key=lambda name: (max(first[name][0], second[name][0]), first[name][0]))
    return [(first[name], second[name]) for name in names]


def _begun(cell: Cell, figures: Figures) -> dict[str, _Place]:
    """By instance (digest): what has begun; without those that have ended and have no such value."""
    begun: dict[str, _Place] = {}
    refused = cell.refused_instances
    for index, (target, episode) in enumerate(cell.begun):
        measured = None if episode is None else figures.get(episode.id)
        if target.id not in refused and (episode is None or measured is not None):
            begun[target.digest] = index, target.stratum, measured
    return begun


def _difference(first: _Place, second: _Place, most: float, unknown: float) -> float:
    """The difference, within what can be; `unknown`: -1 for the least that it may be, 1 for the most."""
    if first[2] is None and second[2] is None:
        return unknown * most
    # A side that is known says something, where values go from 0 to `most`; others are cut there.
    worst, best = (0.0, most) if unknown < 0 else (most, 0.0)
    first_value = best if first[2] is None else first[2]
    second_value = worst if second[2] is None else second[2]
    return max(-most, min(most, second_value - first_value))
