"""A log's steps as DuckDB reads them: through evalkit's own reader, so that DuckDB itself never opens a file.

Thereby a query can be cut off from the disk and the network altogether, damage is noticed and named as everywhere
else (page checksums, columns, what a file says of itself), and what a path is made of has no meaning. Of each file only
the columns that a query needs are read, one file at a time.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from evalkit.errors import EvalkitError
from evalkit.store.files.schema import STEPS, conform
from evalkit.store.files.segment import Segment, read_segment


class LogRows(ds.Dataset):  # type: ignore[misc]
    """All rows of these segments, in the log's order: DuckDB asks for `schema`, and for a `scanner` in each scan."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        # Without the constructor of `Dataset`, which refuses to be called: this one is not an Arrow object inside.
        self._segments = segments
        self.flaw: EvalkitError | FileNotFoundError | None = None
        """Why the last scan ended early: DuckDB keeps no more of an error than its words."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of `STEPS`."""
        return STEPS

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None) -> ds.Scanner:  # noqa: A002 (DuckDB's word)
        """The rows that fit an expression, with these columns; None: all."""
        wanted = STEPS.names if columns is None else list(columns)
        # An expression does not tell its columns, but its text holds their names: at worst one too many is read.
        words = set() if filter is None else set(re.findall(r"\w+", str(filter)))
        read = [name for name in STEPS.names if name in wanted or name in words] or STEPS.names[:1]
        schema = pa.schema([STEPS.field(name) for name in read])
        return ds.Scanner.from_batches(self._batches(schema), schema=schema, columns=wanted, filter=filter)

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for segment in self._segments:
                yield from conform(read_segment(segment, schema.names), schema).to_batches()
        except (EvalkitError, FileNotFoundError) as flaw:
            self.flaw = flaw
            raise
