"""A segment: one immutable Parquet file of rows, whose name and metadata say which part of the log it is.

Every commit is a segment with the next number. A compacted file covers a range of numbers. Name and metadata must agree
and the numbers must be contiguous from 0, so a missing, swapped or renamed file is noticed and can be named.

    tail/000000012.parquet              steps of commit 12, until they are compacted
    steps/000000000-000000011.parquet   steps of commits 0 to 11
    ledger/000000003.parquet            money rows of commit 3 (numbers of their own)
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError, RunError
from evalkit.store.disk import read_whole, storage_errors
from evalkit.store.json_text import decode
from evalkit.store.schema import FEW_VALUES, FORMAT, LEDGER, STEPS

Kind = Literal["steps", "ledger"]

TAIL, STEPS_FOLDER, LEDGER_FOLDER = "tail", "steps", "ledger"
SCHEMAS: dict[Kind, pa.Schema] = {"steps": STEPS, "ledger": LEDGER}
FOLDERS: dict[Kind, tuple[str, ...]] = {"steps": (TAIL, STEPS_FOLDER), "ledger": (LEDGER_FOLDER,)}
"""Where segments lie; a commit's own goes into the first. In this order a listing loses nothing that compaction moves
meanwhile: at worst it sees rows in both, which `Layout.covered` settles."""

MARK = "log.json"
"""How many segments were durable when rows were last compacted: tells that the newest files were taken away."""

ROW_GROUP = 4096
"""Rows of a compacted file that damage to one page can take along."""

REMEDY = "`evalkit verify` says what is affected; `evalkit run --repair` goes on without it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file of the log, by its name."""

    kind: Kind
    path: Path
    first: int
    last: int

    @property
    def name(self) -> str:
        """Folder and file, as messages name it."""
        return f"{self.path.parent.name}/{self.path.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files of one kind, put in order."""

    segments: tuple[Segment, ...]
    """Those that make up the log, in order."""
    covered: tuple[Segment, ...]
    """Those whose rows lie in a compacted file as well; ignored."""
    stray: tuple[Path, ...]
    """Files that are no segments, or whose numbers other files hold in part."""
    flaws: tuple[tuple[str, str], ...]
    """(file, what is wrong): missing numbers, overlaps, files that are no segments."""
    next: int
    """The number of the next segment."""


def segment_name(first: int, last: int | None = None) -> str:
    """File name of one commit, or of a compacted range."""
    return f"{first:09d}.parquet" if last is None else f"{first:09d}-{last:09d}.parquet"


_NAME = re.compile(r"(\d{9,})(?:-(\d{9,}))?\.parquet")


def lay_out(run: Path, kind: Kind) -> Layout:
    """List the log's files. While a run is being written the answer may lack a file that moves: look again."""
    found, flaws, stray = [], [], []
    for folder in FOLDERS[kind]:
        if (run / folder).exists() and not (run / folder).is_dir():
            flaws.append((folder, "is no folder: move it elsewhere"))
        for path in sorted((run / folder).glob("*.parquet")):
            match = _NAME.fullmatch(path.name)
            if match:
                first = int(match[1])
                found.append(Segment(kind=kind, path=path, first=first, last=int(match[2] or first)))
            elif not path.name.startswith("."):
                flaws.append((f"{folder}/{path.name}", "is no segment of this run: move it elsewhere"))
                stray.append(path)
    segments, covered, upto = [], [], 0
    for segment in sorted(found, key=lambda one: (one.first, -one.last)):
        if segment.last < upto:
            covered.append(segment)
            continue
        if segment.first < upto:
            flaws.append((segment.name, "holds numbers that another file holds as well"))
            stray.append(segment.path)
            continue
        if segment.first > upto:
            flaws.append(_missing(kind, upto, segment.first - 1))
        segments.append(segment)
        upto = segment.last + 1
    marked = read_mark(run).get(kind, 0)
    if marked > upto:
        flaws.append(_missing(kind, upto, marked - 1))
        upto = marked
    return Layout(segments=tuple(segments), covered=tuple(covered), stray=tuple(stray), flaws=tuple(flaws), next=upto)


def _missing(kind: Kind, first: int, last: int) -> tuple[str, str]:
    folder = FOLDERS[kind][0]
    where = f"{folder}/{segment_name(first)}" + (f" to {segment_name(last)}" if last > first else "")
    return where, "is missing"


def read_mark(run: Path) -> dict[str, int]:
    """How many segments of each kind there are at least; empty where nothing was compacted yet."""
    data = read_whole(run / MARK)
    if data is None:
        return {}
    mark = decode(data, _Mark, str(run / MARK), "Delete it; the segments speak for themselves.")
    if mark.format > FORMAT:
        raise RunError(f"{run / MARK} has log format {mark.format}; this evalkit reads {FORMAT}. Use a newer one.")
    return {"steps": mark.steps, "ledger": mark.ledger}


_Number = Annotated[int, msgspec.Meta(ge=0, lt=10**12)]


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The content of MARK."""

    format: _Number
    steps: _Number
    ledger: _Number


def encode_mark(*, steps: int, ledger: int) -> bytes:
    """The content of MARK."""
    return orjson.dumps({"format": FORMAT, "steps": steps, "ledger": ledger}) + b"\n"


def encode_segment(table: pa.Table, kind: Kind, first: int, last: int, *, compacted: bool) -> pa.Buffer:
    """A segment's bytes, page checksums included.

    A commit is written for speed: no dictionaries and statistics, 0.4 ms and 0.6 us a row; with the defaults it would
    be 1.2 ms. A compacted file is written once and read often: zstd, dictionaries, statistics, units; 2 us a row.
    """
    facts = {"format": FORMAT, "kind": kind, "first": first, "last": last, "rows": table.num_rows}
    sink = pa.BufferOutputStream()
    if compacted:
        few = [name for name in FEW_VALUES if name in table.schema.names]
        # Statistics lie outside the pages' checksums and repeat values in full: only of columns that readers filter by.
        settings = {"compression": "zstd", "compression_level": 1, "use_dictionary": few, "write_statistics": few}
    else:
        settings = {"compression": "lz4", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    with pq.ParquetWriter(sink, table.schema, write_page_checksum=True, **settings) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({f"evalkit.{name}": str(value) for name, value in facts.items()})
    return sink.getvalue()


def read_segment(segment: Segment, columns: Sequence[str] | None = None, dictionary: Iterable[str] = ()) -> pa.Table:
    """A segment's rows, page checksums verified; `dictionary` names columns to be read as dictionaries.

    Raises FileNotFoundError if compaction has moved the file, CorruptLogError if it is damaged or not what its name
    says, RunError if a newer evalkit wrote it, StorageError if the disk refuses.
    """
    with open_file(segment, dictionary) as file:
        problem = mismatch(segment, file)
        if problem:
            raise CorruptLogError(f"{segment.name} {problem}. {REMEDY}")
        with readable(segment):
            table = file.read(columns=None if columns is None else list(columns), use_threads=False)
            # What lies outside the pages' checksums may make of sound pages what is no column of its kind.
            table.validate(full=True)
            if table.num_rows != file.metadata.num_rows:
                raise ValueError(f"{table.num_rows} rows could be read of {file.metadata.num_rows}")
            odd = unlike(table, segment.kind)
            if odd:
                raise ValueError(f"column {', '.join(odd)} is not of its kind")
    return table


def unlike(table: pa.Table, kind: Kind) -> list[str]:
    """Columns of a table that are of another type than a log's, or lack values that a log always has."""
    odd = []
    for name in table.schema.names:
        field, found = SCHEMAS[kind].field(name), table.column(name)
        plain = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
        if plain != field.type or (found.null_count and not field.nullable):
            odd.append(name)
    return odd


@contextmanager
def open_file(segment: Segment, dictionary: Iterable[str] = (), *, verify: bool = True) -> Iterator[pq.ParquetFile]:
    """The file behind a segment, whatever it says of itself. Raises as `read_segment` does."""
    if not segment.path.exists():
        if segment.path.is_symlink():
            raise CorruptLogError(f"{segment.name} is a link to nothing. {REMEDY}")
        raise FileNotFoundError(segment.path)
    with storage_errors(segment.path):
        source = pa.OSFile(str(segment.path))
    try:
        with readable(segment):
            file = pq.ParquetFile(
                source, page_checksum_verification=verify, read_dictionary=list(dictionary), pre_buffer=False
            )
        yield file
    finally:
        source.close()  # else a thread of pyarrow's may keep it open for a while


def claim(file: pq.ParquetFile) -> dict[str, str]:
    """What a file says of itself: format, kind, first, last, rows."""
    metadata = file.metadata.metadata or {}
    return {
        key.decode("utf-8", "replace").removeprefix("evalkit."): value.decode("utf-8", "replace")
        for key, value in metadata.items()
        if key.startswith(b"evalkit.")
    }


def mismatch(segment: Segment, file: pq.ParquetFile) -> str:
    """How a file's name and its own word differ; empty if they agree."""
    with readable(segment):
        says, columns, rows = claim(file), file.schema_arrow, file.metadata.num_rows
        groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    if is_number(says.get("format", "0")) and int(says.get("format", "0")) > FORMAT:
        raise RunError(f"{segment.path} has log format {says['format']}; this evalkit reads {FORMAT}. Use a newer one.")
    if says.get("kind") != segment.kind:
        return f"is no segment of {segment.kind}"
    if (says.get("first"), says.get("last")) != (str(segment.first), str(segment.last)):
        return f"holds segments {says.get('first')} to {says.get('last')}: it was renamed or swapped"
    if says.get("rows") != str(rows) or sum(groups) != rows:
        return f"should hold {says.get('rows')} rows and holds {rows}"
    return _other_columns(columns, SCHEMAS[segment.kind])


def is_number(text: str) -> bool:
    """Whether a text is a number as evalkit writes them."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def _other_columns(found: pa.Schema, wanted: pa.Schema) -> str:
    """How a file's columns differ from those of its kind; empty if they do not."""
    if found.names != wanted.names:
        odd = sorted(set(found.names) ^ set(wanted.names)) or ["in another order"]
        return f"has other columns than it should ({', '.join(odd[:3])})"
    for one in found:
        kind = one.type.value_type if pa.types.is_dictionary(one.type) else one.type
        if kind != wanted.field(one.name).type or one.nullable != wanted.field(one.name).nullable:
            return f"has another column {one.name} than it should ({one.type})"
    return ""


@contextmanager
def readable(segment: Segment) -> Iterator[None]:
    """Turn what pyarrow raises over a damaged file into a CorruptLogError that names the segment."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as flaw:
        words = (str(flaw).splitlines() or [type(flaw).__name__])[0][:200]
        raise CorruptLogError(f"{segment.name} is damaged ({words}). {REMEDY}") from flaw
