"""The files of a run's log in order: which belong to it, which are covered by compaction, which are missing.

It uses names only, so that readers can afford it at each look. Numbers of a writer follow each other without a gap, and
its newest object is never deleted: so a file that is missing is noticed, unless it is the newest object of a journal
whose older objects are still there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from evalkit.store.bucket import place_of
from evalkit.store.disk import Entry, entries_of
from evalkit.store.files.segment import LOG, NUMBER, RANGE, WRITER, Kind, Segment, compacted_name, object_name


@dataclass(slots=True)
class Layout:
    """The files with rows of one kind, in order, writer after writer."""

    segments: list[Segment] = field(default_factory=list)
    """Those that make up the log, in order."""
    covered: list[Segment] = field(default_factory=list)
    """Those with rows that are also in a compacted file; ignored."""
    stray: list[Path] = field(default_factory=list)
    """Files that are not segments, or that share some numbers with other files."""
    flaws: list[tuple[str, str]] = field(default_factory=list)
    """(file, what is wrong): missing numbers, overlaps, files that are not segments."""
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
    """(writer, first, last) of the numbers that are missing between files."""
    newest: dict[str, int] = field(default_factory=dict)
    """By writer with objects, the number of the newest: that one is never deleted."""

    def miss(self, run: Path, writer: str, first: int, last: int) -> None:
        """Note that numbers are missing."""
        names = [journal_object(run, writer, number).name for number in (first, last)]
        self.flaws.append((names[0] + (f" to {names[1]}" if last > first else ""), "is missing"))

    def refuse(self, path: Path, name: str, why: str) -> None:
        """Note a file that does not belong there."""
        self.flaws.append((name, why))
        self.stray.append(path)


def journal_object(run: Path, writer: str, number: int, kind: Kind = "steps") -> Segment:
    """An object of a journal, as a file with rows of one kind."""
    path = run / LOG / writer / object_name(number)
    return Segment(kind=kind, path=path, first=number, last=number, writer=writer)


def journals(run: Path) -> dict[str, list[Segment]]:
    """The objects of all writers that have a folder, in order; writers in the order in which they began."""
    return _journal_objects(run, "steps", Layout())


def newest_object(run: Path, writer: str) -> Segment | None:
    """The newest object of one journal, looked up now; None if it has none."""
    names = (NUMBER.fullmatch(entry.name) for entry in _parquet_files(run / LOG / writer))
    numbers = [int(match[1]) for match in names if match]
    return journal_object(run, writer, max(numbers)) if numbers else None


def began(writer: str) -> tuple[float, str]:
    """The sort key of writers: when they started, by their own clocks, then their names."""
    return float(writer.rpartition("-")[2]), writer


def lay_out(run: Path, kind: Kind) -> Layout:
    """List the log's files. While a run is being written, a file that moves may be missing from the result: list
    again."""
    # Journals come first: so a listing misses nothing that compaction moves meanwhile, and at worst it sees rows twice,
    # which `Layout.covered` resolves.
    layout = Layout()
    by_writer = _journal_objects(run, kind, layout)
    layout.newest = {writer: objects[-1].last for writer, objects in by_writer.items() if objects}
    path = run / kind
    entries = _parquet_files(path)
    if not entries and path.exists() and not path.is_dir():
        layout.flaws.append((kind, "is not a folder: move it elsewhere"))
    for entry in entries:
        segment = _compacted(kind, str(path), entry.name)
        if segment is not None:
            by_writer.setdefault(segment.writer, []).append(segment)
        elif not entry.name.startswith("."):
            layout.refuse(path / entry.name, f"{kind}/{entry.name}", "is no segment of this run: move it elsewhere")
    for writer in sorted(by_writer, key=began):
        own = by_writer[writer]
        last = max((segment.last for segment in own), default=-1)
        if layout.newest.get(writer, -1) < last:
            layout.miss(run, writer, last, last)
        _put_in_order(run, own, layout)
    return layout


def _put_in_order(run: Path, files: Sequence[Segment], layout: Layout) -> None:
    """Sort one writer's files."""
    upto = 0
    for segment in sorted(files, key=lambda segment: (segment.first, -segment.last, segment.is_object)):
        if segment.last < upto:
            layout.covered.append(segment)
            continue
        if segment.first < upto:
            layout.refuse(segment.path, segment.name, "contains numbers that another file contains too")
            continue
        if segment.first > upto:
            layout.miss(run, segment.writer, upto, segment.first - 1)
            layout.gaps.append((segment.writer, upto, segment.first - 1))
        layout.segments.append(segment)
        upto = segment.last + 1


def _journal_objects(run: Path, kind: Kind, layout: Layout) -> dict[str, list[Segment]]:
    """The objects of each writer, writers in order; flaws and stray files are noted."""
    by_writer: dict[str, list[Segment]] = {}
    folder = run / LOG
    entries = entries_of(folder)
    if not entries and folder.exists() and not folder.is_dir():
        layout.flaws.append((LOG, "is not a folder: move it elsewhere"))
    for entry in entries:
        if WRITER.fullmatch(entry.name) and entry.is_dir():
            by_writer[entry.name] = []
        elif not entry.name.startswith("."):
            layout.refuse(folder / entry.name, f"{LOG}/{entry.name}", "is not a journal of this run: move it elsewhere")
    for writer, objects in by_writer.items():
        path = folder / writer
        for file in _parquet_files(path):
            name, segment = f"{LOG}/{writer}/{file.name}", _object(kind, str(path), file.name, writer)
            if segment is not None:
                objects.append(segment)
                if file.is_symlink() and not segment.path.exists():
                    layout.flaws.append((name, "is a link to a missing file"))
            elif not file.name.startswith("."):
                layout.refuse(path / file.name, name, "is not an object of this journal: move it elsewhere")
        objects.sort(key=attrgetter("first"))  # by names alone ten billion would come before nine
    return {writer: by_writer[writer] for writer in sorted(by_writer, key=began)}


def _parquet_files(folder: Path) -> list[Entry]:
    """Of a folder, by name."""
    return sorted((entry for entry in entries_of(folder) if entry.name.endswith(".parquet")), key=attrgetter("name"))


_KNOWN = 16_384
"""Files whose names are taken apart once: a run is listed again and again while it is played or looked at."""


@lru_cache(_KNOWN)
def _object(kind: Kind, folder: str, name: str, writer: str) -> Segment | None:
    """An object of a journal, by its name."""
    match = NUMBER.fullmatch(name)
    if match is None:
        return None
    return Segment(kind=kind, path=place_of(folder) / name, first=int(match[1]), last=int(match[1]), writer=writer)


@lru_cache(_KNOWN)
def _compacted(kind: Kind, folder: str, name: str) -> Segment | None:
    """A compacted file, by its name."""
    match = RANGE.fullmatch(name)
    if match is None:
        return None
    path = place_of(folder) / name
    return Segment(kind=kind, path=path, writer=match[1], first=int(match[2]), last=int(match[3]))


def compacted(run: Path, kind: Kind, writer: str, first: int, last: int) -> Segment:
    """A compacted file, by what it holds."""
    path = run / kind / compacted_name(writer, first, last)
    return Segment(kind=kind, path=path, first=first, last=last, writer=writer)
