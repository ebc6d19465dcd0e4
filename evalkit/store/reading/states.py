"""Episodes by number, and their states as arrays: from rows of `ends/`, and from rows of steps after them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from evalkit.store.reading.arrays import are_steps, coded, ints
from evalkit.store.reading.effect import Before, Ints, rows_in_effect
from evalkit.store.reading.reader import refuse_gaps

TOKENS = ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")
SUMS = ("cost", *TOKENS)
TEXTS = ("environment", "suite", "instance", "agent", "ending")
NUMBERS = ("replicate", "take", "steps", "requests", *SUMS)
STATE = ("episode", *TEXTS, *NUMBERS)
"""Columns of ENDS but the facts."""
ROW = ("episode", *TEXTS, "replicate", "take", "step", *SUMS, "row_kind")
"""Columns of STEPS that states are made of."""


class States:
    """Episodes by number, and their states as arrays, one value an episode."""

    def __init__(self) -> None:
        self.episodes: dict[str, int] = {}
        self.numbers: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in NUMBERS}
        self.texts: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in TEXTS}
        """Places in `values`."""
        self.values: dict[str, dict[str, int]] = {name: {"": 0} for name in TEXTS}
        self._listed: dict[str, list[str]] = {}

    def text(self, name: str, number: int) -> str:
        """A text of an episode, by its number."""
        values = self._listed.get(name)
        if values is None or len(values) != len(self.values[name]):
            values = self._listed[name] = list(self.values[name])
        return values[int(self.texts[name][number])]

    def put_ends(self, table: pa.Table) -> None:
        """Take over rows of `ends/`: of each episode the one with most requests, the latest of equal ones."""
        places = self._places(*coded(table, "episode"))
        requests = ints(table, "requests")
        order = np.lexsort((np.arange(len(places)), requests, places))
        chosen = order[np.flatnonzero(np.diff(places[order], append=-1))]
        for name in NUMBERS:
            self.numbers[name][places[chosen]] = ints(table, name)[chosen]
        for name in TEXTS:
            self.texts[name][places[chosen]] = self._codes(name, *coded(table, name))[chosen]

    def fold(self, table: pa.Table) -> None:
        """Add rows, which come after all that is known. Asks count as requests and money, and for nothing else. Raises
        CorruptLogError if an episode lacks a step."""
        codes = self._places(*coded(table, "episode"))
        take, step, count = ints(table, "take"), ints(table, "step"), len(self.episodes)
        known = self.numbers["requests"] > 0
        before = Before(steps=self.numbers["steps"], take=np.where(known, self.numbers["take"], -1))
        steps = np.flatnonzero(are_steps(table))
        effect = rows_in_effect(codes[steps], take[steps], step[steps], count, before)
        refuse_gaps(list(self.episodes), effect)
        # A row that begins an episode says where it belongs; the last one in effect says whether it has ended.
        first = np.full(count, -1, np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        fresh = np.flatnonzero((first >= 0) & ~known)
        touched = np.flatnonzero(np.diff(effect.start))
        last = steps[effect.order[effect.start[touched + 1] - 1]]
        for name in TEXTS:
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
        assigned = [
            numbers.setdefault(name, len(numbers)) if here else 0 for name, here in zip(names, used, strict=True)
        ]
        more = len(numbers) - len(self.numbers["take"])
        for arrays in (self.numbers, self.texts) if more else ():
            for name, values in arrays.items():
                arrays[name] = np.concatenate([values, np.zeros(more, np.int64)])
        return np.array(assigned, np.int64)[codes]

    def _codes(self, name: str, values: Sequence[str], codes: Ints) -> Ints:
        """For each row the place of its value in `values`."""
        places = self.values[name]
        return np.array([places.setdefault(value, len(places)) for value in values], np.int64)[codes]
