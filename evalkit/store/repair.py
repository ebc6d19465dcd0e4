"""Make a damaged log valid again: say what is given up, then give up exactly that.

Each episode that has lost a step is cut off at its first lost step; it will be played on from there. What is given up
was paid for, so its cost goes into the ledger first: where no row tells it any more, by what the sessions of the lost
rows had leased and had not given back (`lost_money.py`). Damaged files are kept in `quarantine/`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.money import PicoUsd, show_usd
from evalkit.store import disk
from evalkit.store.check import KnownRows, known_rows, ledger_flaws, missing_steps
from evalkit.store.commit import Load, commit
from evalkit.store.effect import Flags, rows_in_effect
from evalkit.store.examine import Examined, Flaw, examine, rows_of
from evalkit.store.lock import hold_run
from evalkit.store.lost_money import Remains, Remnant, lost_money
from evalkit.store.record import LedgerRecord
from evalkit.store.schema import LEDGER, conform, ledger_records, ledger_table, steps_table
from evalkit.store.segment import (
    LEDGER_FOLDER,
    STEPS_FOLDER,
    Layout,
    Segment,
    encode_segment,
    lay_out,
    read_segment,
    segment_name,
)

QUARANTINE = "quarantine"
GIVEN_UP = "given up by repair"
_FACTS = ("episode", "agent", "suite", "instance", "replicate", "worker", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """One episode that is cut off."""

    episode: str
    place: str
    """`agent:suite:instance:replicate`; empty where no row that is given up can be read."""
    step: int
    """Its first lost step: where it will be played on."""
    rows: int
    """Rows that are given up with it, as far as they are known."""
    cost: int
    """Of these rows, in pico-dollars; charged in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair gives up and changes; all empty if the log is whole."""

    flaws: tuple[Flaw, ...]
    given_up: tuple[GivenUp, ...]
    quarantined: tuple[str, ...]
    """Damaged files, kept in `quarantine/`."""
    unreadable: tuple[str, ...]
    """Files of steps that are lost without anybody knowing whose they were or what they cost: an episode whose last
    rows were there is cut off without being listed."""
    ledger_lost: tuple[str, ...]
    """Files of money rows that are lost: what they said counts only as far as other rows still show it."""
    recovered: int = 0
    """What stays charged beside the rows that are given up, since nothing else shows it any more."""
    uncounted: tuple[str, ...] = ()
    """Sessions that may have written the lost rows, and of which nobody knows what they had spent."""

    def lines(self) -> list[str]:
        """The same in sentences."""
        if not self.flaws:
            return ["The log is whole: nothing to repair."]
        said = [f"{len(self.flaws)} flaws in the log. Damaged files are kept in {QUARANTINE}/."]
        for one in self.given_up:
            said.append(
                f"Episode {one.episode}{f' ({one.place})' if one.place else ''} is cut off at step {one.step}: "
                f"{one.rows} rows are given up, {show_usd(one.cost)} of them stay charged."
            )
        for name in self.unreadable:
            said.append(f"{name}: its rows are lost, and nobody knows whose they were.")
        for name in self.ledger_lost:
            said.append(f"{name}: its money rows are lost; what they said counts as far as other rows show it.")
        if self.recovered:
            said.append(
                f"{show_usd(self.recovered)} more stay charged: what the sessions of lost rows had spent, or may have "
                "spent of what they had set aside."
            )
        for name in self.uncounted:
            said.append(
                f"Session {name} had no budget and did not end by itself: what its lost rows cost nobody knows."
            )
        return said


def repair(run: Path, announce: Callable[[Repair], None]) -> Repair:
    """Make the log valid again; `announce` is told what will be given up before anything is changed.

    Raises RunError if another process writes the run, StorageError where the disk refuses.
    """
    with hold_run(run):
        work = _inspect(run)
        announce(work.plan)
        if work.plan.flaws:
            _carry_out(run, work)
        return work.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A file of steps as it shall be."""

    path: Path
    first: int
    last: int
    source: Examined | None
    """None: nothing is left of it; the file will have no rows."""
    keep: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    plan: Repair
    targets: tuple[_Target, ...]
    empty_ledgers: Mapping[Path, tuple[int, int]]
    """Money files without rows, for those that are lost, with their ranges."""
    charges: tuple[LedgerRecord, ...]
    next_ledger: int
    quarantine: tuple[Path, ...]


def _inspect(run: Path) -> _Work:
    layout, ledger = lay_out(run, "steps"), lay_out(run, "ledger")
    files, gaps, aside = _by_claim([examine(segment) for segment in layout.segments], layout.next)
    rows = known_rows(files)
    keep, cuts = _kept(rows)
    masks = [np.zeros(len(file.episodes), np.bool_) for file in files]
    for number, mask in enumerate(masks):
        mask[rows.row[keep & (rows.file == number)]] = True
    targets = [
        _Target(path=_path(run, layout, file), first=file.first, last=file.last, source=file, keep=mask)
        for file, mask in zip(files, masks, strict=True)
        if file.flaws or not mask.all()
    ]
    nothing = np.zeros(0, np.bool_)
    targets += [
        _Target(path=run / STEPS_FOLDER / segment_name(*gap), first=gap[0], last=gap[1], source=None, keep=nothing)
        for gap in gaps
    ]
    bad_ledgers = [one for one in ledger.segments if ledger_flaws(one)]
    lost_ledgers = {one.path: (one.first, one.last) for one in bad_ledgers}
    for gap in _gaps(ledger.segments, ledger.next):
        lost_ledgers[run / LEDGER_FOLDER / segment_name(*gap)] = gap
    given_up, charges, told = _given_up(rows, keep, cuts, files)
    intact = [one for one in ledger.segments if one.path not in lost_ledgers]
    known = [record for one in intact for record in ledger_records(conform(read_segment(one), LEDGER))]
    charges = _not_yet(charges, known)
    remnants = [
        (file.first, Remnant(settled=_settled(file, mask), whole=one))
        for file, mask, one in zip(files, masks, told, strict=True)
    ]
    remnants += [(gap[0], Remnant(settled={}, whole=False)) for gap in gaps]
    recovered, uncounted = lost_money(
        run,
        Remains(
            files=[one for _, one in sorted(remnants, key=lambda pair: pair[0])],
            ledger=[*known, *charges],
            ledger_whole=not lost_ledgers,
        ),
    )
    found = [Flaw(segment=where, problem=what) for where, what in (*layout.flaws, *ledger.flaws)]
    found += [flaw for one in bad_ledgers for flaw in ledger_flaws(one)]
    found += [flaw for file in (*files, *aside) for flaw in file.flaws]
    found += missing_steps(rows, files, set())
    damaged = [target.source.segment.path for target in targets if target.source is not None]
    damaged += [file.segment.path for file in aside]
    damaged += [*(one.path for one in bad_ledgers), *layout.stray, *ledger.stray]
    unreadable = [target.path.relative_to(run).as_posix() for target in targets if _nobody_knows(target)]
    return _Work(
        plan=Repair(
            flaws=tuple(found),
            given_up=tuple(given_up),
            quarantined=tuple(path.relative_to(run).as_posix() for path in damaged),
            unreadable=tuple(unreadable),
            ledger_lost=tuple(path.relative_to(run).as_posix() for path in lost_ledgers),
            recovered=sum(row.amount for row in recovered),
            uncounted=uncounted,
        ),
        targets=tuple(targets),
        empty_ledgers=lost_ledgers,
        charges=(*charges, *recovered),
        next_ledger=ledger.next,
        quarantine=tuple(damaged),
    )


def _by_claim(files: list[Examined], following: int) -> tuple[list[Examined], list[tuple[int, int]], list[Examined]]:
    """(files that make up the log, ranges that are missing, files that are too many), by what each says it holds.

    Swapped files are thereby put in order instead of being given up; of two that say the same the rightly named counts.
    """
    chain: list[Examined] = []
    aside: list[Examined] = []
    gaps: list[tuple[int, int]] = []
    upto = 0
    for file in sorted(files, key=lambda one: (one.first, -one.last, one.first != one.segment.first)):
        if file.first < upto:
            aside.append(file)
            continue
        if file.first > upto:
            gaps.append((upto, file.first - 1))
        chain.append(file)
        upto = file.last + 1
    if upto < following:
        gaps.append((upto, following - 1))
    return chain, gaps, aside


def _gaps(segments: Sequence[Segment], following: int) -> Iterator[tuple[int, int]]:
    upto = 0
    for segment in segments:
        if segment.first > upto:
            yield upto, segment.first - 1
        upto = segment.last + 1
    if upto < following:
        yield upto, following - 1


def _path(run: Path, layout: Layout, file: Examined) -> Path:
    """Where a file belongs by what it says it holds."""
    for segment in layout.segments:
        if (segment.first, segment.last) == (file.first, file.last):
            return segment.path
    return run / STEPS_FOLDER / segment_name(file.first, file.last)


def _kept(rows: KnownRows) -> tuple[Flags, dict[int, int]]:
    """(which rows stay, by episode the step at which it is cut off): no row twice, none behind a lost step."""
    by_key = np.lexsort((~rows.sound, rows.step, rows.take, rows.episode))
    keys = np.stack([rows.episode, rows.take, rows.step])[:, by_key]
    once = np.zeros(len(by_key), np.bool_)
    once[by_key[np.concatenate([[True], (np.diff(keys) != 0).any(axis=0)])[: len(by_key)]]] = True
    single = np.flatnonzero(once)
    effect = rows_in_effect(rows.episode[single], rows.take[single], rows.step[single], len(rows.names))
    order = single[effect.order]
    place = np.arange(len(order)) - effect.start[rows.episode[order]]
    lost = (rows.step[order] != place) | ~rows.sound[order]
    cut = np.full(len(rows.names), np.iinfo(np.int64).max)
    np.minimum.at(cut, rows.episode[order[lost]], place[lost])
    keep = once & rows.sound & (rows.step < cut[rows.episode])
    return keep, {int(number): int(cut[number]) for number in np.unique(rows.episode[order[lost]])}


def _given_up(
    rows: KnownRows, keep: Flags, cuts: dict[int, int], files: Sequence[Examined]
) -> tuple[list[GivenUp], list[LedgerRecord], list[bool]]:
    """(episodes that are cut off, charges for the rows that are given up, of each file whether all its rows' costs are
    known)."""
    counts = np.bincount(rows.episode[~keep], minlength=len(rows.names))
    facts: dict[str, list[dict[str, Any]]] = {}
    told: list[bool] = []
    for number, file in enumerate(files):
        lost = np.zeros(len(file.episodes), np.bool_)
        lost[rows.row[~keep & (rows.file == number)]] = True
        found = rows_of(file, lost, _FACTS).to_pylist()
        kept = int((keep & (rows.file == number)).sum())
        told.append(not file.short and len(found) + kept == len(file.episodes) and bool(len(file.episodes)))
        for row in found:
            facts.setdefault(row["episode"], []).append(row)
    cut_of = {rows.names[number]: step for number, step in cuts.items()}
    charges: dict[tuple[str, str, str], int] = {}
    for episode, lost_rows in facts.items():
        for row in lost_rows:
            key = row["worker"], episode, row["agent"]
            charges[key] = charges.get(key, 0) + row["cost"]
    given_up = [
        GivenUp(
            episode=rows.names[number],
            place=_place(facts.get(rows.names[number], [])),
            step=step,
            rows=int(counts[number]),
            cost=sum(row["cost"] for row in facts.get(rows.names[number], [])),
        )
        for number, step in cuts.items()
    ]
    now = time.time()
    return (
        given_up,
        [
            # On the books of the session that paid: what it leased and what it spent still agree.
            LedgerRecord(
                kind="charge",
                session=worker,
                amount=PicoUsd(amount),
                agent=agent,
                episode=episode,
                step=cut_of.get(episode, -1),
                reason=GIVEN_UP,
                at=now,
            )
            for (worker, episode, agent), amount in charges.items()
            if amount
        ],
        told,
    )


def _not_yet(charges: Sequence[LedgerRecord], ledger: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """Those that no repair that was cut short has written: rows that are played again have another session."""
    written = {(row.session, row.episode, row.step, row.amount) for row in ledger if row.reason == GIVEN_UP}
    return [row for row in charges if (row.session, row.episode, row.step, row.amount) not in written]


def _settled(file: Examined, mask: Flags) -> dict[str, int]:
    """Cost of the rows that stay, by session, in their order."""
    found: dict[str, int] = {}
    for row in rows_of(file, mask, ("worker", "cost")).to_pylist():
        found[row["worker"]] = found.get(row["worker"], 0) + row["cost"]
    return found


def _place(facts: Sequence[dict[str, Any]]) -> str:
    return ":".join(str(facts[0][name]) for name in ("agent", "suite", "instance", "replicate")) if facts else ""


def _nobody_knows(target: _Target) -> bool:
    """Whether rows are lost here of which not even the episode and step are known."""
    if target.source is None:
        return True
    steps = np.concatenate([np.zeros(0, np.int64), *target.source.step])
    return bool((steps < 0).any()) or (not len(steps) and bool(target.source.flaws))


def _carry_out(run: Path, work: _Work) -> None:
    """Charges first, so that a crash in between leaves the budget too careful; then copies, then the new files."""
    for folder in (run / QUARANTINE, run / STEPS_FOLDER, run / LEDGER_FOLDER):
        disk.make_directories(folder)
    if work.charges:
        load = Load(steps=None, entries=work.charges, lines=(), steps_number=0, ledger_number=work.next_ledger)
        commit(run, load)
    for path in work.quarantine:
        with disk.storage_errors(path):
            _link(path, run / QUARANTINE)
    disk.sync_directory(run / QUARANTINE)
    # All are made before the first takes its place: swapped files are read under each other's name.
    made = [(target.path, _content(target)) for target in work.targets]
    for path, (first, last) in work.empty_ledgers.items():
        made.append((path, encode_segment(ledger_table([]), "ledger", first, last, compacted=True)))
    for path, data in made:
        disk.write_durably(path, memoryview(data))
    for path in set(work.quarantine) - {path for path, _ in made}:
        disk.remove(path)


def _content(target: _Target) -> pa.Buffer:
    rows = steps_table([]) if target.source is None else rows_of(target.source, target.keep)
    return encode_segment(rows, "steps", target.first, target.last, compacted=True)


def _link(path: Path, folder: Path) -> None:
    """Keep the file under a free name in `folder` as well."""
    plain = f"{path.parent.name}-{path.name}"
    names = (plain if not number else f"{plain}.{number}" for number in range(10_000))
    os.link(path, next(folder / name for name in names if not (folder / name).exists()))
