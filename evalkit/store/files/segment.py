"""A file of the log: one immutable Parquet file, whose name and metadata say which part of the log it is.

    log/WRITER/000000012.parquet                      what the writer's commit 12 made durable: steps and money
    steps/WRITER-000000000-000000011.parquet          steps of its commits 0 to 11
    ledger/WRITER-000000000-000000011.parquet         their money rows

Each such file is a *segment*: an *object* of a journal, or a *compacted file*. A journal has the name of its *writer*;
rows have that of the writer's *session*, which is another one where a clock was set back.

Name and metadata must agree, so a swapped or renamed file is noticed and can be named; `layout.py` puts files in order.
Page checksums cover values. Between its last page and its footer, where Parquet leaves room, each file has two digests:
of all bytes before them, and of the footer. Readers check the second, `check_bytes` both.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError, RunError
from evalkit.store.bucket import BucketPath
from evalkit.store.disk import read_whole, storage_errors
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import FEW_VALUES, FORMAT, LEDGER, STEPS, ledger_records, ledger_table, no_rows
from evalkit.store.json_text import other_format
from evalkit.version import __version__

Kind = Literal["steps", "ledger"]
KINDS: tuple[Kind, ...] = ("steps", "ledger")

LOG = "log"
"""Folder of the journals. Compacted files lie in a folder with the name of their kind."""
SCHEMAS: Mapping[Kind, pa.Schema] = {"steps": STEPS, "ledger": LEDGER}

COMMIT, CLOSE, SEAL = "commit", "close", "seal"
"""Kinds of objects of a journal."""

ROW_GROUP = 4096
"""Rows of a compacted file that are lost with one damaged page."""

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


# Writing.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMoney:
    """What a writer's own session has come to, in pico-dollars."""

    session: str = ""
    """Its name in rows."""
    spent: int = 0
    """Its steps and charges."""
    leased: int = 0
    """What it has set aside by rows of its own."""
    closed: bool = False
    """Whether it has closed its books, so that none of its leases is open."""

    def facts(self) -> dict[str, str]:
        """The same for a footer."""
        closed = {"closed": "yes"} if self.closed else {}
        return {"session": self.session, "spent": str(self.spent), "leased": str(self.leased), **closed}


NO_MONEY = SessionMoney()


def session_money(says: Mapping[str, str]) -> SessionMoney:
    """What a footer says of its session's money."""
    return SessionMoney(
        session=says.get("session", ""),
        spent=int(says.get("spent", "0")),
        leased=int(says.get("leased", "0")),
        closed="closed" in says,
    )


def encode_object(table: pa.Table | None, facts: Mapping[str, str]) -> bytes:
    """An object's bytes: step rows, and `facts` in the footer (see `journal.py`).

    A commit is written for speed: no dictionaries and statistics, 0.4 ms and 0.6 us per row; with the defaults it would
    be 1.2 ms.
    """
    rows = no_rows(STEPS) if table is None else table
    settings = {"compression": "lz4", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    return _encode(rows, facts, settings)


def encode_compacted(segment: Segment, table: pa.Table, money: SessionMoney) -> bytes:
    """The bytes of a compacted file: written once and read often. zstd, dictionaries, statistics, units; 2 us per
    row. `money`: as of its last object."""
    facts = {
        "kind": segment.kind,
        "writer": segment.writer,
        "first": str(segment.first),
        "last": str(segment.last),
        **money.facts(),
    }
    few = [name for name in FEW_VALUES if name in table.schema.names]
    # Page checksums do not cover statistics, and statistics repeat values in full: only for columns that readers filter
    # by.
    settings = {"compression": "zstd", "compression_level": 1, "use_dictionary": few, "write_statistics": few}
    return _encode(table, facts, settings)


def _encode(table: pa.Table, facts: Mapping[str, str], settings: Mapping[str, Any]) -> bytes:
    footer = {**_WRITTEN_BY, **facts, "rows": str(table.num_rows)}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, write_page_checksum=True, **settings) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({f"evalkit.{name}": value for name, value in footer.items()})
    data = memoryview(sink.getvalue())
    at = len(data) - _END - int.from_bytes(data[-_END:-4], "little")
    return b"".join((data[:at], *map(_digest, (data[:at], data[at:])), data[at:]))


_WRITTEN_BY = {"format": str(FORMAT), "written_by": __version__}
"""What every footer begins with, in later formats too, under the same digests: so that this evalkit can refuse them and
say which one reads them."""
_END = 8
"""Bytes after a Parquet footer: its length, and a word that is the same in all files."""
_DIGESTS = 64


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


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
    """`read_segment` of a file that is open. Raises CorruptLogError."""
    wanted = list(SCHEMAS[segment.kind].names if columns is None else columns)
    if segment.is_object and segment.kind == "ledger":
        return ledger_table(money_of(claim(file.metadata), segment.name)).select(wanted)
    with readable(segment):
        table = file.read(columns=wanted, use_threads=False)
        # Data that the page checksums do not cover may turn valid pages into a column of another type.
        table.validate(full=True)
        if table.num_rows != file.metadata.num_rows:
            raise ValueError(f"{table.num_rows} rows could be read of {file.metadata.num_rows}")
    return table.select(wanted)


@contextmanager
def open_file(segment: Segment, dictionary: Iterable[str] = ()) -> Iterator[pq.ParquetFile]:
    """The file of a segment, whose footer is as it was written and fits its name. Raises as `read_segment` does."""
    with storage_errors(segment.path):
        source = source_of(segment.path)
    if source is None:
        if segment.path.is_symlink():
            raise CorruptLogError(f"{segment.name} is a link to a missing file. {REMEDY}")
        raise FileNotFoundError(segment.path)
    try:
        with readable(segment):
            check_footer(source)
            metadata = pq.read_metadata(source)
        check_name(segment, metadata)  # first: columns that a file of another kind lacks cannot be read as dictionaries
        with readable(segment):
            file = pq.ParquetFile(
                source,
                metadata=metadata,
                page_checksum_verification=True,
                read_dictionary=list(dictionary),
                pre_buffer=False,
            )
        yield file
    finally:
        source.close()  # else a thread of pyarrow's may keep it open for a while


def check_footer(source: pa.NativeFile) -> int:
    """Where the two digests begin. Raises ValueError if the footer behind them is not the one that was written."""
    size = int(source.size())
    source.seek(max(0, size - _END))
    at = size - _END - int.from_bytes(source.read(4), "little") - _DIGESTS
    if at < 0:
        raise ValueError("it has no footer")
    source.seek(at)
    tail = source.read()
    source.seek(0)
    if _digest(tail[_DIGESTS:]) != tail[_DIGESTS // 2 : _DIGESTS]:
        raise ValueError("its footer is not the one that was written")
    return at


def check_bytes(segment: Segment) -> None:
    """Look at every byte of a file. Raises CorruptLogError unless all are as they were written; as `read_segment`
    does."""
    data = memoryview(read_whole(segment.path) or b"")
    if not data:
        if not segment.path.exists() and not segment.path.is_symlink():
            raise FileNotFoundError(segment.path)
        raise CorruptLogError(f"{segment.name} is empty, or a link to a missing file. {REMEDY}")
    with readable(segment):
        source = pa.BufferReader(data)
        at = check_footer(source)
        metadata = pq.read_metadata(source)
    check_name(segment, metadata)
    if _digest(data[:at]) != data[at : at + _DIGESTS // 2]:
        raise CorruptLogError(f"{segment.name} is damaged (its pages are not those that were written). {REMEDY}")


def source_of(path: Path) -> pa.NativeFile | None:
    """A file that is open for reading; None if it is not there, or has been moved just now."""
    try:
        if isinstance(path, BucketPath):
            return pa.BufferReader(path.read_bytes())
        return pa.OSFile(str(path))
    except FileNotFoundError:
        return None


def claim(metadata: pq.FileMetaData) -> dict[str, str]:
    """The footer of a file: format, evalkit's version, kind, numbers, rows, and what else its kind has
    (`journal.py`)."""
    return {
        key.decode("utf-8", "replace").removeprefix("evalkit."): value.decode("utf-8", "replace")
        for key, value in (metadata.metadata or {}).items()
        if key.startswith(b"evalkit.")
    }


def read_claim(segment: Segment) -> dict[str, str]:
    """The footer of a file. Raises as `read_segment` does."""
    with open_file(segment) as file:
        return claim(file.metadata)


def check_name(segment: Segment, metadata: pq.FileMetaData) -> None:
    """Raises CorruptLogError if a file's footer does not fit its name or its rows, RunError if it has another
    format."""
    with readable(segment):
        says, rows = claim(metadata), metadata.num_rows
    if "format" in says and says["format"] != str(FORMAT):
        raise RunError(other_format(segment.path, "log format", says["format"], says.get("written_by"), FORMAT))
    problem = _other_place(segment, says)
    if not problem and says.get("rows") != str(rows):
        problem = f"should hold {says.get('rows')} rows but has {rows}"
    if problem:
        raise CorruptLogError(f"{segment.name} {problem}. {REMEDY}")


def _other_place(segment: Segment, says: Mapping[str, str]) -> str:
    """How a file's place according to its footer differs from its name; empty if it does not."""
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
        return f"holds numbers {says.get('first')} to {says.get('last')}: it was renamed or swapped"
    return ""


@contextmanager
def readable(segment: Segment) -> Iterator[None]:
    """Convert pyarrow's errors for a damaged file to a CorruptLogError that names the segment."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as flaw:
        words = (str(flaw).splitlines() or [type(flaw).__name__])[0][:200]
        raise CorruptLogError(f"{segment.name} is damaged ({words}). {REMEDY}") from flaw
