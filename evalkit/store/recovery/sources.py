"""What a damaged log held before it is repaired: its files, what they say of each other, and what can be kept."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evalkit.store.files.chain import DigestChain
from evalkit.store.files.layout import Layout, compacted, gaps, journal_object
from evalkit.store.files.segment import COMMIT, KINDS, NUMBER, RANGE, Kind, Segment, json_of
from evalkit.store.recovery.salvage import Kept, Money


@dataclass(kw_only=True)
class Sources:
    """What the log held before."""

    view: Path
    """The run, or its files in order."""
    layouts: Mapping[Kind, Layout]
    chain: DigestChain
    kept: Sequence[Kept]
    money: Money
    bad: set[str]
    """Files that are to be replaced."""

    def segments(self, kind: Kind, writer: str) -> list[Segment]:
        """One writer's files of a kind, those that are covered included."""
        layout = self.layouts[kind]
        return [segment for segment in (*layout.segments, *layout.covered) if segment.writer == writer]

    def newest(self, writer: str) -> int:
        """The number of the newest object of a journal that is there; -1 where there is none."""
        return max((segment.first for segment in self.segments("steps", writer) if segment.is_object), default=-1)

    def certain(self, writer: str) -> bool:
        """Whether a writer's newest object can be read, which says its sums."""
        newest = self.newest(writer)
        last = self.chain.ends.get(writer, -1)
        while last > newest and self.unfinished(journal_object(self.view, writer, last)):
            last -= 1
        if newest < last or newest < 0 or writer in self.chain.headless:
            return False
        return journal_object(self.view, writer, newest).name in self.chain.claims

    def unfinished(self, missing: Segment) -> bool:
        """Whether a repair that was cut short was to put a missing file in place: it has counted what was lost there,
        and nothing was lost since."""
        return missing.name in self._promised

    @cached_property
    def _promised(self) -> set[str]:
        """The files of repairs whose journals have no end."""
        promised: set[str] = set()
        for writer in {segment.writer for segment in self.layouts["steps"].segments}:
            name = journal_object(self.view, writer, self.newest(writer)).name
            says = self.chain.claims.get(name, {})
            if says.get("kind") == COMMIT:
                promised.update(json_of(says, "repaired", name))
        return promised

    def newest_says(self, writer: str, upto: int) -> Mapping[str, str]:
        """What the newest object of a journal says, up to this number, that can be read; empty if none can."""
        numbers = [
            segment.first for segment in self.segments("steps", writer) if segment.is_object and segment.first <= upto
        ]
        for number in sorted(numbers, reverse=True):
            says = self.chain.claims.get(journal_object(self.view, writer, number).name)
            if says is not None:
                return says
        return {}


# Which files a repair makes where there are none: those that others name, gaps in the numbers, and what a compaction
# that was cut short has not written.

MOST_OBJECTS = 10_000
"""Up to this many missing objects are made one by one; more become one compacted range."""


def missing_files(run: Path, sources: Sources) -> tuple[list[Segment], list[Segment]]:
    """(files that are to be made where there are none; those of them with which rows may have been lost)."""
    gone = list(_missing(run, sources))
    missing = _disjoint(run, [*gone, *_not_yet_compacted(run, sources)], sources.chain.missing)
    lost = [
        segment
        for segment in missing
        if any(_overlap(segment, part) for part in gone) and not (segment.is_object and sources.unfinished(segment))
    ]
    return missing, lost


def _missing(run: Path, sources: Sources) -> Iterator[Segment]:
    """The files that are to be made where there are none: those that others name, and what else numbers lack."""
    named: list[Segment] = []
    for name in sources.chain.missing:
        folder, _, file = name.rpartition("/")
        if folder in KINDS and (match := RANGE.fullmatch(file)):
            named.append(compacted(run, _kind(folder), match[1], int(match[2]), int(match[3])))
        elif match := NUMBER.fullmatch(file):
            named.append(journal_object(run, folder.rpartition("/")[2], int(match[1])))
    yield from named
    made = {segment.name for segment in named}
    for kind in KINDS:
        for writer, first, last in _gaps(sources.layouts[kind], named):
            for segment in _fill(run, sources, kind, writer, first, last, named):
                if segment.name not in made:
                    made.add(segment.name)
                    yield segment
    for segment in _behind(run, sources):
        if segment.name not in made:
            yield segment


def _overlap(one: Segment, other: Segment) -> bool:
    """Whether two files of one kind and writer share numbers."""
    same = (one.kind, one.writer, one.is_object) == (other.kind, other.writer, other.is_object)
    return same and one.first <= other.last and other.first <= one.last


def _disjoint(run: Path, segments: Iterable[Segment], named: Collection[str]) -> list[Segment]:
    """These files, each once. Compacted ranges that share numbers become one range, which leaves out what a range
    that other files name holds: a file within another is removed, and the next one of its kind would name it."""
    by_name = {segment.name: segment for segment in segments}
    ranges = [segment for segment in by_name.values() if not segment.is_object]
    disjoint = [segment for segment in by_name.values() if segment not in ranges or segment.name in named]
    last: Segment | None = None
    for segment in sorted(ranges, key=lambda segment: (segment.kind, segment.writer, segment.first)):
        if segment.name in named:
            continue
        if last is not None and _overlap(last, segment):
            last = compacted(run, last.kind, last.writer, last.first, max(last.last, segment.last))
        else:
            disjoint += _pieces(run, last, disjoint)
            last = segment
    return [*disjoint, *_pieces(run, last, disjoint)]


def _pieces(run: Path, segment: Segment | None, others: Sequence[Segment]) -> list[Segment]:
    """What a range has in addition to others."""
    if segment is None:
        return []
    covers = [(other.first, other.last) for other in others if _overlap(segment, other)]
    return [
        compacted(run, segment.kind, segment.writer, first, last)
        for first, last in _without(segment.first, segment.last, covers)
    ]


def _gaps(layout: Layout, named: Sequence[Segment]) -> Iterator[tuple[str, int, int]]:
    """(writer, first, last) of missing numbers: between files, and between these and a missing object that is named."""
    yield from gaps(layout)
    upto = Counter[str]()
    for segment in layout.segments:
        upto[segment.writer] = max(upto[segment.writer], segment.last + 1)
    ends = Counter[str]()
    for segment in named:
        if segment.is_object:
            ends[segment.writer] = max(ends[segment.writer], segment.first)
    for writer, end in ends.items():
        if upto[writer] < end:
            yield writer, upto[writer], end - 1


def _not_yet_compacted(run: Path, sources: Sources) -> Iterator[Segment]:
    """What kinds lack of the ranges that others have compacted, while the objects are there: nothing of it is lost.

    The next writer would make these files of objects that still hold what is dropped of compacted ones.
    """
    for writer, own_files in _compacted_files(sources).items():
        if sources.newest(writer) < max(segment.last for segment in own_files):
            continue
        for kind in KINDS:
            upto = max((segment.last + 1 for segment in own_files if segment.kind == kind), default=0)
            for first, last in sorted({(segment.first, segment.last) for segment in own_files}):
                if first >= upto:
                    yield compacted(run, kind, writer, first, last)


def _compacted_files(sources: Sources) -> dict[str, list[Segment]]:
    """By writer, the compacted files that are in use."""
    by_writer: dict[str, list[Segment]] = {}
    for layout in sources.layouts.values():
        for segment in layout.segments:
            if not segment.is_object:
                by_writer.setdefault(segment.writer, []).append(segment)
    return by_writer


def _behind(run: Path, sources: Sources) -> Iterator[Segment]:
    """Where compacted files hold more than the objects that are left: what some kinds lack of it, and an end."""
    for writer, own_files in _compacted_files(sources).items():
        last_compacted = max(segment.last for segment in own_files)
        if sources.newest(writer) >= last_compacted:
            continue
        for kind in KINDS:
            upto = max((segment.last + 1 for segment in own_files if segment.kind == kind), default=0)
            for first, last in sorted({(segment.first, segment.last) for segment in own_files if segment.last >= upto}):
                yield compacted(run, kind, writer, max(first, upto), last)
        yield journal_object(run, writer, last_compacted + 1)


def _kind(text: str) -> Kind:
    return next(kind for kind in KINDS if kind == text)


def _fill(
    run: Path, sources: Sources, kind: Kind, writer: str, first: int, last: int, named: Sequence[Segment]
) -> Iterator[Segment]:
    """Files for numbers that no other file holds."""
    whole = [segment for segment in named if segment.writer == writer and not segment.is_object]
    others = [segment for other in KINDS for segment in sources.segments(other, writer) if not segment.is_object]
    last_compacted = max((segment.last for segment in (*whole, *others)), default=-1)
    likely = sorted({(segment.first, segment.last) for segment in (*whole, *others)})
    covers = [(segment.first, segment.last) for segment in whole if segment.kind == kind]
    for begin, end in _without(first, last, covers):
        upto = begin
        for low, high in [*(pair for pair in likely if pair[1] <= end), (last_compacted + 1, last_compacted)]:
            if low > upto and upto <= min(end, last_compacted):
                yield compacted(run, kind, writer, upto, min(low - 1, end))
                upto = low
            if upto == low <= high:
                yield compacted(run, kind, writer, low, high)
                upto = high + 1
        upto = max(begin, last_compacted + 1)
        if end - upto >= MOST_OBJECTS:
            yield compacted(run, kind, writer, upto, end)
        else:
            yield from (journal_object(run, writer, number) for number in range(upto, end + 1))


def _without(first: int, last: int, covers: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What a range has in addition to others."""
    for begin, end in sorted(covers):
        if first < begin and first <= last:
            yield first, min(begin - 1, last)
        first = max(first, end + 1)
    if first <= last:
        yield first, last
