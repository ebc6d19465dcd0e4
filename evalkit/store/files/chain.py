"""Checks that each file of a log agrees with the digest that a later file records. It compares bytes, not rows.

An object of a journal names the one before; a journal's first object names the newest object of every earlier journal;
objects name the compacted files that they know, and each compacted file names the one before it. So a later file proves
for every file, except the newest object of the newest journal, that it exists and has not changed. Files are checked
from the newest on: a changed file proves nothing.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evalkit.errors import CorruptLogError
from evalkit.store.disk import storage_errors
from evalkit.store.files.journal import carried_of, heads_of
from evalkit.store.files.layout import began, journal_object, lay_out
from evalkit.store.files.segment import (
    CLOSE,
    KINDS,
    LOG,
    NUMBER,
    RANGE,
    REMEDY,
    SEAL,
    Segment,
    json_of,
    object_name,
    read_claim,
)


def check_chain(run: Path) -> list[tuple[str, str]]:
    """(file, what is wrong) for each file that was changed or is missing; empty if there is none.

    Each file is read once, in parts. Files whose rows are in compacted files are skipped: they no longer matter. Raises
    StorageError, FileNotFoundError where a file was moved meanwhile, RunError where one has another format.
    """
    return follow(run).flaws


@dataclass(slots=True, kw_only=True)
class DigestChain:
    """What the files of a log record about each other."""

    flaws: list[tuple[str, str]] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    """By file, for those that matter and exist."""
    claims: dict[str, dict[str, str]] = field(default_factory=dict)
    """By file, the footers of unchanged files."""
    named: dict[str, dict[str, str]] = field(default_factory=dict)
    """By file: by the name of another file, the digest of this one that it records."""
    repaired: dict[str, set[str]] = field(default_factory=dict)
    """By file: digests of its replacements by repairs."""
    ends: dict[str, int] = field(default_factory=dict)
    """By writer: the highest number of an object of its journal that is named."""
    changed: set[str] = field(default_factory=set)
    """Files that exist but were changed, or that do not fit the others."""
    missing: list[str] = field(default_factory=list)
    """Files that are named but missing, if no other file has their rows."""
    headless: set[str] = field(default_factory=set)
    """Writers whose newest objects are missing, as the remaining files show."""
    unread: bool = False
    """Whether a journal's newest object was changed or is missing, so that it is unknown what it names."""

    def name(self, file: str, digest: str, by: str) -> None:
        """Record that one file names another with a digest."""
        self.named.setdefault(file, {})[by] = digest
        _, writer, object_file = f"//{file}".rsplit("/", 2)
        match = NUMBER.fullmatch(object_file)
        if match:
            self.ends[writer] = max(self.ends.get(writer, -1), int(match[1]))

    def look_at(self, segment: Segment) -> dict[str, str]:
        """The footer of a file, if the file is unchanged; otherwise the flaw is recorded."""
        name = segment.name
        actual = self.digests[name] = digest_of_file(segment.path)
        by = next((by for by, digest in self.named.get(name, {}).items() if digest != actual), None)
        changed = by is not None and actual not in self.repaired.get(name, ())
        try:
            says = read_claim(segment)
        except CorruptLogError as flaw:
            self.accuse(name, problem_of(segment, flaw))
            return {}
        if changed:
            self.accuse(name, f"was changed after it was written: {by} records another digest of it")
            return {}
        self.claims[name] = says
        return says

    def accuse(self, name: str, problem: str) -> None:
        """Record what is wrong with a file's content."""
        self.flaws.append((name, problem))
        self.changed.add(name)


def digest_of_file(path: Path) -> str:
    """SHA-256 over a file's bytes, in hex; only a part of it is in memory at a time. Empty for a link to a missing
    file. Raises FileNotFoundError, StorageError."""
    with storage_errors(path):
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:  # also if it was moved just now
            pass
    if path.is_symlink():
        return ""
    raise FileNotFoundError(path)


def problem_of(segment: Segment, flaw: CorruptLogError) -> str:
    """The middle of a message about a segment, without its name and the remedy."""
    return str(flaw).removeprefix(f"{segment.name} ").removesuffix(f". {REMEDY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """One writer's."""

    writer: str
    objects: tuple[Segment, ...]
    """Those that matter: that no compacted file covers, or the newest."""
    there: frozenset[int]
    """Numbers of all objects."""
    compacted: tuple[Segment, ...]
    """Of all kinds, by number."""

    def is_compacted(self, number: int) -> bool:
        """Whether a compacted file has what an object held."""
        return bool(self.compacted) and number <= self.compacted[-1].last


def follow(run: Path) -> DigestChain:
    """Check all files, from the newest on. Raises as `check_chain` does."""
    chain, heads_told = DigestChain(), False
    newest_first = _tellers_first(_by_writer(run))
    for position, files in enumerate(newest_first):
        end = max(files.there, default=-1)
        chain.unread |= chain.ends.get(files.writer, -1) > end
        last = files.compacted[-1] if files.compacted else None
        if last is not None and last.name in chain.named and chain.ends.get(files.writer, -1) <= end < last.last:
            # The newest object is never deleted, but no other journal names it if a worker's coordinator has ended it.
            name = journal_object(run, files.writer, last.last).name
            chain.flaws.append((name, f"is missing: {last.name} holds its rows, and nothing follows it"))
        for segment in reversed(files.objects):
            _follow_object(chain, run, files, segment)
        for segment in reversed(files.compacted):
            _follow_compacted(chain, files, segment)
        _check_joint(chain, files)
        heads = None if heads_told else _heads(chain, files)
        if heads is not None:
            heads_told = True
            older = [one for one in newest_first[position + 1 :] if began(one.writer) < began(files.writer)]
            _follow_heads(chain, run, heads, older, _first(files))
    there = {segment.name for files in newest_first for segment in files.compacted}
    there |= {journal_object(run, files.writer, number).name for files in newest_first for number in files.there}
    for name, tellers in chain.named.items():
        if name not in there:
            chain.missing.append(name)
            chain.flaws.append((name, f"is missing: {next(iter(tellers))} names it"))
    chain.flaws.reverse()
    return chain


def _by_writer(run: Path) -> list[_Files]:
    """Newest first."""
    objects: dict[str, dict[int, Segment]] = defaultdict(dict)
    matter: dict[str, set[int]] = defaultdict(set)
    compacted: dict[str, list[Segment]] = defaultdict(list)
    for kind in KINDS:
        layout = lay_out(run, kind)
        for segment in layout.segments:
            if segment.is_object:
                matter[segment.writer].add(segment.first)
            else:
                compacted[segment.writer].append(segment)
        for segment in layout.segments + layout.covered:
            if segment.is_object:
                objects[segment.writer].setdefault(segment.first, segment)
    newest_first = []
    for writer in sorted({*objects, *compacted}, key=began, reverse=True):
        own = objects[writer]
        chosen = matter[writer] | ({max(own)} if own else set())
        newest_first.append(
            _Files(
                writer=writer,
                objects=tuple(own[number] for number in sorted(chosen)),
                there=frozenset(own),
                compacted=tuple(sorted(compacted[writer], key=lambda segment: (segment.last, segment.kind))),
            )
        )
    return newest_first


def _tellers_first(newest_first: Sequence[_Files]) -> list[_Files]:
    """The same, but a writer that names files of younger ones is before these: one that has several processes write
    beside it, and has compacted what one of them left."""
    tellers: dict[str, list[_Files]] = {}
    for files in newest_first:
        for writer in _named_by(files):
            if began(writer) > began(files.writer):
                tellers.setdefault(writer, []).append(files)
    ordered: dict[str, _Files] = {}
    for files in newest_first:
        for one in (*tellers.get(files.writer, ()), files):
            ordered.setdefault(one.writer, one)
    return list(ordered.values())


def _named_by(files: _Files) -> Collection[str]:
    """The writers of whose compacted files a writer's newest object tells."""
    if not files.objects:
        return ()
    newest = files.objects[-1]
    try:
        return carried_of(read_claim(newest), newest.name).compacted.keys()
    except (CorruptLogError, FileNotFoundError):
        return ()


def _follow_object(chain: DigestChain, run: Path, files: _Files, segment: Segment) -> None:
    newest = segment.first == max(files.there)
    says = chain.look_at(segment)
    chain.unread |= newest and not says
    if not says:
        return
    if says["kind"] in (CLOSE, SEAL) and not newest:
        chain.accuse(segment.name, f"ends its journal ({says['kind']}), but objects follow")
    before = segment.first - 1
    if before >= 0 and (before in files.there or not files.is_compacted(before)):
        chain.name(journal_object(run, files.writer, before).name, says.get("before", ""), segment.name)
    carried = carried_of(says, segment.name)
    for kinds in carried.compacted.values() if newest else ():
        for name, digest in kinds.values():
            chain.name(name, digest, segment.name)
    for name, digest in carried.repaired.items():
        chain.repaired.setdefault(name, set()).add(digest)


def _follow_compacted(chain: DigestChain, files: _Files, segment: Segment) -> None:
    # The files that a compacted file covers are kept until an object names it.
    named = chain.named.get(segment.name) or segment.name in chain.repaired or _is_succeeded(chain, segment)
    if not named and not chain.unread:
        lost = [number for number in range(segment.first, segment.last + 1) if number not in files.there]
        if lost:
            chain.headless.add(files.writer)
            chain.flaws.append((segment.name, "is not named by any object: later objects are missing"))
    says = chain.look_at(segment)
    if not says:
        return
    before = json_of(says, "before", segment.name)
    if isinstance(before, list) and len(before) == 2:
        chain.name(str(before[0]), str(before[1]), segment.name)


def _is_succeeded(chain: DigestChain, segment: Segment) -> bool:
    """Whether a later file of the same kind is named: if that one is missing or damaged, it was the only file to name
    this one."""
    folder = segment.name.rpartition("/")[0]
    for name in chain.named:
        where, _, file = name.rpartition("/")
        match = RANGE.fullmatch(file) if where == folder else None
        if match and match[1] == segment.writer and int(match[2]) > segment.last:
            return True
    return False


def _check_joint(chain: DigestChain, files: _Files) -> None:
    """Compare the remaining objects with what the newest compacted file records about the last object that it
    contains."""
    steps = [segment for segment in files.compacted if segment.kind == "steps" and segment.name in chain.claims]
    if not steps or steps[-1].name in chain.repaired:
        return
    newest, last = steps[-1], chain.claims[steps[-1].name].get("object", "")
    # A repair may have rewritten the last object in it: the next object records the digest from before.
    mended = last in chain.repaired.get(f"{LOG}/{files.writer}/{object_name(newest.last)}", ())
    for segment in files.objects:
        if segment.name in chain.repaired or mended:
            continue
        says, digest = chain.claims.get(segment.name, {}), ""
        if segment.first == newest.last:
            digest = chain.digests[segment.name]
        elif segment.first == newest.last + 1 and says:
            digest = says.get("before", "")
        if says and digest != last and newest.last in (segment.first, segment.first - 1):
            chain.accuse(newest.name, f"does not contain what {segment.name} builds on")


def _first(files: _Files) -> Segment | None:
    """The file that lists the journals that existed when the writer started."""
    firsts = [
        segment for segment in (*files.compacted, *files.objects) if segment.first == 0 and segment.kind == "steps"
    ]
    return firsts[0] if firsts else None


def _heads(chain: DigestChain, files: _Files) -> dict[str, tuple[int, str]] | None:
    """The newest objects of other journals, by a writer's first file; None if it does not list them, for example
    because the writer was stopped before it wrote anything."""
    first = _first(files)
    says = chain.claims.get(first.name) if first else None
    return (heads_of(says, first.name) or None) if first and says else None


def _follow_heads(
    chain: DigestChain, run: Path, heads: Mapping[str, tuple[int, str]], older: Sequence[_Files], first: Segment | None
) -> None:
    assert first is not None
    for writer, (number, digest) in heads.items():
        chain.name(journal_object(run, writer, number).name, digest, first.name)
    for files in older:
        ended = heads.get(files.writer)
        if ended is None:
            if not _never_wrote(files):
                chain.flaws.append((_some(files), f"belongs to a journal that {first.name} does not list"))
        elif files.there and max(files.there) > ended[0]:
            beyond = journal_object(run, files.writer, min(number for number in files.there if number > ended[0]))
            chain.flaws.append((beyond.name, f"follows the end of its journal, which {first.name} records"))


def _never_wrote(files: _Files) -> bool:
    """Whether a journal was ended before its writer wrote anything. One that was stopped before it made its folder may
    have made it after later writers had looked."""
    if files.compacted or files.there != {0}:
        return False
    try:
        return read_claim(files.objects[0])["kind"] == SEAL
    except CorruptLogError:
        return False


def _some(files: _Files) -> str:
    """A writer's first file."""
    segments = [*files.objects, *files.compacted]
    return min((segment.name for segment in segments), default=f"log/{files.writer}")
