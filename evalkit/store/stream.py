"""The rows of a log, episode by episode: memory is that of the episodes in flight, whatever the run's length."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.store.arrays import coded, integers, take_rows
from evalkit.store.effect import Ints
from evalkit.store.layout import lay_out
from evalkit.store.segment import REMEDY, read_segment

_KEYS = ("episode", "take", "step")
_LOOKS = 6
_PAUSE_S = 0.05
"""How often, and after which pause, files that have moved are looked for again."""


def stream_facts(run: Path, episodes: Sequence[str], takes: Ints, start: Ints) -> Iterator[tuple[int, list[str]]]:
    """(place in `episodes`, facts of its steps as JSON), each episode once, as soon as its last row was read.

    episodes  their ids
    takes     (rows,) take of each row in effect that is wanted, by episode and step
    start     (episodes + 1,) where each episode's rows begin in `takes`: steps 0, 1, 2, ...

    Works while another process writes the run. Raises CorruptLogError for damaged files and for rows that are gone.
    """
    return _stream(run, ("facts",), lambda table: table.column("facts").to_pylist(), _Wanted(episodes, takes, start))


def stream_rows(
    run: Path, columns: Sequence[str], episodes: Sequence[str], takes: Ints, start: Ints
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(place in `episodes`, its rows in step order with these columns), likewise."""
    return _stream(run, columns, pa.Table.to_pylist, _Wanted(episodes, takes, start))


def _stream(
    run: Path, columns: Sequence[str], values: Callable[[pa.Table], list[Any]], wanted: "_Wanted"
) -> Iterator[tuple[int, list[Any]]]:
    read = tuple(dict.fromkeys((*_KEYS, *columns)))
    if not wanted.rows:
        return
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE_S)
        try:
            for segment in lay_out(run, "steps").segments:
                yield from wanted.take(read_segment(segment, read, ["episode"]), columns, values)
                if not wanted.rows:
                    return
        except FileNotFoundError:
            continue
    raise CorruptLogError(f"{run}: rows that the log held are gone while it is read: {wanted.rows:,}. {REMEDY}")


class _Wanted:
    """The rows that are still to be read, and the values of those of episodes that are not whole yet."""

    def __init__(self, episodes: Sequence[str], takes: Ints, start: Ints) -> None:
        self._numbers = {name: number for number, name in enumerate(episodes)}
        self._takes, self._start, self._count = takes, start, np.diff(start)
        self._left = self._count.copy()
        self._missing = np.ones(len(takes), np.bool_)
        self._held: dict[int, list[Any]] = {}
        self.rows = len(takes)

    def take(
        self, table: pa.Table, columns: Sequence[str], values: Callable[[pa.Table], list[Any]]
    ) -> Iterator[tuple[int, list[Any]]]:
        """The episodes that a segment's rows make whole, with the values that `values` makes of these columns."""
        if not table.num_rows:
            return
        names, codes = coded(table, "episode")
        numbers = np.array([self._numbers.get(name, -1) for name in names], np.int64)[codes]
        step, take = (np.concatenate([integers(one) for one in table.column(name).chunks]) for name in ("step", "take"))
        mine = np.flatnonzero((numbers >= 0) & (step < self._count[numbers]))
        place = self._start[numbers[mine]] + step[mine]
        fits = (self._takes[place] == take[mine]) & self._missing[place]
        mine, place = mine[fits], place[fits]
        if not len(mine):
            return
        self._missing[place] = False
        self.rows -= len(mine)
        texts = values(take_rows(table.select(list(columns)), mine))
        order = np.argsort(numbers[mine], kind="stable")
        found, first = np.unique(numbers[mine][order], return_index=True)
        bounds = [*first.tolist(), len(mine)]
        rows, steps = order.tolist(), step[mine].tolist()
        for i, number in enumerate(found.tolist()):
            held = self._held.setdefault(number, [None] * int(self._count[number]))
            for row in rows[bounds[i] : bounds[i + 1]]:
                held[steps[row]] = texts[row]
            self._left[number] -= bounds[i + 1] - bounds[i]
            if not self._left[number]:
                yield number, self._held.pop(number)
