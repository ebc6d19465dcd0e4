"""A file of the log: one immutable Parquet file, whose name and metadata say which part of the log it is.

    log/WRITER/000000012.parquet                      what the writer's commit 12 made durable: steps, money, totals
    steps/WRITER-000000000-000000011.parquet          steps of its commits 0 to 11
    ledger/WRITER-000000000-000000011.parquet         their money rows
    ends/WRITER-000000000-000000011.parquet           the episodes that ended in them, and those that continued

Name and metadata must agree, so a swapped or renamed file is noticed and can be named; `layout.py` puts files in order.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from evalkit import __version__
from evalkit.errors import CorruptLogError, RunError
from evalkit.store.bucket import BucketPath
from evalkit.store.disk import storage_errors
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import (
    ENDS,
    FEW_VALUES,
    FORMAT,
    LEDGER,
    STEPS,
    ledger_records,
    ledger_table,
    no_rows,
)
from evalkit.store.json_text import other_format

Kind = Literal["steps", "ledger", "ends"]
KINDS: tuple[Kind, ...] = ("steps", "ledger", "ends")

LOG = "log"
"""Folder of the journals. Compacted files lie in a folder with the name of their kind."""
SCHEMAS: Mapping[Kind, pa.Schema] = {"steps": STEPS, "ledger": LEDGER, "ends": ENDS}
_FIELDS = {kind: {field.name: (field.type, field.nullable) for field in schema} for kind, schema in SCHEMAS.items()}
"""Of each kind, by column: its type, and whether it may have no value. A schema takes long to look a column up."""

COMMIT, CLOSE, SEAL = "commit", "close", "seal"
"""Kinds of objects of a journal."""

ROW_GROUP = 4096
"""Rows of a compacted file that can be lost with one damaged page."""
_FACTS_GROUP = 256
"""The same for a file of ended episodes, which has longer rows."""

REMEDY = "`evalkit verify` says what is affected; `evalkit run --repair` goes on without it."


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one kind in one file of the log, by the file's name."""

    kind: Kind
    path: Path
    first: int
    last: int
    writer: str
    """The writer of its journal."""

    @property
    def name(self) -> str:
        """The path within the run, for messages."""
        above, folder, file = self._ends()
        return f"{LOG}/{self.writer}/{file}" if above == LOG else f"{folder}/{file}"

    @property
    def is_object(self) -> bool:
        """Whether it is an object of a journal, which contains rows of all kinds; if not, it is a compacted file."""
        return self._ends()[1] == self.writer

    def _ends(self) -> list[str]:
        """The last three parts of its path. `Path.parent` makes a new path each time."""
        return f"//{self.path}".rsplit("/", 3)[1:]


def object_name(number: int) -> str:
    """File name of an object of a journal, within its writer's folder."""
    return f"{number:09d}.parquet"


def compacted_name(writer: str, first: int, last: int) -> str:
    """File name of a compacted range."""
    return f"{writer}-{first:09d}-{last:09d}.parquet"


NUMBER = re.compile(r"(\d{9,})\.parquet")
"""Names of objects."""
WRITER = re.compile(r"[0-9a-f]{8}-[A-Za-z0-9_.-]*-\d+-\d+\.\d{3}")
RANGE = re.compile(rf"({WRITER.pattern})-(\d{{9,}})-(\d{{9,}})\.parquet")


def digest_of(data: bytes | memoryview) -> str:
    """The digest of a file in other files: SHA-256 over all its bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


# Writing.


def encode_object(table: pa.Table | None, facts: Mapping[str, str]) -> pa.Buffer:
    """An object's bytes: step rows, and `facts` in the footer (see `journal.py`).

    A commit is written for speed: no dictionaries and statistics, 0.4 ms and 0.6 us per row; with the defaults it would
    be 1.2 ms.
    """
    rows = no_rows(STEPS) if table is None else table
    footer = {**_WRITTEN_BY, **facts, "rows": str(rows.num_rows)}
    sink = pa.BufferOutputStream()
    settings = {"compression": "lz4", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    with pq.ParquetWriter(sink, rows.schema, write_page_checksum=True, **settings) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata(_footer(footer))
    return sink.getvalue()


def encode_compacted(
    table: pa.Table, kind: Kind, first: int, last: int, *, writer: str, facts: Mapping[str, str] | None = None
) -> pa.Buffer:
    """The bytes of a compacted file: written once and read often. zstd, dictionaries, statistics, units; 2 us per
    row."""
    footer = {
        **_WRITTEN_BY,
        "kind": kind,
        "writer": writer,
        "first": str(first),
        "last": str(last),
        "rows": str(table.num_rows),
        **(facts or {}),
    }
    few = [name for name in FEW_VALUES if name in table.schema.names]
    sink = pa.BufferOutputStream()
    # Page checksums do not cover statistics, and statistics repeat values in full: only for columns that readers filter
    # by.
    settings = {"compression": "zstd", "compression_level": 1, "use_dictionary": few, "write_statistics": few}
    with pq.ParquetWriter(sink, table.schema, write_page_checksum=True, **settings) as file:
        file.write_table(table, row_group_size=_FACTS_GROUP if kind == "ends" else ROW_GROUP)
        file.add_key_value_metadata(_footer(footer))
    return sink.getvalue()


def _footer(facts: Mapping[str, str]) -> dict[str, str]:
    return {f"evalkit.{name}": value for name, value in {**facts, "check": check_of(facts)}.items()}


_WRITTEN_BY = {"format": str(FORMAT), "written_by": __version__}
"""What every footer begins with, and footers of later formats are to begin with: so that this evalkit can refuse them,
and say which one reads them."""


def check_of(facts: Mapping[str, str]) -> str:
    """SHA-256 over a footer without its own field: a change is noticed from the file alone."""
    fields = sorted((name, value) for name, value in facts.items() if name != "check")
    return hashlib.sha256(orjson.dumps(fields)).hexdigest()


def money_text(entries: Sequence[LedgerRecord]) -> str:
    """Money rows for a footer: JSON, one array per row in the order of LEDGER's columns."""
    try:
        return orjson.dumps([_values(entry) for entry in entries]).decode()
    except TypeError:  # half a surrogate pair, an integer too large: as in a column, the nearest that can be held
        return money_text(ledger_records(ledger_table(entries)))


_values: Callable[[LedgerRecord], tuple[Any, ...]] = attrgetter(*LEDGER.names)
_MoneyRow = tuple[str, str, int, str, str, str, int, int, str, float]


def money_of(says: Mapping[str, str], where: str) -> list[LedgerRecord]:
    """The money rows of a footer. Raises CorruptLogError."""
    try:
        rows = msgspec.json.decode(says.get("money") or "[]", type=list[_MoneyRow])
    except msgspec.MsgspecError as flaw:
        raise CorruptLogError(f"{where} is damaged (its money rows: {flaw}). {REMEDY}") from flaw
    return [LedgerRecord(**dict(zip(LEDGER.names, row, strict=True))) for row in rows]


# Reading.


def read_segment(segment: Segment, columns: Sequence[str] | None = None, dictionary: Iterable[str] = ()) -> pa.Table:
    """A segment's rows, page checksums verified; `dictionary` names columns to be read as dictionaries.

    Raises FileNotFoundError if compaction has moved the file, CorruptLogError if it is damaged or does not match its
    name, RunError if it has another format, StorageError if the disk refuses.
    """
    with open_file(segment, dictionary) as file:
        return read_rows(segment, file, columns)


def read_rows(segment: Segment, file: pq.ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
    """`read_segment` of a file that is open. Raises CorruptLogError, RunError."""
    wanted = list(SCHEMAS[segment.kind].names if columns is None else columns)
    problem = mismatch(segment, file)
    if problem:
        raise CorruptLogError(f"{segment.name} {problem}. {REMEDY}")
    if segment.is_object and segment.kind == "ledger":
        return ledger_table(money_of(claim(file), segment.name)).select(wanted)
    with readable(segment):
        table = file.read(columns=wanted, use_threads=False)
        # Data that the page checksums do not cover may turn valid pages into a column of another type.
        table.validate(full=True)
        if table.num_rows != file.metadata.num_rows:
            raise ValueError(f"{table.num_rows} rows could be read of {file.metadata.num_rows}")
        odd = unlike(table, segment.kind)
        if odd:
            raise ValueError(f"column {', '.join(odd)} does not have its type")
    return table.select(wanted)


def unlike(table: pa.Table, kind: Kind) -> list[str]:
    """Columns of a table with another type than the log's, or without values that a log always has."""
    odd, fields = [], _FIELDS[kind]
    for name, column in zip(table.schema.names, table.columns, strict=True):
        wanted, nullable = fields[name]
        if (column.type != wanted and _plain(column.type) != wanted) or (not nullable and column.null_count):
            odd.append(name)
    return odd


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of values, whether they are read by dictionary or not."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@contextmanager
def open_file(segment: Segment, dictionary: Iterable[str] = (), *, verify: bool = True) -> Iterator[pq.ParquetFile]:
    """The file of a segment, whatever its footer says. Raises as `read_segment` does."""
    with storage_errors(segment.path):
        source = source_of(segment.path)
    if source is None:
        if segment.path.is_symlink():
            raise CorruptLogError(f"{segment.name} is a link to a missing file. {REMEDY}")
        raise FileNotFoundError(segment.path)
    try:
        with readable(segment):
            file = pq.ParquetFile(
                source, page_checksum_verification=verify, read_dictionary=list(dictionary), pre_buffer=False
            )
        yield file
    finally:
        source.close()  # else a thread of pyarrow's may keep it open for a while


def source_of(path: Path) -> pa.NativeFile | None:
    """A file that is open for reading; None if it is not there, or has been moved just now."""
    try:
        if isinstance(path, BucketPath):
            return pa.BufferReader(path.read_bytes())
        return pa.OSFile(str(path))
    except FileNotFoundError:
        return None


def claim(file: pq.ParquetFile) -> dict[str, str]:
    """The footer of a file: format, evalkit's version, kind, numbers, rows, and what else its kind has
    (`journal.py`)."""
    metadata = file.metadata.metadata or {}
    return {
        key.decode("utf-8", "replace").removeprefix("evalkit."): value.decode("utf-8", "replace")
        for key, value in metadata.items()
        if key.startswith(b"evalkit.")
    }


def read_claim(segment: Segment) -> dict[str, str]:
    """The footer of a file, checked against its name. Raises as `read_segment` does."""
    with open_file(segment) as file:
        problem = mismatch(segment, file)
        if problem:
            raise CorruptLogError(f"{segment.name} {problem}. {REMEDY}")
        return claim(file)


def mismatch(segment: Segment, file: pq.ParquetFile) -> str:
    """How a file's name and its footer differ; empty if they agree. Raises RunError if it has another format."""
    with readable(segment):
        says, columns, metadata = claim(file), file.schema_arrow, file.metadata
        rows = metadata.num_rows
        groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    form = says.get("format", "")
    if is_number(form) and form != str(FORMAT) and not _was_ours(says):
        raise RunError(other_format(segment.path, "log format", form, says.get("written_by"), FORMAT))
    problem = _other_place(segment, says)
    if problem:
        return problem
    if says.get("check") != check_of(says):
        return "was changed: its footer is not the one that was written"
    if says.get("rows") != str(rows) or sum(groups) != rows:
        return f"should hold {says.get('rows')} rows but has {rows}"
    return _other_columns(columns, STEPS if segment.is_object else SCHEMAS[segment.kind])


def _was_ours(says: Mapping[str, str]) -> bool:
    """Whether a footer that names another format was written in this one, and its number was changed since."""
    return says.get("check") == check_of({**says, "format": str(FORMAT)})


def _other_place(segment: Segment, says: Mapping[str, str]) -> str:
    """How a file's place according to its footer differs from its name."""
    if segment.is_object:
        if says.get("kind") not in (COMMIT, CLOSE, SEAL):
            return "is not an object of a journal"
        if (says.get("writer"), says.get("number")) != (segment.writer, str(segment.first)):
            return f"is object {says.get('number')} of {says.get('writer')}: it was renamed or swapped"
        return ""
    if says.get("kind") != segment.kind:
        return f"is no segment of {segment.kind}"
    if says.get("writer") != segment.writer:
        return f"is of {says.get('writer')}: it was renamed or swapped"
    if (says.get("first"), says.get("last")) != (str(segment.first), str(segment.last)):
        return f"holds segments {says.get('first')} to {says.get('last')}: it was renamed or swapped"
    return ""


def is_number(text: str) -> bool:
    """Whether a string is a number as evalkit writes it."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def _other_columns(schema: pa.Schema, wanted: pa.Schema) -> str:
    """How a file's columns differ from those of its kind; empty if they do not."""
    if schema.equals(wanted):
        return ""
    if schema.names != wanted.names:
        odd = sorted(set(schema.names) ^ set(wanted.names)) or ["in another order"]
        return f"has other columns than it should ({', '.join(odd[:3])})"
    for column, field in zip(schema, wanted, strict=True):
        if _plain(column.type) != field.type or column.nullable != field.nullable:
            return f"has a column {column.name} of the wrong type ({column.type})"
    return ""


@contextmanager
def readable(segment: Segment) -> Iterator[None]:
    """Convert pyarrow's errors for a damaged file to a CorruptLogError that names the segment."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as flaw:
        words = (str(flaw).splitlines() or [type(flaw).__name__])[0][:200]
        raise CorruptLogError(f"{segment.name} is damaged ({words}). {REMEDY}") from flaw


def json_of(says: Mapping[str, str], name: str, where: str) -> Any:
    """A JSON value of a footer; an empty object if it is missing. Raises CorruptLogError."""
    try:
        return orjson.loads(says.get(name) or "{}")
    except orjson.JSONDecodeError as flaw:
        raise CorruptLogError(f"{where} is damaged (its {name}: {flaw}). {REMEDY}") from flaw
