"""A suite as rows of a Parquet file: a large one of a user's, and every one that a run keeps.

Columns: `id`, `digest`, `stratum` and `line` (its JSON), all text. Rows lie in groups of up to `ROWS` and about
`BYTES`, so that one of them is read without the rest. The digest of a file is that of its rows, whatever compressed
them.
"""

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ENDING = ".parquet"
MOST_LINES = 10_000
"""Of a suite in a text file. A larger one is a file of rows."""
ROWS, BYTES = 256, 2**17
GROUPS_KEPT = 8
"""Groups of lines in memory, of each file."""


class SuiteRow(NamedTuple):
    """One instance."""

    id: str
    digest: str
    stratum: str
    line: str
    """JSON."""


class EncodedRows(NamedTuple):
    """A file's bytes, and what is known of them as a whole."""

    data: "pa.Buffer"
    digest: str
    strata: dict[str, int]
    """Instances by stratum, in the order of their first ones."""


def encode_rows(rows: Iterable[SuiteRow]) -> EncodedRows:
    """The file's bytes; one group of rows is in memory beside them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in SuiteRow._fields])
    sink, digest, strata = pa.BufferOutputStream(), hashlib.sha256(), dict[str, int]()
    settings: dict[str, Any] = {"use_dictionary": ["stratum"], "write_statistics": False, "store_schema": False}
    settings |= {"compression": "zstd", "compression_level": 1}
    with pq.ParquetWriter(sink, schema, **settings) as writer:
        for group in _groups(rows):
            digest.update(_bytes_of(group))
            for row in group:
                strata[row.stratum] = strata.get(row.stratum, 0) + 1
            columns = [pa.array(column, pa.string()) for column in zip(*group, strict=True)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROWS)
    return EncodedRows(sink.getvalue(), digest.hexdigest(), strata)


def _groups(rows: Iterable[SuiteRow]) -> Iterator[list[SuiteRow]]:
    group, size = list[SuiteRow](), 0
    for row in rows:
        group.append(row)
        size += len(row.line)
        if len(group) == ROWS or size >= BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _bytes_of(group: Iterable[SuiteRow]) -> bytes:
    """Of a group, what the digest is of: a line of JSON a row."""
    return b"".join(orjson.dumps(row) + b"\n" for row in map(list, group))


class SuiteRows:
    """A file of rows, open from when it is first read.

    Methods raise ValueError in words for what is no such file, and what opening it raises.
    """

    def __init__(self, source: "Callable[[], pa.NativeFile]") -> None:
        """`source`: opens the file."""
        self._source = source
        self._kept: OrderedDict[int, list[str]] = OrderedDict()

    def groups(self) -> Iterator[list[SuiteRow]]:
        """All rows in order, a group at a time."""
        for number in range(self._file.num_row_groups):
            columns = self._columns(number, SuiteRow._fields)
            yield [SuiteRow(*row) for row in zip(*columns, strict=True)]

    def line(self, place: int) -> str:
        """The line of one row."""
        number = bisect_right(self._ends, place)
        if number in self._kept:
            self._kept.move_to_end(number)
        else:
            (self._kept[number],) = self._columns(number, ("line",))
            if len(self._kept) > GROUPS_KEPT:
                self._kept.popitem(last=False)
        return self._kept[number][place - (self._ends[number - 1] if number else 0)]

    @cached_property
    def _file(self) -> "pq.ParquetFile":
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = self._source()
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
            kinds = {field.name: field.type for field in file.schema_arrow}
        except (pa.ArrowException, OSError) as flaw:
            raise ValueError(f"it is no Parquet file: {flaw}") from flaw
        for name in SuiteRow._fields:
            if kinds.get(name) not in (pa.string(), pa.large_string()):
                raise ValueError(f"it has no column {name!r} of text")
        return file

    @cached_property
    def _ends(self) -> list[int]:
        """By group: the rows up to its end."""
        file = self._file
        return list(accumulate(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)))

    def _columns(self, number: int, names: Iterable[str]) -> list[list[str]]:
        import pyarrow as pa

        wanted = list(names)
        try:
            table = self._file.read_row_group(number, wanted, use_threads=False)
            columns = [table.column(name) for name in wanted]
            if table.num_rows != self._file.metadata.row_group(number).num_rows:
                raise ValueError(f"row group {number}: it has {table.num_rows} rows, not what the footer says")
            if any(column.null_count for column in columns):
                raise ValueError(f"row group {number}: a value is missing")
            return [column.to_pylist() for column in columns]
        except (pa.ArrowException, OSError, KeyError) as flaw:
            raise ValueError(f"row group {number}: {flaw}") from flaw


def digest_of_rows(groups: Iterable[Iterable[SuiteRow]]) -> str:
    """The digest of a file by its rows."""
    digest = hashlib.sha256()
    for group in groups:
        digest.update(_bytes_of(group))
    return digest.hexdigest()
