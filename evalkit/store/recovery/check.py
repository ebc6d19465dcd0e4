"""Checks that the log is complete: files, their digests, page checksums, row digests, and the steps of every episode
without a gap.

It checks the log alone; `evalkit verify` calls it first, and then checks that replay reproduces the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evalkit.store.files.chain import DigestChain, follow
from evalkit.store.files.layout import Layout, gaps, journal_object, lay_out
from evalkit.store.files.segment import KINDS, RANGE, Kind, Segment
from evalkit.store.reading.effect import Effect, Flags, Ints, rows_in_effect
from evalkit.store.recovery.examine import Examined, Flaw, Look, examine, footer_problem
from evalkit.store.recovery.recount import ends_flaws, totals_flaws

__all__ = ["Flaw", "check_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the files of a log hold."""

    layouts: Mapping[Kind, Layout]
    chain: DigestChain
    steps: Sequence[Examined]
    """Each file of steps, in the log's order."""


def look_through(run: Path, look: Look | None = None) -> Found:
    """Read what a check or a repair must know of a log. Raises as `check_log` does."""
    layouts = {kind: lay_out(run, kind) for kind in KINDS}
    chain = follow(run)
    return Found(layouts=layouts, chain=chain, steps=[examine(segment, look) for segment in layouts["steps"].segments])


def check_log(run: Path, look: Look | None = None) -> list[Flaw]:
    """Everything in a run's log that was changed or is missing; empty if nothing is. `look` is given each file of steps
    that can be read, in the log's order, and its rows.

    Raises StorageError if the disk refuses, RunError where a file has another format.
    """
    return flaws_of(run, look_through(run, look))


def flaws_of(run: Path, found: Found) -> list[Flaw]:
    """`check_log` of a log that was looked through."""
    layouts, chain, steps = found.layouts, found.chain, found.steps
    flaws = list(misplaced(run, layouts, chain))
    flawed = {flaw.segment for file in steps for flaw in file.flaws}
    for kind in ("ledger", "ends"):
        for segment in layouts[kind].segments:
            if segment.name not in flawed and not (segment.is_object and kind == "ends"):
                flaws += file_flaws(segment)
    for file in steps:
        flaws += file.flaws
    flawed = {flaw.segment for flaw in flaws}
    flaws += [Flaw(segment=where, problem=what) for where, what in chain.flaws if where not in flawed]
    rows = known_rows(steps)
    flaws += missing_steps(rows, steps, {flaw.segment for flaw in flaws})
    flaws = flaws or list(missing_asks(rows, steps))
    # Data that repeats the rows can be compared with them once the rows are complete.
    return flaws or [*ends_flaws(run), *totals_flaws(run)]


def misplaced(run: Path, layouts: Mapping[Kind, Layout], chain: DigestChain) -> Iterator[Flaw]:
    """Files that are missing, too many, or no files of a log; those that another file names are the chain's to tell."""
    reported = set(chain.missing)
    for kind, layout in layouts.items():
        hidden = _explained(run, kind, layout, chain.missing)
        for where, what in layout.flaws:
            if where not in hidden and where not in reported:
                reported.add(where)
                yield Flaw(segment=where, problem=what)


def _explained(run: Path, kind: Kind, layout: Layout, missing: Sequence[str]) -> set[str]:
    """Numbers that are missing since a compacted file is, which is known by its name."""
    lost = [
        match for name in missing if name.startswith(f"{kind}/") and (match := RANGE.fullmatch(name[len(kind) + 1 :]))
    ]
    explained = set()
    for writer, first, last in gaps(layout):
        if any(
            lost_range[1] == writer and int(lost_range[2]) <= last and first <= int(lost_range[3])
            for lost_range in lost
        ):
            names = [journal_object(run, writer, number).name for number in (first, last)]
            explained.add(names[0] + (f" to {names[1]}" if last > first else ""))
    return explained


def file_flaws(segment: Segment) -> list[Flaw]:
    """What is wrong with a file of money rows or ends, or with the money rows of an object."""
    problem = footer_problem(segment)
    return [Flaw(segment=segment.name, problem=problem)] if problem else []


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRows:
    """All rows of the log whose episode and step are known, in the log's order."""

    names: list[str]
    """The episodes."""
    episode: Ints
    """(n,) index into `names`."""
    take: Ints
    step: Ints
    sound: Flags
    ask: Flags
    """(n,) whether it is an ask and not a step."""
    line: Ints
    """(n,) of asks, and of the steps of agents that are code."""
    nth: Ints
    """(n,) of an ask, its place among those of its step; of a step, how many it has."""
    file: Ints
    """(n,) which file the row lies in."""
    row: Ints
    """(n,) and at which place."""
    effect: Effect
    """Of the steps."""

    def lines(self, effect: Effect) -> Ints:
        """(episodes,) the line that each is on: that of its first step in effect, else the highest of its asks."""
        line = np.zeros(len(self.names), np.int64)
        asks = np.flatnonzero(self.ask)
        np.maximum.at(line, self.episode[asks], self.line[asks])
        begun = np.flatnonzero(np.diff(effect.start))
        line[begun] = self.line[effect.order[effect.start[begun]]]
        return line

    def lost_asks(self, effect: Effect) -> list[tuple[int, int]]:
        """(episode, step) of each step on an episode's line that lacks an ask, or has one that was changed; with steps
        as these are in effect."""
        line = self.lines(effect)
        present: dict[tuple[int, int], set[int]] = {}
        lost = set[tuple[int, int]]()
        asks = np.flatnonzero(self.ask & (self.line == line[self.episode]))
        for row in asks.tolist():
            place = int(self.episode[row]), int(self.step[row])
            if self.sound[row]:
                present.setdefault(place, set()).add(int(self.nth[row]))
            else:
                lost.add(place)
        lost |= {place for place, numbers in present.items() if max(numbers) >= len(numbers)}
        steps = effect.order[(self.nth[effect.order] > 0) & self.sound[effect.order]]
        for row in steps.tolist():
            place = int(self.episode[row]), int(self.step[row])
            if len(present.get(place, ())) != self.nth[row]:
                lost.add(place)
        return sorted(lost)


def known_rows(files: Sequence[Examined]) -> KnownRows:
    """Put the rows of all files together."""
    numbers: dict[str, int] = {}
    episode = [np.array([numbers.setdefault(name, len(numbers)) for name in file.episodes], np.int64) for file in files]
    none = np.zeros(0, np.int64)
    file_of = [np.full(len(indices), number) for number, indices in enumerate(episode)]
    row_of = [np.arange(len(indices)) for indices in episode]
    step = np.concatenate([none, *(group for file in files for group in file.step)])
    keep = np.flatnonzero(step >= 0)
    codes = np.concatenate([none, *episode])[keep]
    take = np.concatenate([none, *(group for file in files for group in file.take)])[keep]
    sound = np.concatenate([none.astype(np.bool_), *(group for file in files for group in file.sound)])[keep]
    ask = np.concatenate([none.astype(np.bool_), *(group for file in files for group in file.ask)])[keep]
    line, nth = (
        np.concatenate([none, *(group for file in files for group in getattr(file, name))])[keep]
        for name in ("line", "nth")
    )
    return KnownRows(
        names=list(numbers),
        episode=codes,
        take=take,
        step=step[keep],
        sound=sound,
        ask=ask,
        line=line,
        nth=nth,
        file=np.concatenate([none, *file_of])[keep],
        row=np.concatenate([none, *row_of])[keep],
        effect=effect_of(np.flatnonzero(~ask), codes, take, step[keep], len(numbers)),
    )


def effect_of(chosen: Ints, episode: Ints, take: Ints, step: Ints, episodes: int) -> Effect:
    """Which of the chosen rows are in effect, by their numbers among all rows."""
    effect = rows_in_effect(episode[chosen], take[chosen], step[chosen], episodes)
    return replace(effect, order=chosen[effect.order])


def missing_asks(rows: KnownRows, files: Sequence[Examined]) -> Iterator[Flaw]:
    """Where a step lacks asks that led to it, with the file of the step."""
    places = {
        (int(rows.episode[row]), int(rows.step[row])): int(rows.file[row])
        for row in (*np.flatnonzero(rows.ask).tolist(), *rows.effect.order.tolist())
    }
    for episode, step in rows.lost_asks(rows.effect):
        yield Flaw(
            segment=files[places[episode, step]].segment.name,
            problem="an ask of the step is missing",
            episode=rows.names[episode],
            step=step,
        )


def missing_steps(rows: KnownRows, files: Sequence[Examined], suspects: set[str]) -> list[Flaw]:
    """The first step each episode lacks or has twice, with the file where it should be."""
    flaws = []
    for episode, step, what in rows.effect.gaps:
        begin, end = rows.effect.start[episode], rows.effect.start[episode + 1]
        of_episode = rows.effect.order[begin:end]
        after = int(np.searchsorted(rows.step[of_episode], step, side="left"))
        behind = int(rows.file[of_episode[after]])
        ahead = int(rows.file[of_episode[after - 1]]) if after else 0
        problem = "the step is missing" if what == "missing" else "the step is there twice"
        where = _where(ahead, behind, files, suspects) if what == "missing" else files[behind].segment.name
        flaws.append(Flaw(segment=where, problem=problem, episode=rows.names[episode], step=step))
    return flaws


def _where(ahead: int, behind: int, files: Sequence[Examined], suspects: set[str]) -> str:
    """The file a step is missing from, which lies between those of the steps around it."""
    low, high = min(ahead, behind), max(ahead, behind)
    between = [files[number].segment.name for number in range(low, high + 1)]
    suspected = [name for name in between if name in suspects]
    if suspected:
        return suspected[0]
    inner = between[1:-1]
    if len(inner) == 1:
        return inner[0]
    return between[0] if len(between) == 1 else f"{between[0]} to {between[-1]}"
