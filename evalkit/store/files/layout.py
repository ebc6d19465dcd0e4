"""The files of a run's log in order: which belong to it, which are covered by compaction, which are missing.

It uses names only, so that readers can afford it at each look. `chain.py` checks what the files contain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec
import orjson

from evalkit.errors import RunError
from evalkit.store.bucket import place_of
from evalkit.store.disk import Entry, entries_of, read_whole
from evalkit.store.files.schema import FORMAT
from evalkit.store.files.segment import (
    ENDS_FOLDER,
    LEDGER_FOLDER,
    LOG,
    NUMBER,
    RANGE,
    STEPS_FOLDER,
    TAIL,
    WRITER,
    Kind,
    Segment,
    compacted_name,
    object_name,
)
from evalkit.store.json_text import decode

FOLDERS: dict[Kind, tuple[str, ...]] = {
    "steps": (TAIL, STEPS_FOLDER),
    "ledger": (LEDGER_FOLDER,),
    "ends": (ENDS_FOLDER,),
}
"""Folders of files of format 1 and of compacted files. In this order a listing misses nothing that compaction moves
meanwhile: at worst it sees rows in both, which `Layout.covered` resolves. Journals are listed first."""

MARK = "log.json"
"""For a log that began in format 1: how many of its files were durable at the last compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files with rows of one kind, in order: those of format 1, then writer after writer."""

    segments: tuple[Segment, ...]
    """Those that make up the log, in order."""
    covered: tuple[Segment, ...]
    """Those with rows that are also in a compacted file; ignored."""
    stray: tuple[Path, ...]
    """Files that are not segments, or that share some numbers with other files."""
    flaws: tuple[tuple[str, str], ...]
    """(file, what is wrong): missing numbers, overlaps, files that are not segments."""
    next: int
    """The next number among the files of format 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalObjects:
    """One writer's existing objects, and the numbers that its compacted files contain."""

    writer: str
    numbers: tuple[int, ...]
    """The numbers of the objects in its folder, in order."""

    def object(self, run: Path, number: int) -> Segment:
        """One of its objects."""
        return journal_object(run, self.writer, number)


def journal_object(run: Path, writer: str, number: int, kind: Kind = "steps") -> Segment:
    """An object of a journal, as a file with rows of one kind."""
    path = run / LOG / writer / object_name(number)
    return Segment(kind=kind, path=path, first=number, last=number, writer=writer)


def journals(run: Path) -> list[JournalObjects]:
    """All writers that have a folder, in the order in which they began."""
    return [
        JournalObjects(writer=writer, numbers=tuple(sorted(segment.first for segment in objects)))
        for writer, objects in _journal_objects(run, "steps")[0].items()
    ]


def newest_object(run: Path, writer: str) -> Segment | None:
    """The newest object of one journal, looked up now; None if it has none."""
    names = (NUMBER.fullmatch(entry.name) for entry in _parquet_files(run / LOG / writer))
    numbers = [int(match[1]) for match in names if match and match[2] is None]
    return journal_object(run, writer, max(numbers)) if numbers else None


def began(writer: str) -> tuple[float, str]:
    """The sort key of writers: when they started, by their own clocks, then their names."""
    return float(writer.rpartition("-")[2]), writer


def lay_out(run: Path, kind: Kind) -> Layout:
    """List the log's files. While a run is being written, a file that moves may be missing from the result: list
    again."""
    by_writer, flaws, stray = _journal_objects(run, kind)
    for folder in FOLDERS[kind]:
        path = run / folder
        entries = _parquet_files(path)
        if not entries and path.exists() and not path.is_dir():
            flaws.append((folder, "is not a folder: move it elsewhere"))
        for entry in entries:
            segment = _segment(kind, str(path), entry.name)
            if segment is not None:
                by_writer.setdefault(segment.writer, []).append(segment)
            elif not entry.name.startswith("."):
                flaws.append((f"{folder}/{entry.name}", "is no segment of this run: move it elsewhere"))
                stray.append(path / entry.name)
    segments, covered, following = list[Segment](), list[Segment](), 0
    for writer in sorted(by_writer, key=lambda name: (name != "", began(name) if name else ())):
        upto = _put_in_order(run, kind, by_writer[writer], segments, covered, flaws, stray)
        if not writer:
            following = upto
    marked = read_mark(run).get(kind, 0)
    if marked > following:
        flaws.append(_missing(run, kind, "", following, marked - 1))
        following = marked
    return Layout(
        segments=tuple(segments), covered=tuple(covered), stray=tuple(stray), flaws=tuple(flaws), next=following
    )


def _journal_objects(run: Path, kind: Kind) -> tuple[dict[str, list[Segment]], list[tuple[str, str]], list[Path]]:
    """(objects by writer, writers in order; flaws; stray files)."""
    by_writer: dict[str, list[Segment]] = {}
    flaws, stray = list[tuple[str, str]](), list[Path]()
    folder = run / LOG
    entries = entries_of(folder)
    if not entries and folder.exists() and not folder.is_dir():
        return by_writer, [(LOG, "is not a folder: move it elsewhere")], stray
    writers = list[str]()
    for entry in entries:
        if WRITER.fullmatch(entry.name) and entry.is_dir():
            writers.append(entry.name)
        elif not entry.name.startswith("."):
            flaws.append((f"{LOG}/{entry.name}", "is not a journal of this run: move it elsewhere"))
            stray.append(folder / entry.name)
    for writer in sorted(writers, key=began):
        objects, path = by_writer.setdefault(writer, []), folder / writer
        for file in _parquet_files(path):
            segment = _object(kind, str(path), file.name, writer)
            if segment is not None:
                objects.append(segment)
                if file.is_symlink() and not segment.path.exists():
                    flaws.append((f"{LOG}/{writer}/{file.name}", "is a link to a missing file"))
            elif not file.name.startswith("."):
                flaws.append((f"{LOG}/{writer}/{file.name}", "is not an object of this journal: move it elsewhere"))
                stray.append(path / file.name)
    return by_writer, flaws, stray


def _parquet_files(folder: Path) -> list[Entry]:
    """Of a folder, by name."""
    return sorted((entry for entry in entries_of(folder) if entry.name.endswith(".parquet")), key=attrgetter("name"))


_KNOWN = 16_384
"""Files whose names are taken apart once: a run is listed again and again while it is played or looked at."""


@lru_cache(_KNOWN)
def _object(kind: Kind, folder: str, name: str, writer: str) -> Segment | None:
    """An object of a journal, by its name."""
    match = NUMBER.fullmatch(name)
    if match is None or match[2] is not None:
        return None
    return Segment(kind=kind, path=place_of(folder) / name, first=int(match[1]), last=int(match[1]), writer=writer)


@lru_cache(_KNOWN)
def _segment(kind: Kind, folder: str, name: str) -> Segment | None:
    """A file of format 1, or a compacted one, by its name."""
    old, new = NUMBER.fullmatch(name), RANGE.fullmatch(name)
    if new:
        return Segment(kind=kind, path=place_of(folder) / name, writer=new[1], first=int(new[2]), last=int(new[3]))
    if old and kind != "ends":
        return Segment(kind=kind, path=place_of(folder) / name, first=int(old[1]), last=int(old[2] or old[1]))
    return None


def _put_in_order(
    run: Path,
    kind: Kind,
    files: Sequence[Segment],
    segments: list[Segment],
    covered: list[Segment],
    flaws: list[tuple[str, str]],
    stray: list[Path],
) -> int:
    """Sort one writer's files; the number of the next."""
    upto = 0
    for segment in sorted(files, key=lambda segment: (segment.first, -segment.last, segment.is_commit)):
        if segment.last < upto:
            covered.append(segment)
            continue
        if segment.first < upto:
            flaws.append((segment.name, "contains segment numbers that another file contains too"))
            stray.append(segment.path)
            continue
        if segment.first > upto:
            flaws.append(_missing(run, kind, segment.writer, upto, segment.first - 1))
        segments.append(segment)
        upto = segment.last + 1
    return upto


def gaps(layout: Layout) -> Iterator[tuple[str, int, int]]:
    """(writer, first, last) of the numbers that are missing between the files of a layout."""
    for writer, files in groupby(layout.segments, key=lambda segment: segment.writer):
        upto = 0
        for segment in files:
            if segment.first > upto:
                yield writer, upto, segment.first - 1
            upto = segment.last + 1
        if not writer and upto < layout.next:
            yield writer, upto, layout.next - 1
    if layout.next and not any(not segment.writer for segment in layout.segments):
        yield "", 0, layout.next - 1


def _missing(run: Path, kind: Kind, writer: str, first: int, last: int) -> tuple[str, str]:
    if writer:
        names = [journal_object(run, writer, number).name for number in (first, last)]
    else:
        names = [f"{FOLDERS[kind][0]}/{object_name(number)}" for number in (first, last)]
    return names[0] + (f" to {names[1]}" if last > first else ""), "is missing"


def compacted(run: Path, kind: Kind, writer: str, first: int, last: int) -> Segment:
    """A compacted file, by what it holds."""
    path = run / FOLDERS[kind][-1] / compacted_name(writer, first, last)
    return Segment(kind=kind, path=path, first=first, last=last, writer=writer)


# Format 1.


def read_mark(run: Path) -> dict[str, int]:
    """The least number of files of format 1 of each kind; empty if it records none."""
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
    """The content of MARK. It names this format, so that an evalkit that knows only the first format refuses the
    run."""
    return orjson.dumps({"format": FORMAT, "steps": steps, "ledger": ledger}) + b"\n"
