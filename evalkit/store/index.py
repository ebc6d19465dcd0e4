"""A log in numbers: which episodes it holds, how far they have come, and what all of it took.

Of format 2, ended episodes are found in `ends/` and sums in the newest object of each journal; rows are read only of
objects that no compaction has covered yet, and of files of format 1. Arrays throughout: no loop over rows, and none
over episodes but for their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evalkit.store.arrays import coded, ints
from evalkit.store.effect import Before, Ints, rows_in_effect
from evalkit.store.layout import Layout, journal_object
from evalkit.store.looking import Unsettled, patiently, settled
from evalkit.store.reader import refuse_gaps, tables_of
from evalkit.store.record import ESTIMATED, UNMETERED, LedgerRecord
from evalkit.store.schema import LEDGER, ledger_records
from evalkit.store.segment import KINDS, Kind, Segment
from evalkit.store.unmetered import UnmeteredRows

_TOKENS = ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")
SUMS = ("cost", *_TOKENS)
_TEXTS = ("environment", "suite", "instance", "agent", "ending")
_NUMBERS = ("replicate", "take", "steps", "requests", *SUMS)
_STATE = ("episode", *_TEXTS, *_NUMBERS)
"""Columns of ENDS but the facts."""
_ROW = ("episode", *_TEXTS, "replicate", "take", "step", *SUMS)
"""Columns of STEPS that states are made of."""
_MONEY = ("agent", "worker", "attempts", *SUMS[:3])


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
    files = _files(run)
    states = _held(files)
    money = tables_of("steps", files["steps"], _MONEY)
    return RunIndex(
        episodes=_Episodes(states),
        rows=int(states.numbers["requests"].sum()),
        totals={name: int(states.numbers[name].sum()) for name in SUMS},
        cost_by_agent=states.sum_by("agent", "cost"),
        cost_by_worker=_by_worker(money),
        unmetered=_unmetered(money),
        ledger=tuple(ledger_records(tables_of("ledger", files["ledger"], LEDGER.names))),
    )


def _held(files: Mapping[Kind, Sequence[Segment]]) -> "_States":
    states = _States()
    states.put_ends(tables_of("ends", [one for one in files["ends"] if not one.is_object], _STATE))
    if (states.numbers["steps"] < 0).any():
        # Rows that did not come in order when they were compacted: they may be in order now, or are refused.
        whole = _States()
        whole.fold(tables_of("steps", files["steps"], _ROW))
        return whole
    old = _States()
    old.fold(tables_of("steps", [one for one in files["steps"] if not one.writer], _ROW))
    states.put_newer(old)
    recent = [replace(one, kind="steps") for one in files["ends"] if one.is_object]
    states.fold(tables_of("steps", recent, _ROW))
    return states


def _files(run: Path) -> dict[Kind, list[Segment]]:
    """The files of each kind, all as of the moment at which the first kind's objects were listed. Raises Unsettled."""
    found: dict[Kind, list[Segment]] = {}
    upto: dict[str, int] | None = None
    for kind in reversed(KINDS):
        layout = settled(run, kind)
        upto = _newest(layout) if upto is None else upto
        found[kind] = [one for one in layout.segments if not one.writer or _within(run, one, upto)]
    return found


def _newest(layout: Layout) -> dict[str, int]:
    """By writer, the number of its newest object; that is never deleted."""
    objects = [one for one in (*layout.segments, *layout.covered) if one.is_object]
    return {one.writer: one.last for one in sorted(objects, key=lambda one: one.last)}


def _within(run: Path, one: Segment, upto: Mapping[str, int]) -> bool:
    """Whether a file is of the moment when these were the newest objects. Raises Unsettled if it is in part."""
    newest = upto.get(one.writer, -1)
    if one.last <= newest:
        return True
    if not one.is_object:
        raise Unsettled(journal_object(run, one.writer, one.last).name, "is missing")
    return False


class _States:
    """Episodes by number, and their states as arrays, one value an episode."""

    def __init__(self) -> None:
        self.episodes: dict[str, int] = {}
        self.numbers: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in _NUMBERS}
        self.texts: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in _TEXTS}
        """Places in `values`."""
        self.values: dict[str, dict[str, int]] = {name: {"": 0} for name in _TEXTS}

    def put_ends(self, table: pa.Table) -> None:
        """Take over rows of `ends/`: of each episode the one with most requests, the latest of equal ones."""
        places = self._places(*coded(table, "episode"))
        requests = ints(table, "requests")
        order = np.lexsort((np.arange(len(places)), requests, places))
        chosen = order[np.flatnonzero(np.diff(places[order], append=-1))]
        for name in _NUMBERS:
            self.numbers[name][places[chosen]] = ints(table, name)[chosen]
        for name in _TEXTS:
            self.texts[name][places[chosen]] = self._codes(name, *coded(table, name))[chosen]

    def put_newer(self, other: "_States") -> None:
        """Take over the states of another that are later than one's own."""
        names = list(other.episodes)
        places = self._places(names, np.arange(len(names)))
        newer = np.flatnonzero(other.numbers["requests"] > self.numbers["requests"][places])
        for name in _NUMBERS:
            self.numbers[name][places[newer]] = other.numbers[name][newer]
        for name in _TEXTS:
            codes = self._codes(name, list(other.values[name]), other.texts[name])
            self.texts[name][places[newer]] = codes[newer]

    def fold(self, table: pa.Table) -> None:
        """Add rows, which come after all that is known. Raises CorruptLogError if an episode lacks a step."""
        codes = self._places(*coded(table, "episode"))
        take, step, count = ints(table, "take"), ints(table, "step"), len(self.episodes)
        known = self.numbers["requests"] > 0
        before = Before(steps=self.numbers["steps"], take=np.where(known, self.numbers["take"], -1))
        effect = rows_in_effect(codes, take, step, count, before)
        refuse_gaps(list(self.episodes), effect)
        # A row that begins an episode says where it belongs; the last one in effect says whether it has ended.
        first = np.full(count, -1, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        fresh = np.flatnonzero((first >= 0) & ~known)
        touched = np.flatnonzero(np.diff(effect.start))
        last = effect.order[effect.start[touched + 1] - 1]
        for name in _TEXTS:
            values = self._codes(name, *coded(table, name))
            if name == "ending":
                self.texts[name][touched] = values[last]
            else:
                self.texts[name][fresh] = values[first[fresh]]
        self.numbers["replicate"][fresh] = ints(table, "replicate")[first[fresh]]
        self.numbers["steps"] = effect.kept + np.diff(effect.start)
        self.numbers["take"] = np.maximum(effect.take, 0)
        np.add.at(self.numbers["requests"], codes, 1)
        for name in SUMS:
            np.add.at(self.numbers[name], codes, ints(table, name))

    def sum_by(self, text: str, number: str) -> dict[str, int]:
        """Sums of a number by a text."""
        sums = np.zeros(len(self.values[text]), np.int64)
        np.add.at(sums, self.texts[text], self.numbers[number])
        there = np.unique(self.texts[text]).tolist()
        names = list(self.values[text])
        return {names[code]: int(sums[code]) for code in there}

    def _places(self, names: Sequence[str], codes: Ints) -> Ints:
        """For each row the number of its episode; there is room for new ones then."""
        used = np.zeros(len(names), np.bool_)
        used[codes] = True
        numbers = self.episodes
        place = [numbers.setdefault(name, len(numbers)) if here else 0 for name, here in zip(names, used, strict=True)]
        more = len(numbers) - len(self.numbers["take"])
        for arrays in (self.numbers, self.texts) if more else ():
            for name, values in arrays.items():
                arrays[name] = np.concatenate([values, np.zeros(more, np.int64)])
        return np.array(place, np.int64)[codes]

    def _codes(self, name: str, values: Sequence[str], codes: Ints) -> Ints:
        """For each row the place of its value in `values`."""
        held = self.values[name]
        return np.array([held.setdefault(value, len(held)) for value in values], np.int64)[codes]


class _Episodes(Mapping[str, HeldEpisode]):
    """Made into records one at a time: a run may have a million."""

    def __init__(self, states: _States) -> None:
        self._states = states
        self._values = {name: list(values) for name, values in states.values.items()}

    def __getitem__(self, episode: str) -> HeldEpisode:
        number, states = self._states.episodes[episode], self._states
        made: dict[str, Any] = {name: int(states.numbers[name][number]) for name in _NUMBERS if name not in _TOKENS}
        made |= {name: self._values[name][states.texts[name][number]] for name in _TEXTS}
        return HeldEpisode(**made, tokens=tuple(int(states.numbers[name][number]) for name in _TOKENS))

    def __iter__(self) -> Iterator[str]:
        return iter(self._states.episodes)

    def __len__(self) -> int:
        return len(self._states.episodes)


def read_unmetered(run: Path) -> dict[str, UnmeteredRows]:
    """By agent, replies without usage, of all rows. Raises CorruptLogError."""
    return patiently(run, lambda: _unmetered(tables_of("steps", settled(run, "steps").segments, _MONEY)))


def _by_worker(table: pa.Table) -> dict[str, int]:
    names, codes = coded(table, "worker")
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, codes, ints(table, "cost"))
    return dict(zip(names, sums.tolist(), strict=True))


def _unmetered(table: pa.Table) -> dict[str, UnmeteredRows]:
    words, attempts = coded(table, "attempts")
    last = [word.rpartition(",")[2] for word in words]
    kind = np.array([(word in (UNMETERED, ESTIMATED)) + (word == ESTIMATED) for word in last], np.int64)
    if not kind.any():
        return {}
    rows = kind[attempts]
    names, agents = coded(table, "agent")
    cost, read, written = (ints(table, name) for name in ("cost", "tokens_in", "tokens_out"))
    found = {}
    for number, name in enumerate(names):
        mine, estimated = (rows >= 1) & (agents == number), (rows == 2) & (agents == number)
        if mine.any():
            found[name] = UnmeteredRows(
                replies=int(mine.sum()),
                cost=int(cost[mine].sum()),
                estimated=int(estimated.sum()),
                tokens_in=int(read[estimated].sum()),
                tokens_out=int(written[estimated].sum()),
            )
    return found
