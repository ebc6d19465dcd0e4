"""A log with its files under the names in their own footers, so that swapped or renamed files are not lost."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalkit.errors import CorruptLogError
from evalkit.store.files.chain import DigestChain, digest_of_file
from evalkit.store.files.layout import Layout, compacted, journal_object
from evalkit.store.files.segment import (
    CLOSE,
    COMMIT,
    KINDS,
    SEAL,
    WRITER,
    Segment,
    check_of,
    claim,
    is_number,
    open_file,
)
from evalkit.store.recovery.check import Found
from evalkit.store.recovery.examine import footer_problem

QUARANTINE = "quarantine"
"""Folder of a run that keeps files which a repair has replaced."""


@contextmanager
def in_order(run: Path, found: Found) -> Iterator[tuple[Path, list[Path]]]:
    """(a folder with the log's files in their places; files of the run whose places there are none).

    `found` is what the run's log holds as it is. The folder is the run itself where all are in place; otherwise it
    holds links, as long as the context lasts.
    """
    chain, layouts = found.chain, found.layouts
    files = {segment.path: segment for kind in KINDS for segment in _files(layouts[kind])}
    fits, strays = dict[str, Path](), dict[str, Path]()
    unsure = dict[str, Path]()
    for path, segment in files.items():
        # The chain has read the footers of these, and they agreed with their names.
        name = segment.name if segment.name in chain.claims else _claimed(run, segment)
        if name in (None, segment.name):
            (fits if name else unsure)[segment.name] = path
        else:
            strays.setdefault(str(name), path)
    kept = _kept(run, chain, {segment.name for segment in files.values()} - fits.keys() - strays.keys())
    needless = _needless(run, found)
    if not strays and not kept and not needless:
        yield run, []
        return
    fits = {name: path for name, path in fits.items() if name not in needless}
    unsure = {name: path for name, path in unsure.items() if name not in needless}
    places = unsure | kept | strays | fits
    aside = [path for path, segment in files.items() if segment.name not in places]
    with tempfile.TemporaryDirectory() as work:
        view = Path(work) / "run"
        for name, path in places.items():
            (view / name).parent.mkdir(parents=True, exist_ok=True)
            (view / name).symlink_to(path.resolve())
        yield view, aside


def _kept(run: Path, chain: DigestChain, names: set[str]) -> dict[str, Path]:
    """Files in quarantine that belong where there is nothing, or something else: a repair that was cut short had put
    another in their place, and was yet to write them there."""
    folder = run / QUARANTINE
    if not folder.is_dir():
        return {}
    by_digest = {digest_of_file(path): path for path in folder.glob("*.parquet*") if path.is_file()}
    kept = {}
    for name in (*names, *chain.missing):
        wanted = chain.repaired.get(name) or set(chain.named.get(name, {}).values())
        for digest in wanted & by_digest.keys():
            kept[name] = by_digest[digest]
    return kept


def _needless(run: Path, found: Found) -> set[str]:
    """Damaged compacted files that no object names yet: all objects that they were made of are there, so nothing is
    lost with them."""
    chain = found.chain
    if chain.unread:
        return set()
    needless = set[str]()
    for layout in found.layouts.values():
        objects = {(covered.writer, covered.first) for covered in layout.covered if covered.is_object}
        for segment in layout.segments:
            if segment.is_object or segment.name in {**chain.named, **chain.repaired}:
                continue
            numbers = range(segment.first, segment.last + 1)
            sound = all(
                (segment.writer, number) in objects and not footer_problem(journal_object(run, segment.writer, number))
                for number in numbers
            )
            if sound and footer_problem(segment):
                needless.add(segment.name)
    return needless


def _files(layout: Layout) -> tuple[Segment, ...]:
    return layout.segments + layout.covered


def _claimed(run: Path, segment: Segment) -> str | None:
    """The place of a file according to its footer; None if the footer is not valid."""
    try:
        with open_file(segment) as file:
            says = claim(file)
    except (CorruptLogError, FileNotFoundError):
        return None
    kind, writer = says.get("kind", ""), says.get("writer", "")
    if says.get("check") != check_of(says) or not WRITER.fullmatch(writer):
        return None
    if kind in (COMMIT, CLOSE, SEAL):
        return journal_object(run, writer, int(says["number"])).name if is_number(says.get("number", "")) else None
    first, last = says.get("first", ""), says.get("last", "")
    if kind not in KINDS or not is_number(first) or not is_number(last):
        return None
    return compacted(run, kind, writer, int(first), int(last)).name
