"""Compares a segment's footer with its pages: the page checksums do not cover the footer, so it must be checked
separately.

Readers trust a footer for the position of columns and, when they select rows, for minima and maxima. A changed footer
may lead them to another column of the same type, or past rows. `read_segment` finds damage that cannot be read; this
module finds damage that can.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from evalkit.store.files.schema import FEW_VALUES
from evalkit.store.files.segment import Segment, open_file, read_rows, read_segment, readable

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
    for name, coded in _read_by_dictionary(segment, plain):
        if coded.cast(pa.string()) != plain.column(name):
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
