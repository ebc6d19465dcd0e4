"""`evalkit verify ARCHIVE`: does an archive hold what its log gives?

Its checksums are compared first; a damaged archive is not looked into further. Then the log is checked and replayed as
that of any run, every number is computed again, and every optimum is solved for again.
"""

import hashlib
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

import orjson

from evalkit import __version__
from evalkit.errors import RunError, StorageError
from evalkit.report.archive.differences import NumberCount, differences
from evalkit.report.archive.numbers import OPTIMA, REPORT, TABLES, number_files
from evalkit.report.archive.write import CHECKSUMS, FORMAT, RUN, VERSIONS, sha256_of
from evalkit.results.episodes import Environments
from evalkit.results.verify import Finding
from evalkit.store import disk
from evalkit.store.formats import other_format

Check = Callable[[Path], list[Finding]]
"""What `evalkit verify` checks of a run's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found."""

    findings: tuple[Finding, ...]
    sha256: str
    """Of the archive, hex."""
    written_by: str = ""
    """The version of evalkit that wrote it; empty if its checksums do not fit."""
    numbers: int = 0
    """Numbers that were compared."""
    rounded: int = 0
    """Of these, those that differ in their last digits alone."""
    optima: int = 0
    """Optima that were solved for again."""


def verify_archive(path: Path, environments: Environments, check: Check) -> Verified:
    """Compare an archive with what its log gives.

    Raises RunError if it is no archive, or one of a newer format, or an environment is not installed; StorageError.
    """
    digest = sha256_of(path)
    with _unpacked(path) as (folder, changed):
        if changed:
            return Verified(findings=tuple(changed), sha256=digest)
        versions = _versions(folder, path)
        findings = [replace(finding, segment=f"{RUN}/{finding.segment}") for finding in check(folder / RUN)]
        if findings:  # what a damaged log gives is no measure
            return Verified(findings=tuple(findings), sha256=digest, written_by=str(versions["evalkit"]))
        tally = NumberCount()
        made = number_files(folder / RUN, environments)
        findings += _compared(folder, made, tally, words=versions["evalkit"] == __version__)
        return Verified(
            findings=tuple(findings),
            sha256=digest,
            written_by=str(versions["evalkit"]),
            numbers=tally.numbers,
            rounded=tally.rounded,
            optima=made[OPTIMA].count(b"\n") - 1,
        )


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[Path, list[Finding]]]:
    """(the archive's folder, unpacked for as long as the context lasts; what is wrong with its files)."""
    with TemporaryDirectory(prefix="evalkit-") as room:
        try:
            with disk.storage_errors(path), ZipFile(path) as archive:
                unpacked = _unpack(archive, path, Path(room))
        except (BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as flaw:
            raise RunError(f"{path} is no archive of evalkit, or is damaged: {flaw}. Get another copy.") from flaw
        yield unpacked


def _unpack(archive: ZipFile, path: Path, room: Path) -> tuple[Path, list[Finding]]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [PurePosixPath(entry.filename) for entry in entries]
    tops = {name.parts[0] for name in names if name.parts}
    unsafe = [name for name in names if name.is_absolute() or ".." in name.parts or len(name.parts) < 2]
    if unsafe or len(tops) != 1 or len(set(names)) < len(names) or any("\\" in str(name) for name in names):
        raise RunError(f"{path} is no archive of evalkit: expected a zip file with one folder.")
    size, free = sum(entry.file_size for entry in entries), shutil.disk_usage(room).free
    if size > free:
        raise StorageError(
            f"{path} unpacks to {size / 1e9:.1f} GB, and {room.parent} has {free / 1e9:.1f} GB free. Free some space, "
            "or set TMPDIR to another folder."
        )
    top = room / tops.pop()
    sums: dict[str, str] = {}
    for entry, name in zip(entries, names, strict=True):
        target = room / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(entry) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        with target.open("rb") as copy:
            sums[target.relative_to(top).as_posix()] = hashlib.file_digest(copy, "sha256").hexdigest()
    return top, list(_unlike(top, sums, path))


def _unlike(top: Path, sums: dict[str, str], path: Path) -> Iterator[Finding]:
    """Files that are not as the archive's checksums say."""
    if CHECKSUMS not in sums:
        raise RunError(f"{path} is no archive of evalkit: it has no {CHECKSUMS}.")
    del sums[CHECKSUMS]
    listed = {}
    for line in (top / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    for name in sorted({*listed, *sums}):
        if name not in sums:
            yield Finding(segment=name, problem="is missing from the archive")
        elif name not in listed:
            yield Finding(segment=name, problem=f"is not listed in {CHECKSUMS}")
        elif listed[name] != sums[name]:
            yield Finding(segment=name, problem="was changed: its checksum is another")


def _versions(folder: Path, path: Path) -> dict[str, object]:
    try:
        versions = orjson.loads((folder / VERSIONS).read_bytes())
        number, written_by = versions["archive"], versions["evalkit"]
    except (OSError, ValueError, KeyError, TypeError) as flaw:
        raise RunError(f"{path} is no archive of evalkit: {VERSIONS} cannot be read ({flaw}).") from flaw
    if number != FORMAT:
        raise RunError(other_format(path, "archive format", number, written_by, FORMAT))
    return dict(versions)


def _compared(folder: Path, made: Mapping[str, bytes], tally: NumberCount, *, words: bool) -> Iterator[Finding]:
    """Numbers that the log does not give."""
    stored = {name: folder / name for name in (REPORT, OPTIMA)}
    stored |= {f"{TABLES}/{file.name}": file for file in (folder / TABLES).glob("*")}
    for name in sorted({*stored, *made}):
        if name not in made:
            yield Finding(segment=name, problem="the log does not give this file")
        elif name not in stored or not stored[name].is_file():
            if words:
                yield Finding(segment=name, problem="is missing from the archive")
        else:
            try:
                for flaw in differences(name, stored[name].read_bytes(), made[name], tally, words=words):
                    yield Finding(segment=name, problem=flaw)
            except ValueError as damage:
                yield Finding(segment=name, problem=f"cannot be read: {damage}")
