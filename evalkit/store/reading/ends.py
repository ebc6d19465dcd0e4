"""The state of episodes, folded from their rows: whether an episode has ended, and what scores need from it.

A row of take t at step s supersedes the rows of lower takes from the first step of take t on (`effect.py`). Rows are
folded in the order in which they were written, in which takes never go down: what a later session knows of an episode
before its own rows is one `Standing`. Sums are over all rows, including superseded ones, because they were paid for.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.store.files.columns import column_of
from evalkit.store.files.record import STEP
from evalkit.store.files.schema import ENDS
from evalkit.store.reading.arrays import coded, ints, take_rows, texts
from evalkit.store.reading.effect import Ints

PLACE = ("environment", "suite", "instance", "agent", "replicate")
SUMS = tuple(name for name in ENDS.names if name == "cost" or name.startswith("tokens_"))
UNKNOWN = -1
"""`steps` if rows lack a step or are not in order: to know them, all rows must be read."""

Recall = Callable[[Collection[str]], Mapping[str, Sequence[bytes]]]
"""By episode, the facts of the steps in effect, read back from the log."""


@dataclass(slots=True, kw_only=True)
class Standing:
    """One episode after some of the log's rows."""

    place: tuple[Any, ...]
    """As PLACE names it; empty until a row says it."""
    take: int = 0
    """The highest."""
    steps: int = 0
    """Rows in effect: the steps 0 to `steps` - 1; or UNKNOWN."""
    ending: str = ""
    requests: int = 0
    """All rows."""
    sums: list[int] = field(default_factory=lambda: [0] * len(SUMS))
    facts: list[bytes] | None = field(default_factory=list)
    """Those of the steps in effect; None: not all of them are at hand."""

    def follow(self, take: int, first: int, last: int) -> None:
        """Rows `first` to `last` of a take have come."""
        if take < self.take or first > self.steps or (take == self.take and first < self.steps):
            self.steps = UNKNOWN
        elif self.steps != UNKNOWN:
            if first == 0:
                self.facts = []
            elif first < self.steps:
                self.facts = None
            self.steps = last + 1
        self.take = max(self.take, take)


def fold(
    standings: dict[str, Standing],
    table: pa.Table,
    before: Callable[[str], Standing | None] = lambda _: None,
) -> list[str]:
    """Add rows of a file of steps, in the order in which they were written; returns their episodes, each once.

    `before`: how an episode stood that `standings` lacks, from earlier parts of the log; None for one that begins here.
    Of a table without facts none are kept. Time is that of a sort, and of a step in Python for each episode.
    """
    if not table.num_rows:
        return []
    touched: dict[str, None] = {}
    kinds, kind = _numbered(table, "row_kind") if "row_kind" in table.schema.names else ([STEP], np.zeros(0, np.int64))
    if kinds != [STEP]:
        steps = kind == kinds.index(STEP) if STEP in kinds else np.zeros(len(kind), np.bool_)
        _fold_asks(standings, take_rows(table, np.flatnonzero(~steps)), before, touched)
        table = take_rows(table, np.flatnonzero(steps))
    _fold_steps(standings, table, before, touched)
    return list(touched)


def _fold_asks(
    standings: dict[str, Standing], table: pa.Table, before: Callable[[str], Standing | None], touched: dict[str, None]
) -> None:
    """Add rows of asks: they were paid for, and move their episode no further."""
    names, codes = _numbered(table, "episode")
    sums = np.zeros((len(names), len(SUMS)), np.int64)
    np.add.at(sums, codes, np.stack([ints(table, name) for name in SUMS], axis=1))
    count, first = np.bincount(codes, minlength=len(names)), np.unique(codes, return_index=True)[1]
    places = _Places(table)
    for number, name in enumerate(names):
        standing = standings.get(name)
        if standing is None:
            standing = standings[name] = before(name) or Standing(place=())
        if not standing.place:
            standing.place = places.at(int(first[number]))
        standing.requests += int(count[number])
        standing.sums = [a + b for a, b in zip(standing.sums, sums[number].tolist(), strict=True)]
        touched[name] = None


def _fold_steps(
    standings: dict[str, Standing], table: pa.Table, before: Callable[[str], Standing | None], touched: dict[str, None]
) -> None:
    if not table.num_rows:
        return
    names, codes = _numbered(table, "episode")
    order = np.argsort(codes, kind="stable")
    codes, take, step = codes[order], ints(table, "take")[order], ints(table, "step")[order]
    new = np.flatnonzero((np.diff(codes) != 0) | (np.diff(take) != 0) | (np.diff(step) != 1)) + 1
    begin = np.concatenate([np.zeros(1, np.int64), new])
    end = np.concatenate([new, np.full(1, len(codes))])
    sums = np.stack([np.add.reduceat(ints(table, name)[order], begin) for name in SUMS], axis=1).tolist()
    endings, ending = _numbered(table, "ending")
    facts = texts(table, "facts") if "facts" in table.schema.names else None
    rows = zip(codes[begin], take[begin], step[begin], step[end - 1], begin, end, ending[order[end - 1]], strict=True)
    places = _Places(table)
    for number, row in enumerate(rows):
        code, level, first, last, upper, lower, word = map(int, row)
        name = names[code]
        standing = standings.get(name)
        if standing is None:
            standing = before(name) or Standing(place=(), steps=UNKNOWN if level else 0)
            standings[name] = standing
        if not standing.place:
            standing.place = places.at(int(order[upper]))
        standing.follow(level, first, last)
        standing.ending = endings[word]
        standing.requests += lower - upper
        standing.sums = [a + b for a, b in zip(standing.sums, sums[number], strict=True)]
        if facts is None or standing.steps == UNKNOWN:
            standing.facts = None
        elif standing.facts is not None:
            standing.facts += [facts[index] for index in order[upper:lower].tolist()]
        touched[name] = None


class _Places:
    """Single rows' columns of PLACE. A table of commits has a chunk for each: pyarrow would walk along all of them."""

    def __init__(self, table: pa.Table) -> None:
        self._chunks = table.select(PLACE).to_batches()
        self._ends = list(accumulate(map(len, self._chunks)))

    def at(self, row: int) -> tuple[Any, ...]:
        """What a row says."""
        number = bisect_right(self._ends, row)
        chunk = self._chunks[number]
        offset = row - self._ends[number] + len(chunk)
        return tuple(column[offset].as_py() for column in chunk.columns)


def _numbered(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    """As `coded`; plain texts are numbered without what pyarrow computes by, which takes 0.2 s to be there."""
    if pa.types.is_dictionary(table.column(name).type):
        return coded(table, name)
    numbers: dict[bytes, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in texts(table, name)], np.int64)
    return [value.decode() for value in numbers], codes


def settle(standings: dict[str, Standing], touched: Iterable[str], recall: Recall) -> pa.Table:
    """The rows of schema ENDS of these episodes; those that have ended are forgotten, with their facts."""
    names = list(touched)
    ended = [name for name in names if standings[name].ending]
    lacking = [name for name in ended if standings[name].facts is None and standings[name].steps != UNKNOWN]
    recalled = recall(lacking) if lacking else {}
    for name in lacking:
        standing = standings[name]
        standing.facts = list(recalled.get(name, ())[: standing.steps])
        if len(standing.facts) != standing.steps:
            standing.facts = None
    table = ends_table({name: standings[name] for name in names})
    for name in ended:
        del standings[name]
    return table


def ends_table(standings: Mapping[str, Standing]) -> pa.Table:
    """Standings as a table of schema ENDS."""
    rows = list(standings.values())
    columns: dict[str, Sequence[Any]] = {
        "episode": list(standings),
        **{name: [standing.place[number] for standing in rows] for number, name in enumerate(PLACE)},
        "take": [standing.take for standing in rows],
        "steps": [standing.steps for standing in rows],
        "ending": [standing.ending for standing in rows],
        "requests": [standing.requests for standing in rows],
        **{name: [standing.sums[number] for standing in rows] for number, name in enumerate(SUMS)},
        "facts": [_array(standing) for standing in rows],
    }
    arrays = [column_of(columns[field.name], field.type) for field in ENDS]
    return pa.Table.from_arrays(arrays, schema=ENDS)


def _array(standing: Standing) -> bytes | None:
    """The facts as a JSON array; None if they are not all there, or the episode continues."""
    if not standing.ending or standing.facts is None or standing.steps == UNKNOWN:
        return None
    return b"[" + b",".join(standing.facts) + b"]"


def read_standings(table: pa.Table) -> dict[str, Standing]:
    """Standings of rows of schema ENDS, facts left out; of several rows of an episode the last holds."""
    names = [name for name in table.schema.names if name != "facts"]
    return {
        row["episode"]: Standing(
            place=tuple(row[name] for name in PLACE),
            take=row["take"],
            steps=row["steps"],
            ending=row["ending"],
            requests=row["requests"],
            sums=[row[name] for name in SUMS],
            facts=None,
        )
        for row in table.select(names).to_pylist()
    }
