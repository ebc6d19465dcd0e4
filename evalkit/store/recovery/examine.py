"""One file of steps, checked row by row: which rows are there, and which of them are unchanged.

If a page is damaged, its rows are not all given up: a step digest covers request, reply, facts and observation, so a
row is intact if its digest can be recomputed from the other pages.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from evalkit.digests import step_digest
from evalkit.errors import CorruptLogError
from evalkit.store.files.chain import problem_of
from evalkit.store.files.schema import FEW_VALUES, STEPS, steps_table
from evalkit.store.files.segment import (
    REMEDY,
    Segment,
    claim,
    mismatch,
    open_file,
    read_rows,
    read_segment,
    readable,
    unlike,
)
from evalkit.store.reading.arrays import are_steps, coded, integers, take_rows
from evalkit.store.reading.effect import Flags, Ints

# Compares a segment's footer with its pages: the page checksums do not cover the footer, so it must be checked
# separately.
#
# Readers trust a footer for the position of columns and, when they select rows, for minima and maxima. A changed
# footer may lead them to another column of the same type, or past rows. `read_segment` finds damage that cannot be
# read; this module finds damage that can.

_MAGIC = 4
_LENGTH = 4
"""Bytes before the first page, and after the footer in addition to the magic bytes."""


def footer_flaw(segment: Segment) -> str:
    """What is wrong with a readable segment; empty if nothing is.

    Raises CorruptLogError, FileNotFoundError, StorageError as `read_segment` does.
    """
    with open_file(segment) as file:
        return flaw_of_footer(segment, file, read_rows(segment, file))


def flaw_of_footer(segment: Segment, file: pq.ParquetFile, plain: pa.Table) -> str:
    """`footer_flaw` of a file that is open and read."""
    for name, column in _read_by_dictionary(segment, plain):
        if column.cast(pa.string()) != plain.column(name):
            return f"column {name} holds other values read by dictionary"
    size = segment.path.stat().st_size
    with readable(segment):
        return next(_misplaced(file, size, bare=segment.is_object), "") or next(_misjudged(file, plain), "")


def _read_by_dictionary(segment: Segment, plain: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """(name, column) of each that readers read by dictionary."""
    candidates = FEW_VALUES if segment.kind == "steps" else ()
    few = [name for name in candidates if pa.types.is_string(plain.schema.field(name).type)]
    if few:
        coded = read_segment(segment, few, few)
        yield from ((name, coded.column(name)) for name in few)


def _misplaced(file: pq.ParquetFile, size: int, *, bare: bool) -> Iterator[str]:
    """Columns that do not follow each other from the file's beginning to its footer, as they were written.

    `bare`: whether a file of no rows has nothing but its footer.
    """
    ends = size - file.metadata.serialized_size - _LENGTH - _MAGIC
    if not file.metadata.num_rows:
        if bare and ends != _MAGIC:
            yield "there are pages, but no rows"
        return  # what is there, if anything, are empty dictionaries
    upto, names, schema = _MAGIC, file.schema_arrow.names, file.schema
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name, begin = column.path_in_schema, column.data_page_offset
            if column.has_dictionary_page:
                begin = min(begin, column.dictionary_page_offset)
            if name != names[index]:
                yield f"column {names[index]} is called {name} in its footer"
            # pyarrow ends the process over statistics of a column that is of another type than the file's schema says.
            if column.physical_type != schema.column(index).physical_type:
                yield f"column {name} is of another type in its footer"
            if begin != upto or column.num_values != group.num_rows:
                yield f"column {name} is at another place than its footer says"
            upto += column.total_compressed_size
    if upto != ends:
        yield "the pages do not end where the footer begins"


def _misjudged(file: pq.ParquetFile, table: pa.Table) -> Iterator[str]:
    """Columns with statistics that do not agree with their values."""
    begin = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        rows = table.slice(begin, group.num_rows)
        begin += group.num_rows
        for index in range(group.num_columns):
            column = group.column(index)
            statistics = column.statistics if column.is_stats_set else None
            if statistics is None:
                continue
            values = rows.column(column.path_in_schema)
            nulls = statistics.has_null_count and statistics.null_count != values.null_count
            if nulls or (statistics.has_min_max and (_plain(statistics.min), _plain(statistics.max)) != _ends(values)):
                yield f"column {column.path_in_schema} is not what its footer says of it"


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any]:
    extremes = compute.min_max(values).as_py()
    return extremes["min"], extremes["max"]


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


COVERED = ("request_digest", "reply", "facts", "observation_digest", "step_digest")
"""What a step digest covers, in the order `digests.step_digest` takes it; the digest last."""
IDENTITY = ("episode", "take", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something in the log that was changed or is missing."""

    segment: str
    """Folder and file, within the run directory."""
    problem: str
    episode: str = ""
    """Empty: the flaw is about a file."""
    step: int = -1


@dataclass(slots=True, kw_only=True)
class Examined:
    """What a file of steps holds."""

    segment: Segment
    short: bool = False
    """Whether it has not as many rows as it says."""
    flaws: list[Flaw] = field(default_factory=list)
    episodes: list[str] = field(default_factory=list)
    """One a row; empty if it cannot be known."""
    take: list[Ints] = field(default_factory=list)
    step: list[Ints] = field(default_factory=list)
    sound: list[Flags] = field(default_factory=list)
    """By row group, like `take` and `step`: whether the row is what was written."""
    ask: list[Flags] = field(default_factory=list)
    """Likewise: whether it is an ask and not a step."""
    line: list[Ints] = field(default_factory=list)
    """Of asks."""
    nth: list[Ints] = field(default_factory=list)
    """Of an ask, its place among those of its step; of a step, how many it has."""


Look = Callable[[Segment, pa.Table], bool]
"""Takes a file that readers can read, and its rows; returns whether it has found each to agree with its digest."""


def examine(segment: Segment, look: Look | None = None) -> Examined:
    """Look at a file of steps, and have `look` see its rows, so that they are read once.

    Raises StorageError, FileNotFoundError, RunError (it has another format).
    """
    examined = Examined(segment=segment)
    try:
        with _opened(segment) as (strict, lax):
            problem = mismatch(segment, strict)
            examined.short = claim(strict).get("rows") != str(strict.metadata.num_rows)
            table = None if problem else _readable(segment, strict)
            proven = table is not None and look is not None and look(segment, table)
            begin = 0
            for number in range(strict.metadata.num_row_groups):
                group = _RowGroup(segment, strict, lax, number, None if table is None else table.slice(begin))
                begin += group.rows
                _examine_group(examined, group, proven=proven)
            if not problem and not examined.flaws:
                problem = footer_problem(segment) if table is None else _footer_problem(segment, strict, table)
    except CorruptLogError as flaw:
        problem = problem_of(segment, flaw) + ": none of its rows can be read"
    if problem:
        examined.flaws.insert(0, _of_file(examined, problem))
    return examined


def rows_of(examined: Examined, chosen: Flags, columns: Sequence[str] = tuple(STEPS.names)) -> pa.Table:
    """These rows of an examined file; those whose columns are damaged and covered by no digest are left out."""
    schema = pa.schema([STEPS.field(name) for name in columns])
    tables = [steps_table([]).select(columns)]
    if chosen.any():
        with _opened(examined.segment) as (strict, lax):
            begin = 0
            for number, sound in enumerate(examined.sound):
                rows = np.flatnonzero(chosen[begin : begin + len(sound)])
                begin += len(sound)
                group = _RowGroup(examined.segment, strict, lax, number) if len(rows) else None
                if group is not None and not (set(group.bad) - set(COVERED)) & set(columns):
                    table = pa.Table.from_arrays([group.column(name) for name in columns], schema=schema)
                    tables.append(take_rows(table, rows))
    return pa.concat_tables(tables)


def footer_problem(segment: Segment) -> str:
    """What is wrong with a file as readers read it, pages and footer together; empty if nothing is."""
    try:
        return footer_flaw(segment)
    except CorruptLogError as flaw:
        return problem_of(segment, flaw)


def _footer_problem(segment: Segment, file: pq.ParquetFile, table: pa.Table) -> str:
    try:
        return flaw_of_footer(segment, file, table)
    except CorruptLogError as flaw:
        return problem_of(segment, flaw)


def _readable(segment: Segment, file: pq.ParquetFile) -> pa.Table | None:
    """A file's rows as readers read them; None if they cannot."""
    try:
        return read_rows(segment, file)
    except CorruptLogError:
        return None


@contextmanager
def _opened(segment: Segment) -> Iterator[tuple[pq.ParquetFile, Callable[[], pq.ParquetFile]]]:
    """(the file, what opens it once more without verifying its pages, which only a damaged one needs)."""
    with open_file(segment) as strict, ExitStack() as more:
        yield strict, cache(lambda: more.enter_context(open_file(segment, verify=False)))


class _RowGroup:
    """A row group: columns read with their checksums verified, or else as they are."""

    def __init__(
        self,
        segment: Segment,
        strict: pq.ParquetFile,
        lax: Callable[[], pq.ParquetFile],
        number: int,
        read: pa.Table | None = None,
    ) -> None:
        """read: its rows, and what follows them, where the file could be read."""
        self._segment, self._lax, self._number = segment, lax, number
        self.rows: int = strict.metadata.row_group(number).num_rows
        if not 0 <= self.rows <= segment.path.stat().st_size:  # a row has a digest, so it takes more than a byte
            raise CorruptLogError(f"{segment.name} is damaged (in a group of {self.rows} rows). {REMEDY}")
        self.bad: list[str] = []
        """Columns that fail their checksum."""
        self._columns: dict[str, pa.ChunkedArray] = {}
        if read is not None:
            self._columns.update(zip(read.schema.names, read.slice(0, self.rows).columns, strict=True))
            return
        try:
            self._keep(strict, STEPS.names)
        except CorruptLogError:
            for name in STEPS.names:
                try:
                    self._keep(strict, [name])
                except CorruptLogError:
                    self.bad.append(name)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column; a bad one as far as it can be decoded. Raises CorruptLogError if it cannot."""
        if name not in self._columns:
            self._keep(self._lax(), [name])
        return self._columns[name]

    def _keep(self, file: pq.ParquetFile, names: Sequence[str]) -> None:
        with readable(self._segment):
            table = file.read_row_group(self._number, columns=list(names), use_threads=False)
            table.validate(full=True)
        if table.num_rows != self.rows or table.schema.names != list(names) or unlike(table, self._segment.kind):
            raise CorruptLogError(f"{self._segment.name} lacks rows or columns")
        self._columns.update(zip(table.schema.names, table.columns, strict=True))


def _examine_group(examined: Examined, group: _RowGroup, *, proven: bool) -> None:
    agrees = np.ones(group.rows, np.bool_) if proven else _agreement(group)
    lost_identity = [name for name in IDENTITY if name in group.bad]
    sound = agrees if not set(group.bad) - set(COVERED) else np.zeros(group.rows, np.bool_)
    examined.sound.append(sound)
    if lost_identity:
        examined.episodes += [""] * group.rows
        examined.take.append(np.zeros(group.rows, np.int64))
        examined.step.append(np.full(group.rows, -1, np.int64))
    else:
        names, codes = coded(pa.table({"episode": group.column("episode")}), "episode")
        examined.episodes += [names[code] for code in codes]
        examined.take.append(_whole(group, "take"))
        examined.step.append(_whole(group, "step"))
    _examine_asks(examined, group)
    examined.flaws += _group_flaws(examined, group, sound, lost_identity)


def _examine_asks(examined: Examined, group: _RowGroup) -> None:
    """Which rows are asks, and where they belong; where that cannot be read, no row is sound, and all count as
    steps."""
    none = np.zeros(group.rows, np.int64)
    columns = ("row_kind", "ask_line", "ask_n", "turn")
    steps = np.ones(group.rows, np.bool_)
    if not set(columns) & set(group.bad):
        steps = are_steps(pa.table({"row_kind": group.column("row_kind")}))
    examined.ask.append(~steps)
    if steps.all() and "ask_n" in group.bad:
        examined.line.append(none)
        examined.nth.append(none)
        return
    examined.line.append(none if "ask_line" in group.bad else _whole(group, "ask_line"))
    count = _whole(group, "ask_n")
    examined.nth.append(count if steps.all() else np.where(steps, count, _whole(group, "turn")))


def _agreement(group: _RowGroup) -> Flags:
    """Which rows agree with their digests; none if the columns cannot be decoded."""
    try:
        columns = [group.column(name).cast(_bytes_of(name)).to_pylist() for name in COVERED]
    except CorruptLogError:
        return np.zeros(group.rows, np.bool_)
    rows = zip(*columns, strict=True)
    return np.fromiter((step_digest(*row[:-1]) == row[-1] for row in rows), np.bool_, group.rows)


def _bytes_of(name: str) -> pa.DataType:
    """Texts as bytes: a damaged one may be no UTF-8."""
    return pa.binary() if name in ("reply", "facts") else STEPS.field(name).type


def _group_flaws(examined: Examined, group: _RowGroup, sound: Flags, lost_identity: Sequence[str]) -> Iterator[Flaw]:
    name = examined.segment.name
    lost = np.flatnonzero(~sound)
    what = f"column {', '.join(group.bad)} is damaged (page checksum)" if group.bad else ""
    if lost_identity:
        known = _known_episodes(group)
        yield Flaw(segment=name, problem=f"{what}: {group.rows} rows of {known} cannot be told apart")
        return
    if not len(lost):
        if what:
            yield Flaw(segment=name, problem=f"{what}, but every row agrees with its digest")
        return
    begin = len(examined.episodes) - group.rows
    lost_steps: dict[str, list[int]] = {}
    for row in lost:
        lost_steps.setdefault(examined.episodes[begin + row], []).append(int(examined.step[-1][row]))
    for episode, steps in lost_steps.items():
        problem = what or "does not agree with its digest: reply, facts or digests were changed"
        if len(steps) > 1:
            problem += f" ({len(steps)} rows of this episode, the first is named)"
        yield Flaw(segment=name, problem=problem, episode=episode, step=min(steps))


def _known_episodes(group: _RowGroup) -> str:
    if "episode" in group.bad:
        return "unknown episodes"
    names = sorted(set(group.column("episode").to_pylist()))
    return f"episodes {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _of_file(examined: Examined, problem: str) -> Flaw:
    """A flaw of a whole file, with its first row as an example of what it holds."""
    if not examined.episodes:
        return Flaw(segment=examined.segment.name, problem=problem)
    return Flaw(
        segment=examined.segment.name, problem=problem, episode=examined.episodes[0], step=int(examined.step[0][0])
    )


def _whole(group: _RowGroup, name: str) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *map(integers, group.column(name).chunks)])
