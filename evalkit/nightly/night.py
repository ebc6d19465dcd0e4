"""One night: a run of its own within the night's budget and deadline, then its place in the history and its alarms.

Called again on the same night it continues where it was cut short, and does nothing once the night is over. The budget
is that of the night's run, so it holds across kills; the deadline counts from when the night began, also when resumed.

If a night's money or time does not suffice for all instances, the last ones of its order remain. The next night begins
with these. Then it takes the others in the order in which they were measured last, so every instance has its turn.
Instances of equal age come in the sweep's order (strata interleaved, a random order within each). So the instances of a
night are a balanced random sample. All agents share the order, and all instances get replicate r before any gets r+1:
agents stay paired.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec

from evalkit.engine.freezing.freeze import ResolvedSweep, merge
from evalkit.engine.options import Launch, RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.view import View
from evalkit.errors import UsageError
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestOrder, ManifestSuite
from evalkit.frozen.manifests import read_manifest
from evalkit.money import show_usd
from evalkit.nightly.history_files import (
    FOLDER,
    JournalEntry,
    derive,
    last_end,
    nights,
    note,
    read_history,
    read_journal,
)
from evalkit.playing.sweeps import run_sweep
from evalkit.report.nights.history import NightRecord, Rule, cell_key
from evalkit.results.cells import planned_cells
from evalkit.text import many

# Which night it is: the UTC date on which it began. No daylight saving time moves it.

RESUMED_WITHIN_S = 12 * 3600.0
"""A night that was killed can be resumed until this long after it began, also after midnight."""


def parse_date(text: str) -> str:
    """`2026-11-21`. Raises UsageError."""
    try:
        parsed = date.fromisoformat(text).isoformat()
    except ValueError:
        parsed = ""
    if parsed != text:
        raise UsageError(f"--date: {text!r} is not a date: write it as 2026-11-21.")
    return parsed


def utc_date(now: float) -> str:
    """The UTC date of a time in seconds since 1970."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def tonight(nights: Sequence[str], now: float, *, cut_short_at: float | None, asked: str | None, folder: str) -> str:
    """The night to play.

    nights        those that there are, in order
    now           seconds since 1970
    cut_short_at  when the last night began, if it was cut short (killed, interrupted); None if it was not
    asked         the date that the user gave; None: the clock's

    Raises UsageError for a night before the last one.
    """
    last = nights[-1] if nights else ""
    if asked is None and cut_short_at is not None and 0 <= now - cut_short_at < RESUMED_WITHIN_S:
        return last
    night = asked or utc_date(now)
    if night < last:
        raise UsageError(
            f"{night} is before the last night, {last}, and nights must be in order. Is the clock right? If "
            f"{last} was a mistake, move {folder}/{last} away and delete its line in {folder}/history.jsonl."
        )
    return night


NEVER = -1

Seen = Mapping[tuple[str, str, str, int], int]
"""(agent, suite, instance's digest, replicate) -> the place of the last night in which it ended."""


def rotated(manifest: Manifest, history: Sequence[NightRecord]) -> Manifest:
    """The manifest with each suite's instances listed in tonight's order. `history`: nights before, oldest first."""
    last_seen = _last_seen(manifest, history)
    suites = {
        name: msgspec.structs.replace(suite, instances=tuple(_ordered(manifest, suite, last_seen)))
        for name, suite in manifest.suites.items()
    }
    return msgspec.structs.replace(manifest, suites=suites, order=ManifestOrder())


def _ordered(manifest: Manifest, suite: ManifestSuite, last_seen: Seen) -> list[ManifestInstance]:
    agents = [agent.name for agent in manifest.agents.values() if suite.environment in agent.packs]

    def age(digest: str) -> list[int]:
        """When its episodes were last measured, the oldest first: lists compare by their oldest."""
        return sorted(
            last_seen.get((agent, suite.name, digest, replicate), NEVER)
            for agent in agents
            for replicate in range(manifest.replicates)
        )

    return sorted(manifest.admitted(suite), key=lambda instance: age(instance.digest))


def _last_seen(manifest: Manifest, history: Sequence[NightRecord]) -> Seen:
    keys = {
        (agent.name, suite.name): cell_key(agent, suite)
        for suite in manifest.suites.values()
        for agent in manifest.agents.values()
        if suite.environment in agent.packs
    }
    last_seen: dict[tuple[str, str, str, int], int] = {}
    for index, record in enumerate(history):
        for cell in record.cells:
            if keys.get(cell.cell) != cell.key:
                continue
            # What was refused has had its turn: a provider that refuses an instance for good would else have it first.
            for digest, count in (Counter(cell.ended) + Counter(cell.gone)).items():
                for replicate in range(count):
                    last_seen[*cell.cell, digest, replicate] = index
    return last_seen


@dataclass(frozen=True, slots=True, kw_only=True)
class NightOptions:
    """What one call asks for beside the spec."""

    directory: Path
    """Of the sweep's run; its nights lie in `nights/` below it."""
    rule: Rule
    date: str | None = None
    """The night; None: by the clock."""
    repair: bool = False
    launch: Launch | None = None
    announce: Callable[[Sequence[str]], None] | None = None
    phase: Callable[[str], None] | None = None
    """As of `RunOptions`, both."""

    @property
    def folder(self) -> Path:
        """Where the nights lie."""
        return self.directory / FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """How a call ended."""

    night: str
    run: Path
    idle: str
    """Why nothing was played, in words; empty if something was."""
    outcome: RunOutcome | None
    """Of the run; None if nothing was played."""
    history: Sequence[NightRecord]
    """All nights, tonight's last; without tonight's where it was interrupted."""

    @property
    def record(self) -> NightRecord | None:
        """Tonight's; None if it was interrupted."""
        return next((record for record in self.history if record.night == self.night), None)


async def play_night(resolved: ResolvedSweep, options: NightOptions, show: Callable[[View], None]) -> Night:
    """Play tonight, or what is left of it. The caller holds the lock of `options.folder`.

    Raises UsageError for a night before the last one or a sweep that asks a question, and what `run_sweep` raises.
    """
    if resolved.sweep.decide is not None:
        raise UsageError(
            f"{resolved.sweep.source}: decide: nights watch for falls, each on its own sample; they answer no other "
            "question. Leave [decide] out, or play the sweep with `evalkit run`."
        )
    folder, now = options.folder, time.time()
    night_names, entries, known = nights(folder), read_journal(folder), read_history(folder)
    cut_short = bool(night_names) and _cut_short(last_end(entries, night_names[-1]))
    night = tonight(
        sorted({*night_names, *(record.night for record in known)}),
        now,
        cut_short_at=read_manifest(folder / night_names[-1]).created_at if cut_short else None,
        asked=options.date,
        folder=str(folder),
    )
    run = folder / night
    # What was cut short may hold more than the history knows; what is to be repaired cannot be read before.
    again = [
        last for last in night_names[-1:] if (cut_short or last == night) and not (last == night and options.repair)
    ]
    history = derive(folder, known, again, options.rule, options.announce)
    before = [record for record in history if record.night < night]
    resolved = replace(resolved, manifest=rotated(resolved.manifest, before))
    old = read_manifest(run) if night in night_names else None
    if old is not None and not options.repair:
        idle = _idle(resolved, old, run, history[-1], last_end(entries, night), now)
        if idle:
            return Night(night=night, run=run, idle=idle, outcome=None, history=history)
    sweep = resolved.sweep
    if old is not None and sweep.deadline_s is not None:
        resolved = replace(resolved, sweep=replace(sweep, deadline_s=old.created_at + sweep.deadline_s - now))
    note(folder, "began", night)
    folder = folder.absolute()  # what is played may change the working directory
    outcome = await run_sweep(
        resolved,
        RunOptions(
            directory=run,
            repair=options.repair,
            launch=options.launch,
            announce=options.announce,
            phase=options.phase,
        ),
        show,
    )
    note(folder, "ended", night, reason=outcome.reason, budget=sweep.budget)
    if outcome.reason == "interrupt":
        return Night(night=night, run=run, idle="", outcome=outcome, history=before)
    return Night(night=night, run=run, idle="", outcome=outcome, history=derive(folder, history, [night], options.rule))


def _cut_short(end: JournalEntry | None) -> bool:
    """Whether a night's last call was killed or interrupted, from how it ended."""
    return end is None or end.reason == "interrupt"


def _idle(
    resolved: ResolvedSweep, old: Manifest, run: Path, record: NightRecord, end: JournalEntry | None, now: float
) -> str:
    """Why a night that has begun is over, in words; empty if there is something to play."""
    sweep = resolved.sweep
    if _planned(merge(old, resolved.manifest, str(run))) > record.planned:
        return ""
    if not record.remaining:
        return f"all {many(record.planned, 'episode has', 'episodes have')} ended"
    if sweep.deadline_s is not None and now >= old.created_at + sweep.deadline_s:
        return "its deadline has passed"
    cut = end.budget if end is not None and end.reason == "budget" else None
    if cut is not None and sweep.budget is not None and sweep.budget <= cut:
        return f"its budget of {show_usd(sweep.budget)} is used up"
    return ""


def _planned(manifest: Manifest) -> int:
    return sum(len(suite.instances) * manifest.replicates for suite, _ in planned_cells(manifest))
