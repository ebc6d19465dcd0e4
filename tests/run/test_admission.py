"""Admission by predicted cost: what a cut sweep holds, in a simulation that is a heap of times and costs."""

import heapq
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from evalkit.client.budget import BudgetStats
from evalkit.run.admission import Admission, Line
from evalkit.run.forecast import SPREAD, Forecast, Prior

UNIT = 1_000_000
"""Pico-dollars that one step costs."""
BOUND = 20 * UNIT
"""The most that one request can cost: far more than it does."""


def prior(agent: str, steps: float, suite: str = "s", step_cost: int = UNIT) -> Prior:
    return Prior(
        agent=agent,
        suite=suite,
        stand_in="knuth",
        played=4,
        cost=steps * step_cost,
        requests=steps,
        tokens_in=0.0,
        tokens_out=0.0,
        spread=SPREAD,
    )


def an_episode(agent: str, number: int, suite: str = "s") -> Any:
    return SimpleNamespace(
        id=f"{agent}:{suite}:{number}",
        cell=SimpleNamespace(agent=SimpleNamespace(name=agent), env=SimpleNamespace(name="e")),
        suite=SimpleNamespace(name=suite),
    )


@dataclass(slots=True)
class Play:
    """One episode of the simulation."""

    lane: str
    number: int
    length: int
    score: float
    steps: int = 0
    ended: bool = False
    asked: bool = False


@dataclass(kw_only=True)
class World:
    """Lanes of players that ask one step after the other; money is what the budget has."""

    budget: int | None
    draw: Callable[[str, random.Random], tuple[int, float]]
    """An episode's steps and its score."""
    seed: int = 0
    sizes: dict[str, int] = field(default_factory=lambda: {"a": 400})
    widths: dict[str, int] = field(default_factory=lambda: {"a": 16})
    step_s: dict[str, float] = field(default_factory=lambda: {"a": 1.0})
    step_cost: dict[str, int] = field(default_factory=lambda: {"a": UNIT})
    priors: dict[str, float] = field(default_factory=lambda: {"a": 10.0})
    deadline: float | None = None
    spent: int = 0
    charged: int = 0
    charge: Callable[[random.Random], int] = lambda _: 0
    """What failed attempts at a step cost beside it."""
    now: float = 0.0
    plays: dict[str, list[Play]] = field(default_factory=dict)
    """By lane, in admission order."""
    decisions: int = 0

    def run(self, *, gated: bool = True) -> "World":
        """Play until nothing moves any more. Not `gated`: whoever comes first starts, as long as there is money."""
        draws = random.Random(self.seed)
        self.plays = {lane: [] for lane in self.sizes}
        self.playing = dict.fromkeys(self.sizes, 0)
        self.admission = Admission(
            Forecast([prior(lane, steps, step_cost=self.step_cost[lane]) for lane, steps in self.priors.items()]),
            [self._line(lane) for lane in self.sizes],
            stats=self._stats,
            clock=lambda: self.now,
            deadline=self.deadline,
            first_bound=lambda _: BOUND,
        )
        heap: list[tuple[float, int, Play]] = []
        self._fill(heap, draws, gated)
        while heap:
            self.now, _, play = heapq.heappop(heap)
            play.steps += 1
            play.ended = play.steps == play.length
            if play.ended:
                self.playing[play.lane] -= 1
                self.admission.left(f"{play.lane}:s:{play.number}", "complete")
                self._fill(heap, draws, gated)
            else:
                self._ask(heap, draws, play)
        return self

    def _line(self, lane: str) -> Line:
        size = self.sizes[lane]
        todo: Iterator[Any] = (an_episode(lane, number) for number in range(size))
        return Line(
            name=lane,
            todo=todo,
            total=size,
            planned=size,
            ended=0,
            fresh=Counter({(lane, "s"): size}),
            bound=lambda: BOUND,
            reply_s=lambda: self.step_s[lane],
        )

    def _stats(self) -> BudgetStats:
        self.decisions += 1
        return BudgetStats(
            budget=self.budget,
            spent=self.spent,
            session=self.spent,
            charged=self.charged,
            reserved=0,
            left=None,
            waiting=0,
        )

    def _fill(self, heap: list[tuple[float, int, Play]], draws: random.Random, gated: bool) -> None:
        for lane, width in self.widths.items():
            while self.playing[lane] < width:
                if gated:
                    episode = self.admission.next(lane)
                else:
                    episode = next(self.admission.lines[lane].todo, None)
                    if episode is not None:
                        self.admission.lines[lane].head = episode
                        self.admission._start(self.admission.lines[lane], episode)
                if episode is None:
                    break
                play = Play(lane, len(self.plays[lane]), *self.draw(lane, draws))
                self.plays[lane].append(play)
                self.playing[lane] += 1
                self.admission.seated(episode.id, partial(_came, play, self.step_cost[lane]))
                self._ask(heap, draws, play)
                if not play.asked:
                    break

    def _ask(self, heap: list[tuple[float, int, Play]], draws: random.Random, play: Play) -> None:
        """One step is paid for and comes back later; without money for its worst case nothing is asked any more."""
        play.asked = self.budget is None or self.spent + BOUND <= self.budget
        if play.asked:
            charge = self.charge(draws)
            self.spent += self.step_cost[play.lane] + charge
            self.charged += charge
            pause = self.step_s[play.lane] * draws.uniform(0.9, 1.1)
            heapq.heappush(heap, (self.now + pause, play.number * len(self.sizes) + (play.lane == "a"), play))

    @property
    def unfinished(self) -> int:
        return sum(not play.ended for plays in self.plays.values() for play in plays)

    def prefix(self, lane: str = "a") -> list[float]:
        """Scores of the longest admitted prefix whose episodes have all ended: what a report is made of."""
        found = []
        for play in self.plays[lane]:
            if not play.ended:
                break
            found.append(play.score)
        return found


def _came(play: Play, step_cost: int) -> tuple[int, int]:
    return play.steps * step_cost, play.steps


def bad_ones_are_long(lane: str, draws: random.Random) -> tuple[int, float]:
    """A score between 0 and 1, and 3 steps for the best, 25 and more for the worst."""
    score = draws.random()
    return max(1, round(3 + 20 * (1 - score) + draws.gauss(0, 2))), score


LONG = 13.0
"""Steps of such an episode on average."""


def errors(values: list[float]) -> tuple[float, float]:
    """Mean error of an estimate of 0.5 over many sweeps, and its standard error."""
    return statistics.mean(values) - 0.5, statistics.stdev(values) / math.sqrt(len(values))


@pytest.mark.parametrize("foreseen", [LONG, 6.0, 26.0], ids=["right", "too low", "too high"])
def test_the_mean_of_a_cut_run_is_unbiased_though_length_depends_on_score(foreseen: float) -> None:
    """Also where the prior was wrong by a factor of 2. The mean of all that had ended when money ran out is biased."""
    sweeps = [
        World(budget=int(150 * LONG) * UNIT, draw=bad_ones_are_long, seed=seed, priors={"a": foreseen}).run()
        for seed in range(400)
    ]
    error, sure = errors([statistics.mean(sweep.prefix()) for sweep in sweeps])
    print(f"{error:+.5f} +- {sure:.5f}", statistics.mean(len(sweep.prefix()) for sweep in sweeps))
    assert abs(error) < 2 * sure
    assert sure < 0.002
    assert sum(sweep.unfinished > 0 for sweep in sweeps) <= 0.05 * len(sweeps)
    assert statistics.mean(len(sweep.prefix()) for sweep in sweeps) > 0.93 * 150


def test_without_admission_the_mean_of_what_has_ended_is_biased() -> None:
    sweeps = [
        World(budget=int(150 * LONG) * UNIT, draw=bad_ones_are_long, seed=seed, widths={"a": 64}).run(gated=False)
        for seed in range(200)
    ]
    ended = [[play.score for play in sweep.plays["a"] if play.ended] for sweep in sweeps]
    error, sure = errors([statistics.mean(one) for one in ended])
    print(f"{error:+.5f} +- {sure:.5f}")
    assert error > 10 * sure
    assert all(sweep.unfinished > 20 for sweep in sweeps)
