"""Files of a log whose bytes are not those that were written."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from evalkit.errors import CorruptLogError
from evalkit.store.files.layout import Layout, lay_out
from evalkit.store.files.segment import KINDS, REMEDY, Segment, check_bytes


def first_flaw(run: Path) -> str:
    """What is wrong with the files of a log, the first thing in words; empty if nothing is. Every byte is looked at,
    and no row. Raises StorageError, RunError where a file has another format."""
    layouts = [lay_out(run, kind) for kind in KINDS]
    for layout in layouts:
        for where, what in layout.flaws:
            return f"{where} {what}"
    return next((f"{name} {problem}" for name, problem in damage(layouts)), "")


def damage(layouts: Sequence[Layout]) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each file whose bytes are not those that were written. Raises as `first_flaw` does."""
    every = (segment for layout in layouts for segment in (*layout.segments, *layout.covered))
    for segment in {segment.name: segment for segment in every}.values():
        try:
            check_bytes(segment)
        except CorruptLogError as flaw:
            yield segment.name, problem_of(segment, flaw)


def problem_of(segment: Segment, flaw: CorruptLogError) -> str:
    """The middle of a message about a segment, without its name and the remedy."""
    return str(flaw).removeprefix(f"{segment.name} ").removesuffix(f". {REMEDY}")
