"""Checks that the log is complete: files, their digests, and the steps of every episode without a gap.

It checks the log alone; `evalkit verify` calls it first, and then checks that replay reproduces the log.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from evalkit.errors import CorruptLogError
from evalkit.store.files.damage import damage, problem_of
from evalkit.store.files.layout import Layout, lay_out
from evalkit.store.files.record import ASK, CUT
from evalkit.store.files.segment import KINDS, Kind, Segment, read_segment
from evalkit.store.reading.arrays import coded, ints, of_kind
from evalkit.store.reading.effect import Effect, Ints, rows_in_effect, void

Look = Callable[[Segment, pa.Table], None]
"""Is given a file of steps, and its rows."""
ROWS = ("episode", "take", "step", "turn", "row_kind", "base_take", "ask_n")
"""Columns of STEPS that say which rows there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something in the log that was changed or is missing."""

    segment: str
    """Folder and file, within the run directory."""
    problem: str
    episode: str = ""
    """Empty: the flaw is about a file."""
    step: int = -1


def check_log(run: Path, look: Look | None = None) -> list[Flaw]:
    """Everything in a run's log that was changed or is missing; empty if nothing is. `look` is given each file of steps
    that can be read, in the log's order, and its rows.

    Raises StorageError if the disk refuses, RunError where a file has another format.
    """
    layouts: dict[Kind, Layout] = {kind: lay_out(run, kind) for kind in KINDS}
    problems = dict(flaw for layout in layouts.values() for flaw in layout.flaws)
    problems |= dict(damage(list(layouts.values())))
    rows = KnownRows()
    for kind in KINDS:
        for segment in layouts[kind].segments:
            try:
                table = read_segment(segment)
            except CorruptLogError as flaw:
                problems.setdefault(segment.name, problem_of(segment, flaw))
                continue
            if kind == "steps":
                rows.add(segment.name, table)
                if look is not None:
                    look(segment, table)
    flaws = [Flaw(segment=name, problem=problem) for name, problem in problems.items()]
    for episode, lost in rows.lost().items():
        flaws.append(Flaw(segment=lost.file, problem=lost.problem, episode=episode, step=lost.step))
    return flaws


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The first step that an episode lacks."""

    step: int
    take: int
    """The highest take of the episode."""
    base_take: int
    """The take that it began with."""
    problem: str
    file: str
    """The file of the rows around it, or those from the one to the other."""


class KnownRows:
    """Which rows the files of a log hold."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._files: list[str] = []
        self._parts: list[dict[str, Ints]] = []

    def add(self, file: str, table: pa.Table) -> None:
        """Take the rows of a file of steps, with ROWS."""
        names, codes = coded(table, "episode")
        numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], np.int64)
        columns = {name: ints(table, name) for name in ROWS if name not in ("episode", "row_kind")}
        kinds = {kind: of_kind(table, kind).astype(np.int64) for kind in (ASK, CUT)}
        where = np.full(table.num_rows, len(self._files), np.int64)
        self._files.append(file)
        self._parts.append({"episode": numbers[codes], "file": where, **columns, **kinds})

    def lost(self, changed: Sequence[Flaw] = ()) -> dict[str, Lost]:
        """By episode, the first step that it lacks, has twice, or lacks a request of that led to it; or that is
        `changed`."""
        if not self._parts:
            return {}
        rows = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        known = np.flatnonzero(rows[ASK] == 0)
        episode, take, step = (rows[name][known] for name in ("episode", "take", "step"))
        effect = rows_in_effect(episode, take, step, len(self._numbers), rows[CUT][known] > 0)
        order = known[effect.order]
        says = {"missing": "the step is missing", "twice": "the step is there twice"}
        found = {(number, at): says[what] for number, at, what in effect.gaps}
        for place in _of_other_takes(rows, order, effect):
            found.setdefault(place, "the step is missing: an earlier try's is there")
        for place in _without_asks(rows, order, effect):
            found.setdefault(place, "a request that led to the step is missing")
        for flaw in changed:
            if flaw.episode in self._numbers:
                found.setdefault((self._numbers[flaw.episode], flaw.step), flaw.problem)
        names, lost = list(self._numbers), dict[str, Lost]()
        for (number, at), problem in sorted(found.items()):
            own = order[effect.start[number] : effect.start[number + 1]]
            if not len(own):  # nothing but requests
                own = np.flatnonzero(rows["episode"] == number)
            behind = int(np.searchsorted(rows["step"][own], at))
            around = [self._files[int(file)] for file in rows["file"][own[max(0, behind - 1) : behind + 1]]]
            lost.setdefault(
                names[number],
                Lost(
                    step=at,
                    take=int(effect.take[number]),
                    base_take=int(rows["base_take"][own[-1]]),
                    problem=problem,
                    file=" to ".join(dict.fromkeys(around)),
                ),
            )
        return lost


def _of_other_takes(rows: Mapping[str, Ints], order: Ints, effect: Effect) -> list[tuple[int, int]]:
    """(episode, step) of steps in effect that began with another take than their episode's last: a later one began at
    step 0, and those of its steps are lost."""
    begun = np.flatnonzero(np.diff(effect.start))
    line = np.zeros(len(effect.start) - 1, np.int64)
    line[begun] = rows["base_take"][order[effect.start[begun + 1] - 1]]
    others = order[rows["base_take"][order] != line[rows["episode"][order]]]
    return list(zip(rows["episode"][others].tolist(), rows["step"][others].tolist(), strict=True))


def _without_asks(rows: Mapping[str, Ints], order: Ints, effect: Effect) -> list[tuple[int, int]]:
    """(episode, step) where an agent's code has asked more than is there: a step in effect says how often, and the asks
    of each step are numbered."""
    asks = np.flatnonzero(rows[ASK])
    steps = order[rows["ask_n"][order] > 0]
    if not len(asks) and not len(steps):
        return []
    episode, take, step = (rows[name] for name in ("episode", "take", "step"))
    cut = np.flatnonzero(rows[CUT])
    cuts = zip(episode[cut].tolist(), take[cut].tolist(), step[cut].tolist(), strict=True)
    asks = asks[~void(episode[asks], take[asks], step[asks], cuts)]
    # An episode is on the line of its first step in effect, else on the latest that has asked.
    line = np.zeros(len(effect.start) - 1, np.int64)
    np.maximum.at(line, rows["episode"][asks], rows["base_take"][asks])
    begun = np.flatnonzero(np.diff(effect.start))
    line[begun] = rows["base_take"][order[effect.start[begun]]]
    there: dict[tuple[int, int], set[int]] = {}
    for ask in asks[rows["base_take"][asks] == line[rows["episode"][asks]]].tolist():
        there.setdefault((int(rows["episode"][ask]), int(rows["step"][ask])), set()).add(int(rows["turn"][ask]))
    lost = {place for place, turns in there.items() if max(turns) >= len(turns)}
    for row in steps.tolist():
        place = int(rows["episode"][row]), int(rows["step"][row])
        if len(there.get(place, ())) != rows["ask_n"][row]:
            lost.add(place)
    return sorted(lost)
