"""The rows of a log, episode by episode: only those of which rows are still to come are in memory, whatever the run's
length."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.store.files.layout import lay_out
from evalkit.store.files.record import STEP
from evalkit.store.files.segment import REMEDY, read_segment
from evalkit.store.reading.arrays import coded, ints, of_kind, take_rows
from evalkit.store.reading.effect import Ints
from evalkit.store.reading.looking import LOOKS, PAUSE_S
from evalkit.store.reading.reader import may_hold

_KEYS = ("episode", "take", "step", "row_kind")


def stream_facts(run: Path, episodes: Sequence[str], takes: Ints, start: Ints) -> Iterator[tuple[int, list[str]]]:
    """(place in `episodes`, facts of its steps as JSON), each episode once, as soon as its last row was read.

    episodes  their ids
    takes     (rows,) take of each row in effect that is wanted, by episode and step
    start     (episodes + 1,) where each episode's rows begin in `takes`: steps 0, 1, 2, ...

    Works while another process writes the run. Raises CorruptLogError for damaged files and for rows that are gone.
    """
    wanted = _WantedRows(episodes, takes, start)
    yield from _stream(run, ("facts",), lambda table: table.column("facts").to_pylist(), wanted)


def stream_rows(
    run: Path, columns: Sequence[str], episodes: Sequence[str], takes: Ints, start: Ints
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(place in `episodes`, its rows in step order with these columns), likewise."""
    yield from _stream(run, columns, pa.Table.to_pylist, _WantedRows(episodes, takes, start))


def _stream(
    run: Path, columns: Sequence[str], values: Callable[[pa.Table], list[Any]], wanted: "_WantedRows"
) -> Iterator[tuple[int, list[Any]]]:
    read = tuple(dict.fromkeys((*_KEYS, *columns)))
    if not wanted.rows:
        return
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_S)
        try:
            for segment in lay_out(run, "steps").segments:
                if may_hold(segment, wanted.open):
                    yield from wanted.take(read_segment(segment, read, ["episode"]), columns, values)
                if not wanted.rows:
                    return
        except FileNotFoundError:
            continue
    raise CorruptLogError(f"{run}: {wanted.rows:,} rows of the log disappeared while it was read. {REMEDY}")


class _WantedRows:
    """The rows that are still to be read, and the values of those of episodes that are not whole yet."""

    def __init__(self, episodes: Sequence[str], takes: Ints, start: Ints) -> None:
        self._numbers = {name: number for number, name in enumerate(episodes)}
        self._takes, self._start, self._count = takes, start, np.diff(start)
        self._left = self._count.copy()
        self._missing = np.ones(len(takes), np.bool_)
        self._held: dict[int, list[Any]] = {}
        self._names = list(episodes)
        self.open = {name for name, number in self._numbers.items() if self._count[number]}
        """Episodes that are not whole yet."""
        self.rows = len(takes)

    def take(
        self, table: pa.Table, columns: Sequence[str], values: Callable[[pa.Table], list[Any]]
    ) -> Iterator[tuple[int, list[Any]]]:
        """The episodes that a segment's rows make whole, with the values that `values` makes of these columns."""
        if not table.num_rows:
            return
        names, codes = coded(table, "episode")
        numbers = np.array([self._numbers.get(name, -1) for name in names], np.int64)[codes]
        step, take = ints(table, "step"), ints(table, "take")
        chosen = np.flatnonzero((numbers >= 0) & (step < self._count[numbers]) & of_kind(table, STEP))
        positions = self._start[numbers[chosen]] + step[chosen]
        fits = (self._takes[positions] == take[chosen]) & self._missing[positions]
        chosen, positions = chosen[fits], positions[fits]
        if not len(chosen):
            return
        self._missing[positions] = False
        self.rows -= len(chosen)
        texts = values(take_rows(table.select(list(columns)), chosen))
        order = np.argsort(numbers[chosen], kind="stable")
        episodes, first = np.unique(numbers[chosen][order], return_index=True)
        bounds = [*first.tolist(), len(chosen)]
        rows, steps = order.tolist(), step[chosen].tolist()
        for i, number in enumerate(episodes.tolist()):
            collected = self._held.setdefault(number, [None] * int(self._count[number]))
            for row in rows[bounds[i] : bounds[i + 1]]:
                collected[steps[row]] = texts[row]
            self._left[number] -= bounds[i + 1] - bounds[i]
            if not self._left[number]:
                self.open.discard(self._names[number])
                yield number, self._held.pop(number)
