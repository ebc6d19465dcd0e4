"""A log in numbers: its episodes, their progress, and what all of it took.

One group-by over a few columns of its steps. It uses arrays: there is no loop over rows, and none over episodes except
for their names.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evalkit.store.files.record import DOUBTFUL, UNMETERED, UNSCORED, LedgerRecord
from evalkit.store.files.schema import LEDGER, ledger_records
from evalkit.store.reading.accounts import Account, accounts, spent
from evalkit.store.reading.effect import Ints
from evalkit.store.reading.looking import files_at_once, patiently
from evalkit.store.reading.reader import refuse_gaps, tables_of
from evalkit.store.reading.rows import COLUMNS, SUMS, LogNumbers
from evalkit.store.reading.totals import ByTier, CellTotals, TierTotals
from evalkit.store.reading.unmetered import UnmeteredReplies


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIndex:
    """A log in numbers."""

    episodes: "Episodes"
    rows: int
    """All requests, including superseded ones; the sums below include them too, because that money was spent."""
    totals: Mapping[str, int]
    """`cost` in pico-dollars and the five `tokens_` columns."""
    cost_by_agent: Mapping[str, int]
    cost_by_worker: Mapping[str, int]
    """By the session that wrote the rows."""
    tiers: ByTier
    """Of all rows, by the tier that served them."""
    unmetered: UnmeteredReplies
    """Of all rows: replies whose provider did not say what they used."""
    cells: Mapping[tuple[str, str], CellTotals]
    """Sums by agent and suite."""
    ledger: tuple[LedgerRecord, ...]

    def remaining(self, retry: Collection[str] = ()) -> set[str]:
        """The episodes that continue, and those that ended in one of these ways."""
        return self.episodes.ended_as(("", *UNSCORED, *retry))

    def books(self) -> dict[str, Account]:
        """The accounts of all sessions."""
        return accounts(self.ledger, self.cost_by_worker)

    @property
    def spent(self) -> int:
        """Pico-dollars that the run has spent: steps, charges and crash charges."""
        return spent(self.totals["cost"], self.books().values())


def read_index(run: Path) -> RunIndex:
    """The index of a run's log at one moment; an empty or absent log gives an empty one.

    Raises CorruptLogError for missing, damaged or swapped files and for episodes that lack a step.
    """
    return patiently(run, lambda: _index(run))


def _index(run: Path) -> RunIndex:
    files, numbers = files_at_once(run), LogNumbers()
    for segment in files["steps"]:
        numbers.add(tables_of("steps", [segment], COLUMNS))
    episodes = Episodes(numbers)
    cells = {cell.place: cell for cell in _cells(episodes)}
    (replies, cost), (doubtful, doubtful_cost) = numbers.unmetered[UNMETERED], numbers.unmetered[DOUBTFUL]
    by_agent: dict[str, int] = {}
    for cell in cells.values():
        by_agent[cell.agent] = by_agent.get(cell.agent, 0) + cell.cost
    return RunIndex(
        episodes=episodes,
        rows=sum(cell.rows for cell in cells.values()),
        totals={name: sum(getattr(cell, name) for cell in cells.values()) for name in SUMS},
        cost_by_agent=by_agent,
        cost_by_worker=numbers.cost_by_worker,
        tiers={
            tier: TierTotals(int(sums[0]), int(sums[1]), int(sums[2]), sums[3])
            for tier, sums in sorted(numbers.tiers.items())
            if sums[0]
        },
        unmetered=UnmeteredReplies(replies=replies, cost=cost, doubtful=doubtful, doubtful_cost=doubtful_cost),
        cells=cells,
        ledger=tuple(ledger_records(tables_of("ledger", files["ledger"], LEDGER.names))),
    )


def _cells(episodes: "Episodes") -> Iterator[CellTotals]:
    """By agent and suite, what the states of episodes say."""
    numbers, count = episodes.numbers, len(episodes)
    agents, suites, words = (list(numbers.values[name]) for name in ("agent", "suite", "ending"))
    codes = (numbers.texts["agent"] * len(suites) + numbers.texts["suite"])[:count]
    steps, ending = episodes.steps, episodes.ending
    cost = numbers.sums["cost"][:count]
    scored = np.array([bool(word) and word not in UNSCORED for word in words], np.bool_)[ending]
    by_cell = np.argsort(codes, kind="stable")
    begins = np.flatnonzero(np.diff(codes[by_cell], prepend=-1))
    for in_cell in np.split(by_cell, begins[1:]) if count else ():
        code = int(codes[in_cell[0]])
        ended = in_cell[scored[in_cell]]
        counts = np.bincount(ending[in_cell], minlength=1).tolist()
        place = agents[code // len(suites)], suites[code % len(suites)]
        cell = CellTotals(
            agent=place[0],
            suite=place[1],
            rows=int(numbers.sums["requests"][in_cell].sum()),
            steps=int(steps[in_cell].sum()),
            begun=len(in_cell),
            endings={words[index]: number for index, number in enumerate(counts) if index and number},
            ended_cost=int(cost[ended].sum()),
            ended_squares=float((cost[ended].astype(np.float64) ** 2).sum()),
            ended_steps=int(steps[ended].sum()),
            spells=numbers.spells.get(place, []),
        )
        for name in SUMS:
            setattr(cell, name, int(numbers.sums[name][in_cell].sum()))
        for episode in in_cell[~scored[in_cell]].tolist():
            cell.stay(int(steps[episode]), int(cost[episode]))
        yield cell


class HeldEpisode:
    """What the log holds of one episode. Sums are of all its rows, superseded ones included."""

    __slots__ = ("_all", "_at")

    def __init__(self, episodes: "Episodes", number: int) -> None:
        self._all, self._at = episodes, number

    @property
    def suite(self) -> str:
        """Name."""
        return self._all.text("suite", self._at)

    @property
    def instance(self) -> str:
        """Name."""
        return self._all.text("instance", self._at)

    @property
    def agent(self) -> str:
        """Name."""
        return self._all.text("agent", self._at)

    @property
    def replicate(self) -> int:
        """From 0."""
        return int(self._all.numbers.sums["replicate"][self._at])

    @property
    def take(self) -> int:
        """The highest."""
        return int(self._all.take[self._at])

    @property
    def base_take(self) -> int:
        """Of one without rows in effect: the line that it is on."""
        return self._all.numbers.cut_lines.get((self._at, self.take), self.take)

    @property
    def steps(self) -> int:
        """Rows in effect: the steps 0 to `steps` - 1."""
        return int(self._all.steps[self._at])

    @property
    def ending(self) -> str:
        """Of the last row in effect, or one of `UNSCORED`; empty while the episode continues."""
        return self._all.text("ending", self._at)

    @property
    def ended(self) -> bool:
        """Whether it has an ending, and is scored."""
        return bool(self.ending) and self.ending not in UNSCORED

    @property
    def requests(self) -> int:
        """All rows."""
        return int(self._all.numbers.sums["requests"][self._at])

    @property
    def cost(self) -> int:
        """In pico-dollars."""
        return int(self._all.numbers.sums["cost"][self._at])


class Episodes(Mapping[str, HeldEpisode]):
    """Looked up in arrays one at a time: a run may have a million."""

    def __init__(self, numbers: LogNumbers) -> None:
        """Raises CorruptLogError if an episode lacks a step."""
        self.numbers = numbers
        effect, endings = numbers.effect()
        refuse_gaps(list(numbers.episodes), effect)
        self.steps: Ints = np.diff(effect.start)
        """(episodes,) rows in effect."""
        self.take: Ints = np.maximum(effect.take, 0)
        """(episodes,) the highest."""
        self.ending: Ints = np.zeros(len(numbers.episodes), np.int64)
        """(episodes,) places in `values`."""
        begun = np.flatnonzero(self.steps)
        self.ending[begun] = endings[effect.order[effect.start[begun + 1] - 1]]
        self._words = {name: list(values) for name, values in numbers.values.items()}

    def text(self, name: str, number: int) -> str:
        """A text of an episode, by its number."""
        return self._words[name][int(self.ending[number] if name == "ending" else self.numbers.texts[name][number])]

    def __getitem__(self, episode: str) -> HeldEpisode:
        return HeldEpisode(self, self.numbers.episodes[episode])

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers.episodes)

    def __len__(self) -> int:
        return len(self.numbers.episodes)

    def __contains__(self, episode: object) -> bool:
        return episode in self.numbers.episodes

    def ended_as(self, endings: Collection[str]) -> set[str]:
        """The episodes whose ending is one of these; the empty one: those that continue."""
        chosen = np.array([word in endings for word in self._words["ending"]], np.bool_)
        numbers = np.flatnonzero(chosen[self.ending])
        if not len(numbers):
            return set()
        names = list(self.numbers.episodes)
        return {names[number] for number in numbers.tolist()}
