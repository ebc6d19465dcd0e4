"""`--format archive`: a run, the numbers of its report and checksums in one zip, and whether such a file is true.

`run/` holds the run's files as they are, `report.json` the rows of every table, `SHA256SUMS` the digest of each other
file. The same run gives the same bytes: names are sorted, and no time is written.

An archive may come from anybody. It is unpacked into a folder of its own, within bounds of disk and memory
(`docs/exports.md`). Its checksums are compared first, and a damaged archive is not looked into further. Then its log is
checked and replayed as that of any run, and the report is made again.
"""

import hashlib
import math
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evalkit.errors import RunError, StorageError
from evalkit.frozen.copying import KEPT, kept_files, on_disk
from evalkit.report.exports.episodes import ExportChoice
from evalkit.report.report import report
from evalkit.results.verify import Finding, verify
from evalkit.store import disk
from evalkit.store.folder import refuse_existing
from evalkit.store.lock import refuse_writer
from evalkit.version import __version__

RUN, REPORT, CHECKSUMS = "run", "report.json", "SHA256SUMS"
PACKED = (".parquet", ".zst")
"""Files that are compressed already, so they are stored as they are."""
MOST_FILES = 100_000
MOST_GROWTH = 30
"""How many times the size of its file an archive may have, unpacked on the disk, and the columns of its log in memory.
Texts of a log shrink to a tenth."""
SMALL = 16 << 20
"""Bytes that any archive may have so."""
MOST_PARTS = 6
"""Of the path of a file. Each folder takes a block of the disk, too."""
BLOCK = 4096
"""Bytes that the least file takes on a disk."""
VALUE = 16
"""Bytes that a value of a column takes in memory, beside its text, at most."""
_NUMBERED = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
_ENCODINGS = _NUMBERED | {"PLAIN", "RLE"}
"""Of the columns of a log: words by number, and others. What is not here makes long texts of short ones."""
LAST_DIGITS = 1e-9
"""The relative difference up to which two numbers differ in their last digits alone: sums of fractions and functions
of the mathematical library may round otherwise on another machine."""


def write_archive(chosen: ExportChoice, out: Path) -> int:
    """Write the archive, whole or not at all; the run is only read. Returns 0: all episodes are reproduced.

    Raises UsageError if `out` exists, RunError if the run is being written or `verify` finds a flaw, CorruptLogError,
    StorageError.
    """
    refuse_existing(out)
    with on_disk(chosen.run) as run:
        refuse_writer(run, "Archive")
        files = kept_files(run)
        if findings := verify(run):
            raise RunError(
                f"{chosen.run} cannot be archived: {findings[0]}; {len(findings):,} findings in all. `evalkit verify` "
                "lists them. Nothing was written."
            )
        disk.make_directories(out.absolute().parent)
        aside = out.with_name(f".{out.name}{disk.ASIDE}")
        try:
            with disk.storage_errors(out), aside.open("wb") as file:
                _zip(file, {f"{RUN}/{name}": run / name for name in files}, _numbers(run))
                file.flush()
                os.fsync(file.fileno())
            refuse_writer(run, "Archive")
            if kept_files(run) != files:
                raise RunError(f"{chosen.run} was written meanwhile. Nothing was archived; start the command again.")
            refuse_existing(out)
            with disk.storage_errors(out):
                disk.rename(aside, out)
                disk.sync_directory(out.absolute().parent)
        finally:
            aside.unlink(missing_ok=True)
    return 0


def _numbers(run: Path) -> bytes:
    """Every table's rows, with full precision, and the version that has made them."""
    made = {"evalkit": __version__, "tables": {table.name: table.to_json()["rows"] for table in report(run).tables}}
    return orjson.dumps(made, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _zip(file: IO[bytes], copied: Mapping[str, Path], numbers: bytes) -> None:
    sums = {REPORT: hashlib.sha256(numbers).hexdigest()}
    with ZipFile(file, "w") as archive:
        archive.writestr(_entry(REPORT), numbers)
        for name, path in sorted(copied.items()):
            with path.open("rb") as source, archive.open(_entry(name), "w", force_zip64=True) as member:
                shutil.copyfileobj(source, member)
                source.seek(0)
                sums[name] = hashlib.file_digest(source, "sha256").hexdigest()
        archive.writestr(_entry(CHECKSUMS), "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # of 1980, the first year that a zip knows
    entry.compress_type = ZIP_STORED if name.endswith(PACKED) else ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


@dataclass(slots=True, kw_only=True)
class Verification:
    """What was found."""

    sha256: str
    """Of the archive, hex."""
    findings: list[Finding]
    written_by: str = ""
    """The version of evalkit that wrote it; empty if its checksums do not fit."""
    numbers: int = 0
    """Numbers that were compared."""
    rounded: int = 0
    """Of these, those that differ in their last digits alone."""


def verify_archive(path: Path, check: Callable[[Path], list[Finding]]) -> Verification:
    """Compare an archive with what its log gives. `check`: what is checked of a run's directory.

    Raises RunError if it is no archive or passes a bound, or if an environment is not installed; StorageError.
    """
    with disk.storage_errors(path), path.open("rb") as file:
        done = Verification(sha256=hashlib.file_digest(file, "sha256").hexdigest(), findings=[])
    with _unpacked(path) as folder:
        done.findings += _unlike(folder, path)
        if done.findings:
            return done
        _refuse_large_columns(folder, path)
        try:
            stored = orjson.loads((folder / REPORT).read_bytes())
            done.written_by, tables = str(stored["evalkit"]), dict(stored["tables"])
        except (OSError, ValueError, KeyError, TypeError) as flaw:
            raise RunError(f"{path} is no archive of evalkit: {REPORT} cannot be read ({flaw}).") from flaw
        done.findings += (replace(one, segment=f"{RUN}/{one.segment}") for one in check(folder / RUN))
        if not done.findings:  # what a damaged log gives is no measure
            made = orjson.loads(_numbers(folder / RUN))["tables"]
            done.findings += (Finding(segment=REPORT, problem=flaw) for flaw in _compared("", tables, made, done))
    return done


@contextmanager
def opened_archive(path: Path) -> Iterator[Path]:
    """The run in an archive that is as its checksums say, for as long as the context lasts. It is not replayed.

    Raises RunError if it is no archive, is damaged, or passes a bound; StorageError.
    """
    with _unpacked(path) as folder:
        if flaw := next(_unlike(folder, path), None):
            raise RunError(f"{path} is no archive of evalkit, or is damaged: {flaw}. Get another copy.")
        _refuse_large_columns(folder, path)
        yield folder / RUN


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The archive's folder, for as long as the context lasts. Raises RunError, StorageError."""
    with tempfile.TemporaryDirectory(prefix="evalkit-") as room:
        try:
            with disk.storage_errors(path), ZipFile(path) as archive:
                _unpack(archive, path, Path(room))
        except (BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as flaw:
            raise RunError(f"{path} is no archive of evalkit, or is damaged: {flaw}. Get another copy.") from flaw
        yield Path(room)


def _unpack(archive: ZipFile, path: Path, room: Path) -> None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = {entry.filename for entry in entries}
    folders = {parent for name in names for parent in PurePosixPath(name).parents} if len(names) <= MOST_FILES else ()
    blocks = len(folders) + sum(entry.file_size // BLOCK + 1 for entry in entries)
    size, most = blocks * BLOCK, _most(path)
    if len(entries) > MOST_FILES or size > most:
        raise RunError(
            f"{path} has {len(entries):,} files, which take {size:,} bytes; at most {MOST_FILES:,} files of {most:,} "
            "bytes are unpacked. If you trust it, unpack it yourself, and verify the folder `run` in it."
        )
    odd = next((entry for entry in entries if not _plain(entry, names)), None)
    if odd is not None or len(names) < len(entries):
        what = "a name is there twice" if odd is None else f"the name or kind of {odd.filename!r} is not allowed"
        raise RunError(f"{path} is no archive of evalkit: {what}.")
    if size > (free := shutil.disk_usage(room).free):
        raise StorageError(
            f"{path} unpacks to {size / 1e9:.1f} GB, and {room.parent} has {free / 1e9:.1f} GB free. Free some space, "
            "or set TMPDIR to another folder."
        )
    for entry in entries:
        target = room / entry.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        # A file system may take two names for one; what is there is never written again.
        with archive.open(entry) as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy)


def _most(path: Path) -> int:
    return max(SMALL, MOST_GROWTH * path.stat().st_size)


def _refuse_large_columns(folder: Path, path: Path) -> None:
    """Raises RunError if the columns of the log would take more memory than is allowed; nothing is read for that but
    what the files say of themselves, and then the columns that hold words by number."""
    size, most = 0, _most(path)
    for file in sorted(folder.rglob("*.parquet")):
        try:
            for part in _sizes(file):
                size += part
                if size > most:
                    raise RunError(
                        f"{path}: the columns of its log take more than {most:,} bytes once they are read, which is "
                        "the most. If you trust it, unpack it yourself, and verify the folder `run` in it."
                    )
        except (pa.ArrowException, OSError, ValueError, LookupError, RecursionError) as flaw:
            name = file.relative_to(folder).as_posix()
            raise RunError(f"{path} is no archive of evalkit, or is damaged: {name} cannot be read ({flaw}).") from flaw


def _sizes(path: Path) -> Iterator[int]:
    """Bytes of memory, part by part, of the columns of a file. Raises what reading it raises."""
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        for column in columns:
            if not _ENCODINGS.issuperset(column.encodings):
                raise ValueError(f"its column {column.path_in_schema} is encoded as {', '.join(column.encodings)}")
            yield VALUE * max(column.num_values, file.metadata.num_rows)
            if not column.num_values:  # its pages are not read, and their place is not told
                continue
            start, size = column.data_page_offset, column.total_compressed_size
            if column.has_dictionary_page:
                start = min(start, column.dictionary_page_offset)
            with path.open("rb") as raw:
                raw.seek(start)
                yield from _pages(raw.read(size))
        words = [field.name for field in file.schema_arrow if field.type in (pa.string(), pa.binary())]
    with pq.ParquetFile(path, read_dictionary=words) as file:
        for number, group in enumerate(groups):
            for at in range(group.num_columns):
                name = group.column(at).path_in_schema
                if name in words and _NUMBERED & set(group.column(at).encodings):
                    for chunk in file.read_row_group(number, [name], use_threads=False).column(0).chunks:
                        lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
                        yield pc.sum(lengths).as_py() or 0


def _pages(chunk: bytes) -> Iterator[int]:
    """Bytes that each page of a column takes once it is unpacked, as its header says, which a reader goes by: what the
    footer says of all of them may be anything. Raises ValueError, LookupError, RecursionError."""
    at = 0
    while at < len(chunk):
        fields, at = _header(chunk, at)
        unpacked, packed = fields[2], fields[3]
        if min(unpacked, packed) < 0:
            raise ValueError("a page has less than no bytes")
        yield unpacked
        at += packed


def _header(chunk: bytes, at: int) -> tuple[dict[int, int], int]:
    """(the whole numbers of a struct in Thrift's compact protocol by their fields, where it ends); Apache Thrift,
    `thrift-compact-protocol.md`."""
    found, field = dict[int, int](), 0
    while head := chunk[at]:
        kind, step, at = head & 15, head >> 4, at + 1
        if not step:
            raise ValueError("a page's header has a field of no known number")
        field += step
        if kind in (4, 5, 6):  # whole numbers
            number, at = _varint(chunk, at)
            found[field] = number >> 1 ^ -(number & 1)
        elif kind == 8:  # bytes
            size, at = _varint(chunk, at)
            at += size
        elif kind == 12:
            _, at = _header(chunk, at)
        elif kind not in (1, 2):  # true, false
            raise ValueError("a page's header has a field of no known kind")
    return found, at + 1


def _varint(chunk: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        value |= (chunk[at + place] & 127) << 7 * place
        if chunk[at + place] < 128:
            return value, at + place + 1
    raise ValueError("a page's header has a number of more than 64 bits")


def _plain(entry: ZipInfo, names: set[str]) -> bool:
    """Whether an entry is a regular file that stays within its folder, and that no other file is within."""
    name, kind = PurePosixPath(entry.filename), stat.S_IFMT(entry.external_attr >> 16)
    return (
        kind in (0, stat.S_IFREG)
        and entry.filename == str(name)
        and entry.compress_type in (ZIP_STORED, ZIP_DEFLATED)
        and entry.filename.isprintable()
        and len(name.parts) <= MOST_PARTS
        and (str(name) in (REPORT, CHECKSUMS) or name.parts[:2] in {(RUN, top) for top in KEPT})
        and ".." not in name.parts
        and not name.is_absolute()
        and not names & {str(parent) for parent in name.parents}
    )


def _unlike(folder: Path, path: Path) -> Iterator[Finding]:
    """Files that are not as the archive's checksums say."""
    if not (folder / CHECKSUMS).is_file():
        raise RunError(f"{path} is no archive of evalkit: it has no {CHECKSUMS}.")
    lines = (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    held = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    del held[CHECKSUMS]
    for name in sorted({*listed, *held, REPORT}):
        if name not in held:
            yield Finding(segment=name, problem="is missing from the archive")
        elif name not in listed:
            yield Finding(segment=name, problem=f"is not listed in {CHECKSUMS}")
        else:
            with held[name].open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != listed[name]:
                    yield Finding(segment=name, problem="was changed: its checksum is another")


def _compared(place: str, stored: Any, made: Any, done: Verification) -> Iterator[str]:
    """Values that the log does not give. What another version of evalkit did not write yet is no difference."""
    if isinstance(stored, dict) and isinstance(made, dict):
        for key in {**stored, **(made if done.written_by == __version__ else {})}:
            inner = f"{place}.{key}" if place else key
            yield from _compared(inner, stored.get(key), made.get(key), done)
    elif isinstance(stored, list) and isinstance(made, list) and len(stored) == len(made):
        for index, (one, other) in enumerate(zip(stored, made, strict=True), 1):
            yield from _compared(f"{place}[{index}]", one, other, done)
    elif not _same(stored, made, done):
        shown = (f"{len(one):,} entries" if isinstance(one, list | dict) else f"{one!r:.60}" for one in (stored, made))
        yield "{}: it holds {}, the log gives {}".format(place, *shown)


def _same(stored: Any, made: Any, done: Verification) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (stored, made))
    done.numbers += numbers
    if stored == made or not numbers or (isinstance(stored, int) and isinstance(made, int)):
        return type(stored) is type(made) and bool(stored == made)
    same = math.isclose(stored, made, rel_tol=LAST_DIGITS, abs_tol=LAST_DIGITS)
    done.rounded += same
    return same
