"""The rows of a log as arrays, file by file: which are in effect, and what they come to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evalkit.store.files.record import ANSWERED, CUT, DOUBTFUL, STEP, UNMETERED
from evalkit.store.reading.arrays import coded, floats, ints
from evalkit.store.reading.effect import Effect, Flags, Ints, rows_in_effect
from evalkit.store.reading.totals import PAUSE_S, joined

TOKENS = ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")
SUMS = ("cost", *TOKENS)
PLACE = ("environment", "suite", "instance", "agent")
COLUMNS = (
    *("episode", *PLACE, "ending", "replicate", "take", "step", *SUMS),
    *("row_kind", "base_take", "worker", "attempts", "started_at", "tier", "saved"),
    *("latency_s", "queue_s"),
)
"""Columns of STEPS that are read."""


class LogNumbers:
    """Episodes by number with what their rows say. Rows may come in any order."""

    def __init__(self) -> None:
        self.episodes: dict[str, int] = {}
        self.sums: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in (*SUMS, "requests", "replicate")}
        """One value an episode; sums are of all its rows."""
        self.texts: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in PLACE}
        """One value an episode: its place in `values`."""
        self.values: dict[str, dict[str, int]] = {name: {"": 0} for name in (*PLACE, "ending")}
        self.cost_by_worker: dict[str, int] = {}
        self.unmetered: dict[str, list[int]] = {UNMETERED: [0, 0], DOUBTFUL: [0, 0]}
        """Replies without usage or with doubtful figures: how many, and their cost."""
        self.tiers: dict[str, list[float]] = {}
        """By the tier that served them, replies: how many, their cost, what it saved, and their seconds."""
        self.spells: dict[tuple[str, str], list[tuple[float, float]]] = {}
        """By agent and suite, when requests were sent without a pause."""
        self.cut_lines: dict[tuple[int, int], int] = {}
        """By episode and take of a cut, the line that the episode is on."""
        self._rows: list[npt.NDArray[np.int32]] = []
        """(5, n) of each file, its steps and cuts: episode, take, step, ending, whether it is a cut."""

    def add(self, table: pa.Table) -> None:
        """Count the rows of a file, with COLUMNS."""
        if not table.num_rows:
            return
        kinds, kind = coded(table, "row_kind")
        cut, step = (np.array([word == wanted for word in kinds], np.bool_)[kind] for wanted in (CUT, STEP))
        names, own = coded(table, "episode")
        codes = self._numbers(names, own)
        rows = np.flatnonzero(cut | step)
        ending = self._codes("ending", *coded(table, "ending"))
        take, line = ints(table, "take"), ints(table, "base_take")
        for row in np.flatnonzero(cut).tolist():
            self.cut_lines[int(codes[row]), int(take[row])] = int(line[row])
        parts = codes, take, ints(table, "step"), ending, cut
        self._rows.append(np.stack([part[rows].astype(np.int32) for part in parts]))
        first = np.unique(own, return_index=True)[1]
        for name in PLACE:
            self.texts[name][codes[first]] = self._codes(name, *coded(table, name))[first]
        self.sums["replicate"][codes[first]] = ints(table, "replicate")[first]
        paid = ~cut
        np.add.at(self.sums["requests"], codes[paid], 1)
        for name in SUMS:
            np.add.at(self.sums[name], codes, ints(table, name))
        self._add_money(table)
        self._add_times(table, paid)

    def _add_money(self, table: pa.Table) -> None:
        cost = ints(table, "cost")
        workers, worker = coded(table, "worker")
        for name, sum_ in zip(workers, _grouped(worker, cost, len(workers)), strict=True):
            self.cost_by_worker[name] = self.cost_by_worker.get(name, 0) + sum_
        attempts, attempt = coded(table, "attempts")
        counts = _grouped(attempt, np.ones(len(cost), np.int64), len(attempts))
        for name, count, sum_ in zip(attempts, counts, _grouped(attempt, cost, len(attempts)), strict=True):
            found = self.unmetered.get(name.rpartition(",")[2])
            if found is not None:
                found[:] = found[0] + count, found[1] + sum_
        tiers, tier = coded(table, "tier")
        answered = np.array([name.rpartition(",")[2] in ANSWERED for name in attempts], np.int64)[attempt]
        parts = (_grouped(tier, own, len(tiers)) for own in (answered, cost, ints(table, "saved")))
        seconds = np.bincount(tier, floats(table, "latency_s") + floats(table, "queue_s"), len(tiers)).tolist()
        for name, *own in zip(tiers, *parts, seconds, strict=True):
            self.tiers[name] = [sum(pair) for pair in zip(self.tiers.get(name, (0, 0, 0, 0.0)), own, strict=True)]

    def _add_times(self, table: pa.Table, paid: Flags) -> None:
        agents, agent = coded(table, "agent")
        suites, suite = coded(table, "suite")
        cells, sent = (agent * len(suites) + suite)[paid], floats(table, "started_at")[paid]
        if not len(sent):
            return
        order = np.lexsort((sent, cells))
        cells, sent = cells[order], sent[order]
        begins = np.flatnonzero((np.diff(cells, prepend=-1) != 0) | (np.diff(sent, prepend=-np.inf) >= PAUSE_S))
        ends = np.append(begins, len(cells))[1:] - 1
        for cell, first, last in zip(cells[begins].tolist(), sent[begins].tolist(), sent[ends].tolist(), strict=True):
            place = agents[cell // len(suites)], suites[cell % len(suites)]
            self.spells[place] = joined([*self.spells.get(place, ()), (first, last)])

    def place(self, episode: str) -> dict[str, Any]:
        """The columns that say where an episode belongs, but for its own name."""
        number = self.episodes[episode]
        texts = {name: list(self.values[name])[self.texts[name][number]] for name in PLACE}
        return {**texts, "replicate": int(self.sums["replicate"][number])}

    def effect(self) -> tuple[Effect, Ints]:
        """(the rows in effect among all steps and cuts, each row's ending as a place in `values`)."""
        episode, take, step, ending, cut = np.concatenate([np.zeros((5, 0), np.int32), *self._rows], axis=1)
        episode, take, step = (part.astype(np.int64) for part in (episode, take, step))
        return rows_in_effect(episode, take, step, len(self.episodes), cut > 0), ending.astype(np.int64)

    def _numbers(self, names: Sequence[str], codes: Ints) -> Ints:
        """For each row the number of its episode; there is room for new ones then."""
        used = np.zeros(len(names), np.bool_)
        used[codes] = True
        numbers = self.episodes
        assigned = [
            numbers.setdefault(name, len(numbers)) if here else 0 for name, here in zip(names, used, strict=True)
        ]
        more = len(numbers) - len(self.sums["cost"])
        for arrays in (self.sums, self.texts) if more > 0 else ():
            for name, values in arrays.items():
                # Twice the room that is needed, so that it is seldom made.
                arrays[name] = np.concatenate([values, np.zeros(max(more, len(values)), np.int64)])
        return np.array(assigned, np.int64)[codes]

    def _codes(self, name: str, values: Sequence[str], codes: Ints) -> Ints:
        """For each row the place of its value in `values`."""
        places = self.values[name]
        return np.array([places.setdefault(value, len(places)) for value in values], np.int64)[codes]


def _grouped(codes: Ints, values: Ints, groups: int) -> list[int]:
    """Sums of values by group."""
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, codes, values)
    summed: list[int] = sums.tolist()
    return summed
