"""A log in numbers: which episodes it holds, how far they have come, and what all of it took.

Of format 2, ended episodes are found in `ends/` and sums in the newest object of each journal; rows are read only of
objects that no compaction has covered yet, and of files of format 1. Arrays throughout: no loop over rows, and none
over episodes but for their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalkit.store.looking import files_at_once, patiently
from evalkit.store.reader import tables_of
from evalkit.store.record import LedgerRecord
from evalkit.store.schema import LEDGER, ledger_records
from evalkit.store.segment import Kind, Segment
from evalkit.store.states import NUMBERS, ROW, STATE, SUMS, TEXTS, TOKENS, States
from evalkit.store.sums import totals_at
from evalkit.store.unmetered import UnmeteredRows


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEpisode:
    """What the log holds of one episode. Sums are of all its rows, superseded ones included."""

    environment: str
    suite: str
    instance: str
    agent: str
    replicate: int
    take: int
    """The highest."""
    steps: int
    """Rows in effect: the steps 0 to `steps` - 1."""
    ending: str
    """Of the last row in effect; empty while the episode goes on."""
    requests: int
    """All rows."""
    cost: int
    """In pico-dollars."""
    tokens: tuple[int, ...]
    """In, out, read from a cache, written to one, of reasoning: as the log's columns are in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIndex:
    """A log in numbers."""

    episodes: Mapping[str, HeldEpisode]
    rows: int
    """All rows, superseded ones included; so are the sums below, for that money was spent."""
    totals: Mapping[str, int]
    """`cost` in pico-dollars and the five `tokens_` columns."""
    cost_by_agent: Mapping[str, int]
    cost_by_worker: Mapping[str, int]
    """By the session that wrote the rows."""
    unmetered: Mapping[str, UnmeteredRows]
    """By agent, of all rows: replies whose provider did not say what they used. Agents without any are absent."""
    ledger: tuple[LedgerRecord, ...]


def read_index(run: Path) -> RunIndex:
    """The index of a run's log at one moment; an empty or absent log gives an empty one.

    Raises CorruptLogError for missing, damaged or swapped files and for episodes that lack a step where rows are read.
    """
    return patiently(run, lambda: _index(run))


def _index(run: Path) -> RunIndex:
    files, upto = files_at_once(run)
    states = _held(files)
    sums = totals_at(run, files, upto)
    return RunIndex(
        episodes=_Episodes(states),
        rows=int(states.numbers["requests"].sum()),
        totals={name: int(states.numbers[name].sum()) for name in SUMS},
        cost_by_agent=states.sum_by("agent", "cost"),
        cost_by_worker=sums.workers,
        unmetered=sums.unmetered(),
        ledger=tuple(ledger_records(tables_of("ledger", files["ledger"], LEDGER.names))),
    )


def _held(files: Mapping[Kind, Sequence[Segment]]) -> States:
    states = States()
    states.put_ends(tables_of("ends", [one for one in files["ends"] if not one.is_object], STATE))
    if (states.numbers["steps"] < 0).any():
        # Rows that did not come in order when they were compacted: they may be in order now, or are refused.
        whole = States()
        whole.fold(tables_of("steps", files["steps"], ROW))
        return whole
    old = States()
    old.fold(tables_of("steps", [one for one in files["steps"] if not one.writer], ROW))
    states.put_newer(old)
    recent = [replace(one, kind="steps") for one in files["ends"] if one.is_object]
    states.fold(tables_of("steps", recent, ROW))
    return states


class _Episodes(Mapping[str, HeldEpisode]):
    """Made into records one at a time: a run may have a million."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._values = {name: list(values) for name, values in states.values.items()}

    def __getitem__(self, episode: str) -> HeldEpisode:
        number, states = self._states.episodes[episode], self._states
        made: dict[str, Any] = {name: int(states.numbers[name][number]) for name in NUMBERS if name not in TOKENS}
        made |= {name: self._values[name][states.texts[name][number]] for name in TEXTS}
        return HeldEpisode(**made, tokens=tuple(int(states.numbers[name][number]) for name in TOKENS))

    def __iter__(self) -> Iterator[str]:
        return iter(self._states.episodes)

    def __len__(self) -> int:
        return len(self._states.episodes)
