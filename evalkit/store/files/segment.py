"""A file of the log: one immutable Parquet file, whose name and metadata say which part of the log it is.

    log/WRITER/000000012.parquet                      what the writer's commit 12 made durable: steps and money
    steps/WRITER-000000000-000000011.parquet          steps of its commits 0 to 11
    ledger/WRITER-000000000-000000011.parquet         their money rows

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

    def facts(self) -> dict[str, str]:
        """The same for a footer."""
        return {"session": self.session, "spent": str(self.spent), "leased": str(self.leased)}


NO_MONEY = SessionMoney()


def session_money(says: Mapping[str, str]) -> SessionMoney:
    """What a footer says of its session's money."""
    return SessionMoney(
        session=says.get("session", ""), spent=int(says.get("spent", "0")), leased=int(says.get("leased", "0"))
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
"""What every footer begins with, and footers of later formats are to begin with: so that this evalkit can refuse them,
and say which one reads them."""
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
    return table.select(wanted)


@contextmanager
def open_file(segment: Segment, dictionary: Iterable[str] = ()) -> Iterator[pq.ParquetFile]:
    """The file of a segment, whose footer is as it was written. Raises as `read_segment` does."""
    with storage_errors(segment.path):
        source = source_of(segment.path)
    if source is None:
        if segment.path.is_symlink():
            raise CorruptLogError(f"{segment.name} is a link to a missing file. {REMEDY}")
        raise FileNotFoundError(segment.path)
    try:
        with readable(segment):
            _check_footer(segment, source)
            file = pq.ParquetFile(
                source, page_checksum_verification=True, read_dictionary=list(dictionary), pre_buffer=False
            )
        yield file
    finally:
        source.close()  # else a thread of pyarrow's may keep it open for a while


def _check_footer(segment: Segment, source: pa.NativeFile) -> None:
    """Raises ValueError if a footer is not the one that was written, RunError where it is of another format."""
    size = source.size()
    source.seek(max(0, size - _END))
    at = size - _END - int.from_bytes(source.read(4), "little")
    if at < _DIGESTS:
        raise ValueError("it has no footer")
    source.seek(at - _DIGESTS)
    tail = source.read()
    source.seek(0)
    digest, footer = tail[_DIGESTS // 2 : _DIGESTS], tail[_DIGESTS:]
    found, own = _entry(footer, "format"), str(FORMAT).encode()
    if found and found[1] != own:
        ours = footer[: found.start(1)] + own + footer[found.end(1) :]
        if _digest(ours) != digest:  # else the number was changed since
            by = _entry(footer, "written_by")
            raise RunError(
                other_format(segment.path, "log format", found[1].decode(), by[1].decode() if by else None, FORMAT)
            )
    if _digest(footer) != digest:
        raise ValueError("its footer is not the one that was written")


def _entry(footer: bytes, name: str) -> re.Match[bytes] | None:
    """The text of a footer's last entry of that name (statistics before may hold any text). In Thrift's compact
    protocol: a key, the header of the next field, the length of its text, the text."""
    key = f"evalkit.{name}\x18".encode()
    at = footer.rfind(key)
    return _TEXT.match(footer, at + len(key)) if at >= 0 else None


_TEXT = re.compile(rb"[\x01-\x7f]([0-9A-Za-z.+]{1,40})", re.DOTALL)


def check_bytes(segment: Segment) -> None:
    """Look at every byte of a file. Raises CorruptLogError unless all are as they were written; as `read_segment`
    does."""
    data = memoryview(read_whole(segment.path) or b"")
    if not data:
        if not segment.path.exists() and not segment.path.is_symlink():
            raise FileNotFoundError(segment.path)
        raise CorruptLogError(f"{segment.name} is empty, or a link to a missing file. {REMEDY}")
    with readable(segment):
        _check_footer(segment, pa.BufferReader(data))
        at = len(data) - _END - int.from_bytes(data[-_END:-4], "little") - _DIGESTS
        if _digest(data[:at]) != data[at : at + _DIGESTS // 2]:
            raise ValueError("its pages are not those that were written")


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
    """How a file's name and its footer differ; empty if they agree."""
    with readable(segment):
        says, rows = claim(file), file.metadata.num_rows
    problem = _other_place(segment, says)
    if problem:
        return problem
    if says.get("rows") != str(rows):
        return f"should hold {says.get('rows')} rows but has {rows}"
    return ""


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


@contextmanager
def readable(segment: Segment) -> Iterator[None]:
    """Convert pyarrow's errors for a damaged file to a CorruptLogError that names the segment."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as flaw:
        words = (str(flaw).splitlines() or [type(flaw).__name__])[0][:200]
        raise CorruptLogError(f"{segment.name} is damaged ({words}). {REMEDY}") from flaw
