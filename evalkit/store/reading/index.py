"""A log in numbers: its episodes, their progress, and what all of it took.

Ended episodes are in `ends/` and sums in the newest object of each journal. Rows are read only from objects that are
not compacted yet. It uses arrays: there is no loop over rows, and none over episodes except for their names.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from evalkit.store.files.record import UNSCORED, LedgerRecord
from evalkit.store.files.schema import LEDGER, ledger_records
from evalkit.store.files.segment import Kind, Segment
from evalkit.store.reading.looking import files_at_once, patiently
from evalkit.store.reading.reader import tables_of
from evalkit.store.reading.states import ROW, STATE, SUMS, TOKENS, States
from evalkit.store.reading.sums import totals_at
from evalkit.store.reading.totals import CellTotals
from evalkit.store.reading.unmetered import Unmetered


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIndex:
    """A log in numbers."""

    episodes: "Episodes"
    rows: int
    """All rows, including superseded ones; the sums below include them too, because that money was spent."""
    totals: Mapping[str, int]
    """`cost` in pico-dollars and the five `tokens_` columns."""
    cost_by_agent: Mapping[str, int]
    cost_by_worker: Mapping[str, int]
    """By the session that wrote the rows."""
    unmetered: Unmetered
    """By agent, of all rows: replies whose provider did not say what they used. Agents without any are absent."""
    cells: Mapping[tuple[str, str], CellTotals]
    """Sums by agent and suite."""
    ledger: tuple[LedgerRecord, ...]

    def owed(self, retry: Collection[str] = ()) -> set[str]:
        """The episodes that continue, and those that ended in one of these ways."""
        return self.episodes.ended_as(("", *UNSCORED, *retry))


def read_index(run: Path) -> RunIndex:
    """The index of a run's log at one moment; an empty or absent log gives an empty one.

    Raises CorruptLogError for missing, damaged or swapped files and for episodes that lack a step where rows are read.
    """
    return patiently(run, lambda: _index(run))


def _index(run: Path) -> RunIndex:
    files, upto = files_at_once(run)
    states = _held(files)
    sums = totals_at(run, upto)
    return RunIndex(
        episodes=Episodes(states),
        rows=int(states.numbers["requests"].sum()),
        totals={name: int(states.numbers[name].sum()) for name in SUMS},
        cost_by_agent=states.sum_by("agent", "cost"),
        cost_by_worker=sums.workers,
        unmetered=sums.unmetered(),
        cells=sums.cells,
        ledger=tuple(ledger_records(tables_of("ledger", files["ledger"], LEDGER.names))),
    )


def _held(files: Mapping[Kind, Sequence[Segment]]) -> States:
    states = States()
    states.put_ends(tables_of("ends", [segment for segment in files["ends"] if not segment.is_object], STATE))
    if (states.numbers["steps"] < 0).any():
        # Rows that were not in order when they were compacted: they may be in order now, or are refused.
        whole = States()
        whole.fold(tables_of("steps", files["steps"], ROW))
        return whole
    recent = [msgspec.structs.replace(segment, kind="steps") for segment in files["ends"] if segment.is_object]
    states.fold(tables_of("steps", recent, ROW))
    return states


class HeldEpisode:
    """What the log holds of one episode. Sums are of all its rows, superseded ones included."""

    __slots__ = ("_at", "_states")

    def __init__(self, states: States, number: int) -> None:
        self._states, self._at = states, number

    @property
    def environment(self) -> str:
        """Name."""
        return self._states.text("environment", self._at)

    @property
    def suite(self) -> str:
        """Name."""
        return self._states.text("suite", self._at)

    @property
    def instance(self) -> str:
        """Name."""
        return self._states.text("instance", self._at)

    @property
    def agent(self) -> str:
        """Name."""
        return self._states.text("agent", self._at)

    @property
    def replicate(self) -> int:
        """From 0."""
        return int(self._states.numbers["replicate"][self._at])

    @property
    def take(self) -> int:
        """The highest."""
        return int(self._states.numbers["take"][self._at])

    @property
    def steps(self) -> int:
        """Rows in effect: the steps 0 to `steps` - 1."""
        return int(self._states.numbers["steps"][self._at])

    @property
    def ending(self) -> str:
        """Of the last row in effect, or one of `UNSCORED`; empty while the episode continues."""
        return self._states.text("ending", self._at)

    @property
    def ended(self) -> bool:
        """Whether it has an ending, and is scored."""
        return bool(self.ending) and self.ending not in UNSCORED

    @property
    def requests(self) -> int:
        """All rows."""
        return int(self._states.numbers["requests"][self._at])

    @property
    def cost(self) -> int:
        """In pico-dollars."""
        return int(self._states.numbers["cost"][self._at])

    @property
    def tokens(self) -> tuple[int, ...]:
        """In, out, read from a cache, written to one, of reasoning: as the log's columns are in order."""
        return tuple(int(self._states.numbers[name][self._at]) for name in TOKENS)


class Episodes(Mapping[str, HeldEpisode]):
    """Looked up in arrays one at a time: a run may have a million."""

    def __init__(self, states: States) -> None:
        self._states = states

    def __getitem__(self, episode: str) -> HeldEpisode:
        return HeldEpisode(self._states, self._states.episodes[episode])

    def __iter__(self) -> Iterator[str]:
        return iter(self._states.episodes)

    def __len__(self) -> int:
        return len(self._states.episodes)

    def __contains__(self, episode: object) -> bool:
        return episode in self._states.episodes

    def ended_as(self, endings: Collection[str]) -> set[str]:
        """The episodes whose ending is one of these; the empty one: those that continue."""
        chosen = np.array([word in endings for word in self._states.values["ending"]], np.bool_)
        numbers = np.flatnonzero(chosen[self._states.texts["ending"]])
        if not len(numbers):
            return set()
        names = list(self._states.episodes)
        return {names[number] for number in numbers.tolist()}
