"""Counts a log's rows of steps again: how episodes ended, and the sums.

Files of ended episodes and running totals repeat this, so that readers need not read all rows; they must agree.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from evalkit.store.files.layout import began, journals, lay_out
from evalkit.store.files.schema import ENDS, steps_table
from evalkit.store.files.segment import LOG, Segment, read_segment
from evalkit.store.reading.arrays import coded, ints, steps_of, take_rows
from evalkit.store.reading.effect import rows_in_effect
from evalkit.store.reading.ends import PLACE, SUMS, UNKNOWN, Standing, fold, settle
from evalkit.store.reading.reader import read_ledger, scan_all
from evalkit.store.reading.sums import COLUMNS, read_totals, totals_of
from evalkit.store.reading.totals import CellTotals
from evalkit.store.recovery.correction import COUNTS
from evalkit.store.recovery.examine import Flaw

_FOLDED = ("episode", "take", "step", "ending", *PLACE, *SUMS, "facts", "row_kind")
_KEYS = ("episode", "take", "step", "row_kind")


@dataclass(frozen=True, slots=True)
class Part:
    """A file of steps, as far as its rows are to count."""

    segment: Segment
    read: Callable[[Sequence[str]], pa.Table]
    """These columns of them."""


def parts_of(run: Path) -> list[Part]:
    """All rows of a log, in order."""
    return [_whole(segment) for segment in lay_out(run, "steps").segments]


def _whole(segment: Segment) -> Part:
    return Part(segment, lambda columns: read_segment(segment, columns))


def ends_anew(parts: Sequence[Part], files: Sequence[Segment]) -> Iterator[tuple[Segment, pa.Table]]:
    """(file, its rows) of these files of ended episodes, from the steps, all in the log's order. In memory are the
    facts of episodes that continue, and where all others stand. Raises CorruptLogError for steps that cannot be
    read."""
    standings: dict[str, Standing] = {}
    ended: dict[str, Standing] = {}
    touched: dict[str, None] = {}
    left = [*files]

    def before(name: str) -> Standing | None:
        standing = ended.get(name)
        return None if standing is None else replace(standing, sums=[*standing.sums])

    for number, part in enumerate(parts):
        while left and _lies_before(left[0], part.segment):
            yield left.pop(0), _settled(standings, ended, touched, parts[:number])
        touched.update(dict.fromkeys(fold(standings, part.read(_FOLDED), before)))
        if not left or left[0].writer != part.segment.writer:
            _settled(standings, ended, touched, parts[: number + 1])
    for segment in left:
        yield segment, _settled(standings, ended, touched, parts)


def _lies_before(ends: Segment, steps: Segment) -> bool:
    """Whether a file of ends is at its end before a file of steps begins."""
    if ends.writer == steps.writer:
        return ends.last < steps.first
    return began(ends.writer) < began(steps.writer)


def _settled(
    standings: dict[str, Standing], ended: dict[str, Standing], touched: dict[str, None], parts: Sequence[Part]
) -> pa.Table:
    for name in touched:
        if standings[name].ending:
            ended[name] = replace(standings[name], facts=None)
    table = settle(standings, touched, lambda names: facts_of(parts, names))
    touched.clear()
    return table


def facts_of(parts: Sequence[Part], names: Collection[str]) -> Mapping[str, Sequence[bytes]]:
    """By episode, the facts of its steps in effect after these parts."""
    tables = [steps_table([]).select([*_KEYS, "facts"])]
    for part in parts:
        keys = part.read(_KEYS)
        episodes, codes = coded(keys, "episode")
        wanted = np.array([name in names for name in episodes], np.bool_)
        if wanted.any():
            tables.append(take_rows(part.read((*_KEYS, "facts")), np.flatnonzero(wanted[codes])))
    table = steps_of(pa.concat_tables(tables))
    episodes, codes = coded(table, "episode")
    effect = rows_in_effect(codes, ints(table, "take"), ints(table, "step"), len(episodes))
    facts = take_rows(table.select(["facts"]), effect.order).column("facts").cast(pa.binary()).to_pylist()
    return {name: facts[effect.start[number] : effect.start[number + 1]] for number, name in enumerate(episodes)}


def ends_flaws(run: Path) -> Iterator[Flaw]:
    """Where files of ended episodes say something else than the steps do, in a log that is whole otherwise."""
    files = [segment for segment in lay_out(run, "ends").segments if not segment.is_object]
    for segment, wanted in ends_anew(parts_of(run), files):
        for episode, last in odd_ends(read_segment(segment), wanted):
            yield Flaw(
                segment=segment.name,
                problem="its end does not agree with its steps",
                episode=episode,
                step=max(0, last),
            )


def odd_ends(written: pa.Table, wanted: pa.Table) -> Iterator[tuple[str, int]]:
    """(episode, its last step) where rows of ended episodes are not those that are wanted. Steps that did not come in
    order may be said to be unknown."""
    written_rows = {row["episode"]: row for row in written.to_pylist()}
    for row in wanted.to_pylist():
        written_row = written_rows.pop(row["episode"], None)
        if written_row is None or any(written_row[name] != row[name] for name in _certain(written_row, row)):
            yield row["episode"], row["steps"] - 1
    for name, row in written_rows.items():
        yield name, row["steps"] - 1


def _certain(row: Mapping[str, int], other: Mapping[str, int]) -> list[str]:
    unsure = {"steps", "facts"} if UNKNOWN in (row["steps"], other["steps"]) else set()
    return [name for name in ENDS.names if name not in unsure]


def totals_flaws(run: Path) -> Iterator[Flaw]:
    """Where running totals say something else than the rows do, in a log that is whole otherwise."""
    written = [journal for journal in journals(run) if journal.numbers]
    if not written:
        return  # a writer may have died before its first object
    recorded, wanted = read_totals(run), totals_of(scan_all(run, COLUMNS), read_ledger(run))
    where = f"{LOG}/{written[-1].writer}"
    for key in {**recorded.cells, **wanted.cells}:
        none = CellTotals(agent=key[0], suite=key[1])
        if _sums(recorded.cells.get(key, none)) != _sums(wanted.cells.get(key, none)):
            yield Flaw(segment=where, problem=f"the running totals of {':'.join(key)} do not agree with its rows")
    for name in {**recorded.workers, **wanted.workers}:
        if recorded.workers.get(name, 0) != wanted.workers.get(name, 0):
            yield Flaw(
                segment=where, problem=f"the running totals of the spending of {name} do not agree with its rows"
            )
    for name in {**recorded.accounts, **wanted.accounts}:
        if recorded.accounts.get(name) != wanted.accounts.get(name):
            yield Flaw(segment=where, problem=f"the running totals of the money of {name} do not agree with its rows")


def _sums(cell: CellTotals) -> tuple[object, ...]:
    """Counts and money, without times and what is rounded."""
    counts = [getattr(cell, name) for name in COUNTS]
    endings = {word: count for word, count in cell.endings.items() if count}
    return *counts, endings, {far: amounts for far, amounts in cell.going.items() if any(amounts)}
