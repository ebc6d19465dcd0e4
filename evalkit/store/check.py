"""Is the log whole? Files, page checksums, row digests, and the steps of every episode without a gap.

This looks at the log alone; whether replay reproduces it is for `evalkit verify` to say, which calls this first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evalkit.store.effect import Effect, Flags, Ints, rows_in_effect
from evalkit.store.examine import Examined, Flaw, examine, footer_problem
from evalkit.store.layout import lay_out
from evalkit.store.segment import Segment

__all__ = ["Flaw", "check_log"]


def check_log(run: Path) -> list[Flaw]:
    """Everything in a run's log that is not as it was written; empty if nothing is.

    Raises StorageError where the disk refuses, RunError where a newer evalkit wrote a file.
    """
    steps, ledger = lay_out(run, "steps"), lay_out(run, "ledger")
    found = [Flaw(segment=where, problem=what) for where, what in (*steps.flaws, *ledger.flaws)]
    for segment in ledger.segments:
        found += ledger_flaws(segment)
    files = [examine(segment) for segment in steps.segments]
    for one in files:
        found += one.flaws
    suspects = {flaw.segment for flaw in found}
    return found + missing_steps(known_rows(files), files, suspects)


def ledger_flaws(segment: Segment) -> list[Flaw]:
    """What is wrong with a file of money rows."""
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
    file: Ints
    """(n,) which file the row lies in."""
    row: Ints
    """(n,) and at which place."""
    effect: Effect


def known_rows(files: Sequence[Examined]) -> KnownRows:
    """Put the rows of all files together."""
    numbers: dict[str, int] = {}
    episode = [np.array([numbers.setdefault(one, len(numbers)) for one in file.episodes], np.int64) for file in files]
    none = np.zeros(0, np.int64)
    file_of = [np.full(len(one), number) for number, one in enumerate(episode)]
    row_of = [np.arange(len(one)) for one in episode]
    step = np.concatenate([none, *(group for file in files for group in file.step)])
    keep = np.flatnonzero(step >= 0)
    codes = np.concatenate([none, *episode])[keep]
    take = np.concatenate([none, *(group for file in files for group in file.take)])[keep]
    sound = np.concatenate([none.astype(np.bool_), *(group for file in files for group in file.sound)])[keep]
    return KnownRows(
        names=list(numbers),
        episode=codes,
        take=take,
        step=step[keep],
        sound=sound,
        file=np.concatenate([none, *file_of])[keep],
        row=np.concatenate([none, *row_of])[keep],
        effect=rows_in_effect(codes, take, step[keep], len(numbers)),
    )


def missing_steps(rows: KnownRows, files: Sequence[Examined], suspects: set[str]) -> list[Flaw]:
    """The first step each episode lacks or has twice, with the file where it should be."""
    found = []
    for episode, step, what in rows.effect.gaps:
        begin, end = rows.effect.start[episode], rows.effect.start[episode + 1]
        mine = rows.effect.order[begin:end]
        after = int(np.searchsorted(rows.step[mine], step, side="left"))
        behind = int(rows.file[mine[after]])
        ahead = int(rows.file[mine[after - 1]]) if after else 0
        problem = "the step is missing" if what == "missing" else "the step is there twice"
        where = _where(ahead, behind, files, suspects) if what == "missing" else files[behind].segment.name
        found.append(Flaw(segment=where, problem=problem, episode=rows.names[episode], step=step))
    return found


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
