"""Which rows of a log are in effect, and whether they are all there. Arrays in, arrays out.

A row of take t at step s supersedes all rows of lower takes from the first step of take t on. A cut (`record.CUT`) does
so too, and is no step itself. The remaining rows of each episode must be the steps 0 to n-1, each once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The rows in effect."""

    order: Ints
    """(m,) row numbers of the rows in effect, by episode and step."""
    start: Ints
    """(episodes + 1,) where each episode's rows begin in `order`."""
    take: Ints
    """(episodes,) highest take among all rows; -1 where there is none."""
    gaps: tuple[tuple[int, int, str], ...]
    """(episode, step, `missing` or `twice`): the first flaw of each episode that has one."""


def rows_in_effect(episode: Ints, take: Ints, step: Ints, episodes: int, cut: Flags | None = None) -> Effect:
    """Sort out the rows of a log, in any order.

    episode  (n,)  number of the row's episode, 0..episodes-1
    take     (n,)  from 0
    step     (n,)  from 0
    cut      (n,)  whether the row is a cut; None: none is
    """
    highest = np.full(episodes, -1, np.int64)
    np.maximum.at(highest, episode, take)
    live = _not_superseded(episode, take, step, episodes)
    if cut is not None:
        live &= ~cut
    rows = np.flatnonzero(live)
    order = rows[np.lexsort((step[rows], episode[rows]))]
    start = np.searchsorted(episode[order], np.arange(episodes + 1))
    return Effect(order=order, start=start, take=highest, gaps=_gaps(episode[order], step[order], start))


def _not_superseded(episode: Ints, take: Ints, step: Ints, episodes: int) -> Flags:
    live = np.ones(len(episode), np.bool_)
    if not take.any():
        return live
    cut = np.full(episodes, np.iinfo(np.int64).max)
    for level in np.unique(take)[::-1]:
        rows = np.flatnonzero(take == level)
        live[rows] = step[rows] < cut[episode[rows]]
        np.minimum.at(cut, episode[rows], step[rows])
    return live


def void(episode: Ints, take: Ints, step: Ints, cuts: Iterable[tuple[int, int, int]]) -> Flags:
    """Which rows these cuts make void, each given as its episode, take and step."""
    gone = np.zeros(len(episode), np.bool_)
    for name, upto, first in cuts:
        gone |= (episode == name) & (take < upto) & (step >= first)
    return gone


def _gaps(episode: Ints, step: Ints, start: Ints) -> tuple[tuple[int, int, str], ...]:
    """`episode` and `step` sorted by both."""
    expected = np.arange(len(step)) - start[episode]
    wrong = np.flatnonzero(step != expected)
    if not len(wrong):
        return ()
    _, first = np.unique(episode[wrong], return_index=True)
    gaps = []
    for row in wrong[first]:
        twice = step[row] < expected[row]
        gaps.append((int(episode[row]), int(step[row] if twice else expected[row]), "twice" if twice else "missing"))
    return tuple(gaps)
