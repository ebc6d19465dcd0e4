"""Make a damaged log valid again: say what is dropped, then drop exactly that.

Each episode that has lost a step is cut off at its first lost step; it will be continued from there. What is dropped
was paid for, so its cost goes into the ledger first: where no row tells it any more, by what running totals say, or
what the sessions of the lost rows had leased and had not given back (`correction.py`). Damaged files are kept in
`quarantine/`. A repair is a writer with a journal of its own, which names the files that it replaces by their digests.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.money import show_usd
from evalkit.store import disk
from evalkit.store.files.chain import DigestChain, digest_of_file
from evalkit.store.files.journal import Appender, Carried, make_end_last, new_writer
from evalkit.store.files.layout import Layout, began, compacted, journal_object, journals
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import (
    CLOSE,
    COMMIT,
    KINDS,
    SEAL,
    WRITER,
    Kind,
    Segment,
    check_of,
    claim,
    digest_of,
    is_number,
    open_file,
)
from evalkit.store.lock import hold_run
from evalkit.store.reading.sums import COLUMNS, totals_of
from evalkit.store.reading.totals import Totals, read, text_of, together
from evalkit.store.recovery.check import Found, file_flaws, flaws_of, known_rows, look_through
from evalkit.store.recovery.correction import Remains, Remnant, difference, lost_money
from evalkit.store.recovery.examine import Flaw, footer_problem
from evalkit.store.recovery.remake import Remade, remake
from evalkit.store.recovery.salvage import GIVEN_UP, GivenUp, not_yet, read_money, salvage
from evalkit.store.recovery.sources import Sources
from evalkit.store.writing.opening import tidy
from evalkit.text import many

# A log with its files under the names in their own footers, so that swapped or renamed files are not lost.

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


__all__ = ["GIVEN_UP", "QUARANTINE", "GivenUp", "Repair", "repair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair drops and changes; all empty if the log is whole."""

    flaws: tuple[Flaw, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    quarantined: tuple[str, ...] = ()
    """Damaged files, kept in `quarantine/`."""
    unreadable: tuple[str, ...] = ()
    """Files of steps that are lost without anybody knowing whose they were or what they cost: an episode whose last
    rows were there is cut off without being listed."""
    ledger_lost: tuple[str, ...] = ()
    """Files of money rows that are lost: what they said counts only as far as other rows still show it."""
    recovered: int = 0
    """What stays charged in addition to the rows that are dropped, since nothing else shows it any more."""
    uncounted: tuple[str, ...] = ()
    """Sessions that may have written the lost rows, and of which nobody knows what they had spent."""

    def lines(self) -> list[str]:
        """The same in sentences."""
        if not self.flaws:
            return ["The log is whole: nothing to repair."]
        sentences = [f"{many(len(self.flaws), 'flaw')} in the log. Damaged files are kept in {QUARANTINE}/."]
        for cut in self.given_up:
            sentences.append(
                f"Episode {cut.episode}{f' ({cut.place})' if cut.place else ''} is cut off at step {cut.step}: "
                f"{cut.rows} rows are given up, {show_usd(cut.cost)} of them stay charged."
            )
        for name in self.unreadable:
            sentences.append(f"{name}: its rows are lost, and nobody knows whose they were.")
        for name in self.ledger_lost:
            sentences.append(f"{name}: its money rows are lost; other rows replace them as far as they show the same.")
        if self.recovered:
            sentences.append(
                f"{show_usd(self.recovered)} more stay charged: what the sessions of lost rows had spent, or may have "
                "spent of what they had set aside."
            )
        for name in self.uncounted:
            sentences.append(
                f"Session {name} did not end by itself, and its latest leases may be lost: it may have spent more than "
                "is charged. Compare the provider's total: `evalkit tools reconcile`."
            )
        return sentences


def repair(run: Path, announce: Callable[[Repair], None]) -> Repair:
    """Make the log valid again; `announce` is told what will be dropped before anything is changed.

    Raises RunError if another process writes the run, StorageError where the disk refuses.
    """
    with hold_run(run):
        found = look_through(run)
        flaws = flaws_of(run, found)
        if not flaws:
            announce(Repair())
            return Repair()
        with in_order(run, found) as (view, aside):
            work = _inspect(run, view, aside, flaws, found if view == run else look_through(view))
            announce(work.plan)
            _carry_out(run, work)
            return work.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    plan: Repair
    made: Remade
    charges: tuple[LedgerRecord, ...]
    totals: Totals
    """Of the repair's own journal: they make the sums of all right again."""
    quarantine: tuple[Path, ...]


def _inspect(run: Path, view: Path, aside: Sequence[Path], flaws: Sequence[Flaw], found: Found) -> _Work:
    """`found`: what the view holds."""
    layouts, chain = found.layouts, found.chain
    kept, given_up, charges = salvage(known_rows(found.steps), found.steps)
    money = read_money(layouts["ledger"].segments)
    bad = {
        kept_file.segment.name for kept_file in kept if kept_file.file.flaws or not kept_file.mask.all()
    } | chain.changed
    bad |= {segment.name for segment in money.damaged}
    bad |= {segment.name for segment in layouts["ends"].segments if not segment.is_object and file_flaws(segment)}
    sources = Sources(view=view, layouts=layouts, chain=chain, kept=kept, money=money, bad=bad)
    made = remake(run, new_writer([journal.writer for journal in journals(run)]), sources)
    _put_in_place(run, view, made, layouts)
    charges = not_yet(charges, money.rows)
    recorded = together([_sums_of(sources, writer) for writer in made.heads])
    lost = [*money.damaged, *(segment for segment in made.lost if segment.is_object or segment.kind == "ledger")]
    recovered, uncounted = lost_money(
        run,
        Remains(
            files=_remnants(sources, made),
            ledger=[*money.rows, *charges],
            ledger_whole=all(sources.certain(writer) for writer in made.heads),
            said=recorded,
        ),
    )
    charges = [*charges, *recovered]
    damaged = [run / name for name in made.files if (run / name).exists() or (run / name).is_symlink()]
    damaged += [*aside, *(run / path.relative_to(view) for layout in layouts.values() for path in layout.stray)]
    unreadable = [
        kept_file.segment.name for kept_file in kept if kept_file.segment.name in made.files and kept_file.nobody_knows
    ]
    unreadable += [segment.name for segment in made.lost if segment.is_object or segment.kind == "steps"]
    return _Work(
        plan=Repair(
            flaws=tuple(flaws),
            given_up=tuple(given_up),
            quarantined=tuple(dict.fromkeys(path.relative_to(run).as_posix() for path in damaged)),
            unreadable=tuple(unreadable),
            ledger_lost=tuple(dict.fromkeys(segment.name for segment in lost)),
            recovered=sum(row.amount for row in recovered if row.kind in ("charge", "crash")),
            uncounted=uncounted,
        ),
        made=made,
        charges=tuple(charges),
        totals=_correction(sources, made, charges),
        quarantine=tuple(dict.fromkeys(damaged)),
    )


def _put_in_place(run: Path, view: Path, made: Remade, layouts: Mapping[Kind, Layout]) -> None:
    """Files that were swapped or renamed, and are sound, are written under their own names as they are."""
    if view == run:
        return
    for layout in layouts.values():
        for segment in layout.segments + layout.covered:
            path = run / segment.name
            if segment.name not in made.files and (not path.exists() or path.resolve() != segment.path.resolve()):
                made.files[segment.name] = segment.path.read_bytes()


def _sums_of(sources: Sources, writer: str) -> Totals:
    """What a journal's newest object says, of those that can be read; a repaired journal says the same."""
    return read(sources.newest_says(writer, sys.maxsize).get("totals") or "{}", f"log/{writer}")


def _remnants(sources: Sources, made: Remade) -> list[Remnant]:
    """What is left of files of steps, in the log's order. What the writer's sums still tell is known."""
    remnants = [
        (_place(kept_file.segment), Remnant(settled=kept_file.settled(), whole=kept_file.told))
        for kept_file in sources.kept
    ]
    lost = [segment for segment in made.lost if segment.is_object or segment.kind == "steps"]
    remnants += [(_place(segment), Remnant(settled={}, whole=False)) for segment in lost]
    certain = {writer: sources.certain(writer) for _, writer, _ in (position for position, _ in remnants)}
    return [
        Remnant(settled=remnant.settled, whole=remnant.whole or certain[position[1]])
        for position, remnant in sorted(remnants, key=lambda pair: pair[0])
    ]


def _place(segment: Segment) -> tuple[float, str, int]:
    return *began(segment.writer), segment.first


def _correction(sources: Sources, made: Remade, charges: Sequence[LedgerRecord]) -> Totals:
    """What the repair's journal must say so that the sums over all journals are those of the rows that stay."""
    money = [row for rows in sources.money.by_file.values() for row in rows]
    rows = pa.concat_tables([steps_table([]).select(COLUMNS), *(kept_file.counted for kept_file in sources.kept)])
    wanted = totals_of(rows, [*money, *charges])
    return difference(wanted, together([_sums_of(sources, writer) for writer in made.heads]))


def _carry_out(run: Path, work: _Work) -> None:
    """Charges first, so that a crash in between leaves the budget too careful; then copies, then the new files.

    Before that, all names last that the repair's journal builds on: an earlier repair may have died before it waited.
    """
    tidy(run)
    for each in journals(run):
        make_end_last(run, each.writer)
    made = work.made
    folders = {QUARANTINE, *(name.rpartition("/")[0] for name in made.files)}
    for folder in sorted(folders):
        disk.make_directories(run / folder)
    for path in work.quarantine:
        with disk.storage_errors(path):
            _link(path, run / QUARANTINE)
    with disk.storage_errors(run / QUARANTINE):
        disk.sync_directory(run / QUARANTINE)
    journal = Appender(
        run=run,
        writer=made.by,
        heads=made.heads,
        carried=Carried(
            totals=text_of(work.totals),
            compacted=made.compacted,
            repaired={name: digest_of(data) for name, data in made.files.items()},
        ),
    )
    journal.commit(None, work.charges)
    for name, data in made.files.items():
        disk.write_durably(run / name, data)
    for path in set(work.quarantine) - {run / name for name in made.files}:
        disk.remove(path)
    journal.close()


def _link(path: Path, folder: Path) -> None:
    """Keep the file under a free name in `folder` as well."""
    plain = f"{path.parent.name}-{path.name}"
    names = (plain if not number else f"{plain}.{number}" for number in range(10_000))
    free = next(folder / name for name in names if not os.path.lexists(folder / name))
    os.link(path, free, follow_symlinks=path.exists())  # a link to nothing is kept as it is
