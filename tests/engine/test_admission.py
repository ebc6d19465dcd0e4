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
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evalkit.client.budget import BudgetStats
from evalkit.client.budget_state import Ceiling
from evalkit.engine.admit.admission import Admission
from evalkit.engine.admit.backlogs import LaneBacklog
from evalkit.engine.forecast import Forecast, Prior
from evalkit.store.reading.unmetered import UnmeteredReplies
from tests.support.examples import examples

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
    )


def an_episode(agent: str, number: int, suite: str = "s") -> Any:
    return SimpleNamespace(
        id=f"{agent}:{suite}:{number}",
        cell=SimpleNamespace(agent=SimpleNamespace(name=agent), env=SimpleNamespace(name="e")),
        suite=SimpleNamespace(name=suite),
        cell_key=(agent, suite),
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
    started: float = 0.0


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
    bounds: dict[str, int] = field(default_factory=dict)
    """What one request of a lane can cost at most; `BOUND` where nothing is said."""
    deadline: float | None = None
    spent: int = 0
    charged: int = 0
    charge: Callable[[random.Random], int] = lambda _: 0
    """What failed attempts at a step cost beside it."""
    now: float = 0.0
    plays: dict[str, list[Play]] = field(default_factory=dict)
    """By lane, in admission order."""
    decisions: int = 0
    itself: bool = False
    """Whether each stand-in is the agent itself."""
    waited: int = 0
    """Looks at which a lane with an empty place had episodes and started none."""
    emptied: float = 0.0
    """When that came first."""

    def run(self, *, admitted: bool = True) -> "World":
        """Play until nothing moves any more. Not `admitted`: whoever comes first starts, as long as there is money."""
        draws = random.Random(self.seed)
        self.plays = {lane: [] for lane in self.sizes}
        self.playing = dict.fromkeys(self.sizes, 0)
        self.admission = Admission(
            Forecast(
                replace(prior(lane, steps, step_cost=self.step_cost[lane]), itself=self.itself)
                for lane, steps in self.priors.items()
            ),
            [self._line(lane) for lane in self.sizes],
            stats=self._stats,
            clock=lambda: self.now,
            deadline=self.deadline,
            first_bound=lambda episode: self.bounds.get(episode.cell.agent.name, BOUND),
        )
        heap: list[tuple[float, int, Play]] = []
        self._fill(heap, draws, admitted)
        while heap:
            self.now, _, play = heapq.heappop(heap)
            play.steps += 1
            play.ended = play.steps == play.length
            if play.ended:
                self.playing[play.lane] -= 1
                self.admission.left(f"{play.lane}:s:{play.number}", "complete")
                self._fill(heap, draws, admitted)
            else:
                self._ask(heap, draws, play)
            if not heap and admitted and not self.admission.stuck():
                self._fill(heap, draws, admitted)
        return self

    def _line(self, lane: str) -> LaneBacklog:
        size = self.sizes[lane]
        todo: Iterator[Any] = (an_episode(lane, number) for number in range(size))
        return LaneBacklog(
            name=lane,
            todo=todo,
            total=size,
            planned=size,
            ended=0,
            fresh=Counter({(lane, "s"): size}),
            bound=lambda: self.bounds.get(lane, BOUND),
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
            unmetered=UnmeteredReplies(),
        )

    def _fill(self, heap: list[tuple[float, int, Play]], draws: random.Random, admitted: bool) -> None:
        for lane, width in self.widths.items():
            while self.playing[lane] < width:
                if admitted:
                    episode = next(iter(self.admission.next(lane)), None)
                else:
                    episode = next(self.admission.backlogs[lane].todo, None)
                    if episode is not None:
                        self.admission.backlogs[lane].head = episode
                        self.admission._start(self.admission.backlogs[lane], episode, self.now)
                if episode is None:
                    if self.admission.backlogs[lane].left:
                        self.emptied = self.emptied if self.waited else self.now
                        self.waited += 1
                    break
                play = Play(lane, len(self.plays[lane]), *self.draw(lane, draws), started=self.now)
                self.plays[lane].append(play)
                self.playing[lane] += 1
                self.admission.seated(episode.id, partial(_came, play, self.step_cost[lane]))
                self._ask(heap, draws, play)
                if not play.asked:
                    break

    def _ask(self, heap: list[tuple[float, int, Play]], draws: random.Random, play: Play) -> None:
        """One step is paid for and comes back later; without money for its worst case nothing is asked any more."""
        play.asked = self.budget is None or self.spent + self.bounds.get(play.lane, BOUND) <= self.budget
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


@pytest.mark.exhaustive
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
        World(budget=int(150 * LONG) * UNIT, draw=bad_ones_are_long, seed=seed, widths={"a": 64}).run(admitted=False)
        for seed in range(200)
    ]
    ended = [[play.score for play in sweep.plays["a"] if play.ended] for sweep in sweeps]
    error, sure = errors([statistics.mean(one) for one in ended])
    print(f"{error:+.5f} +- {sure:.5f}")
    assert error > 10 * sure
    assert all(sweep.unfinished > 20 for sweep in sweeps)


def of_any_length(lane: str, draws: random.Random) -> tuple[int, float]:
    """Around 10 steps."""
    del lane
    return max(1, round(draws.gauss(10, 3))), 0.5


THREE: dict[str, Any] = {
    "sizes": {"a": 400, "b": 200, "c": 100},
    "widths": {"a": 32, "b": 16, "c": 4},
    "step_s": {"a": 0.1, "b": 1.0, "c": 1.0},
    "step_cost": {"a": UNIT, "b": 5 * UNIT, "c": UNIT},
    "priors": {"a": 10.0, "b": 5.0, "c": 20.0},
}
"""A fast and cheap lane, a dear one whose prior is too low, and a narrow one whose prior is too high."""
WHOLE = (400 + 200 * 5 + 100) * 10 * UNIT


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_lanes_share_what_is_left_over_so_that_cells_stay_balanced(share: float, seed: int) -> None:
    """The fastest lane could spend it all before the narrow one has got anywhere."""
    world = World(budget=int(share * WHOLE), draw=of_any_length, seed=seed, **THREE).run()
    reached = {lane: len(plays) / world.sizes[lane] for lane, plays in world.plays.items()}
    assert world.unfinished == 0
    assert world.budget is not None
    assert 0.93 * world.budget < world.spent <= world.budget
    assert max(reached.values()) - min(reached.values()) < 0.06, reached
    assert world.admission.stuck()
    assert world.admission.why() == "budget"
    shown = {lane: statistics.mean(play.length for play in plays) for lane, plays in world.plays.items()}
    left = {lane: size - len(world.plays[lane]) for lane, size in world.sizes.items()}
    rest = sum(left[lane] * shown[lane] * world.step_cost[lane] for lane in left)
    assert world.admission.remaining() == pytest.approx(rest, rel=0.02)


@pytest.mark.parametrize("spare", [1.05, 20.0])
def test_where_all_is_predicted_to_fit_nobody_waits(spare: float) -> None:
    """However near the budget: a lane is as wide as it may be until its last episode has started."""
    priors = {"a": 10.0, "b": 10.0, "c": 10.0}
    world = World(budget=int(spare * WHOLE), draw=of_any_length, **{**THREE, "priors": priors}, itself=True).run()
    assert {lane: len(plays) for lane, plays in world.plays.items()} == world.sizes
    assert (world.unfinished, world.admission.why(), world.admission.remaining()) == (0, "", 0)
    assert world.waited == 0


def test_costs_of_failed_attempts_are_foreseen() -> None:
    """Charges that come to twice the price of the replies, as where a provider cuts its replies off."""
    world = World(
        budget=2_000 * UNIT, draw=of_any_length, charge=lambda draws: 20 * UNIT * (draws.random() < 0.1)
    ).run()
    assert world.unfinished == 0
    assert 40 < len(world.plays["a"]) < 70


@pytest.mark.parametrize("deadline", [60.0, 100.0])
def test_all_that_starts_ends_before_the_deadline_and_no_place_is_empty_long_before(deadline: float) -> None:
    """Episodes take 10 s, and the longest 20: all places are full until so long before the end."""
    world = World(budget=None, draw=of_any_length, deadline=deadline, sizes={"a": 10**4}).run()
    assert deadline - 22 < world.now < deadline
    assert world.emptied >= deadline - 20
    assert world.unfinished == 0
    assert world.admission.why() == "deadline"


def test_under_a_deadline_a_cell_that_takes_too_long_does_not_hold_up_the_others() -> None:
    """The long episode that is next needs 30 s of the 20 that are left; short ones need 4, and keep their order."""
    world = BlockWorld(seed=0, rounds={"ab": 0, "c": 3}, budget=10**6)
    forecast = Forecast([prior("c", 30.0, "s"), prior("c", 4.0, "t")])
    backlog = world._backlog("c", ("c",))
    backlog.reply_s = lambda: 1.0
    admission = Admission(forecast, [backlog], stats=world._stats, clock=lambda: 0.0, deadline=20.0)
    started = [episode.id for episode in admission.next("c", 6)]
    assert started == ["c:t:0", "c:t:1", "c:t:2"]
    assert backlog.why == "deadline"
    assert admission.next_s() == 30.0


def test_under_a_deadline_an_episode_takes_the_time_that_others_take_and_not_that_of_their_replies() -> None:
    """100 requests of 0.1 s would fit; where the machine lets each episode ask every 2 s, they do not."""
    world = BlockWorld(seed=0, rounds={"ab": 0, "c": 3}, budget=10**6)
    backlog, now = world._backlog("c", ("c",)), [0.0]
    backlog.reply_s = lambda: 0.1
    forecast = Forecast(prior("c", 100.0, suite) for suite in "st")
    admission = Admission(forecast, [backlog], stats=world._stats, clock=lambda: now[0], deadline=150.0)
    (first,) = admission.next("c")
    admission.seated(first.id, lambda: (10 * UNIT, 10))
    now[0] = 20.0
    assert admission.next("c") == []
    assert backlog.why == "deadline"
    assert admission.next_s() == 200.0


def test_under_a_deadline_the_pace_of_late_counts() -> None:
    """After a start of 2 s a request, replies of 0.1 s: 100 more requests fit where the call's average says 50 s."""
    backlog = BlockWorld(seed=0, rounds={"ab": 0, "c": 3}, budget=10**6)._backlog("c", ("c",))
    for _ in range(100):
        backlog.hear(2.0, 1)
    assert backlog.step_s == 2.0
    for _ in range(300):
        backlog.hear(0.1, 1)
    assert 0.1 <= backlog.step_s < 0.2


def test_a_decision_costs_the_same_however_many_episodes_are_in_flight() -> None:
    """Predictions asked for, as they are all that grows."""

    def asked(width: int) -> float:
        world = World(budget=10**9 * UNIT, draw=of_any_length, sizes={"a": 4 * width}, widths={"a": width})
        counted, plain = [0], Forecast.rest

        def rest(self: Forecast, agent: str, suite: str, *, cost: int, requests: int) -> float:
            counted[0] += 1
            return plain(self, agent, suite, cost=cost, requests=requests)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Forecast, "rest", rest)
            world.run()
        return counted[0] / (4 * width)

    assert asked(1_000) <= 1.5 * asked(100)


def test_a_prediction_that_was_low_is_an_exception_and_is_seen() -> None:
    """Episodes that take six times what those before them took: nothing could have foreseen it."""

    def draw(lane: str, draws: random.Random) -> tuple[int, float]:
        world.drawn += 1
        return (60 if world.drawn > 60 else 10), 0.5

    class Counting(World):
        drawn = 0

    world = Counting(budget=1_200 * UNIT, draw=draw)
    world.run()
    assert world.unfinished > 0
    assert world.spent <= 1_200 * UNIT


@pytest.mark.parametrize("seed", range(4))
def test_what_is_too_little_for_the_dearest_lane_goes_to_the_others(seed: int) -> None:
    """One of its episodes costs 3 % of the budget, with the room for its last request 5 %."""
    world = World(
        budget=16_000 * UNIT,
        draw=of_any_length,
        seed=seed,
        sizes={"a": 400, "b": 40},
        widths={"a": 32, "b": 32},
        step_s={"a": 1.0, "b": 1.0},
        step_cost={"a": UNIT, "b": 50 * UNIT},
        priors={"a": 10.0, "b": 10.0},
        bounds={"a": 20 * UNIT, "b": 300 * UNIT},
    ).run()
    assert world.budget is not None
    assert world.unfinished == 0
    assert 0.97 * world.budget < world.spent <= world.budget
    assert world.admission.given_up
    assert world.admission.why() == "budget"


@pytest.mark.parametrize("budget", [300, 1_000, 3_000])
def test_a_budget_is_not_promised_to_episodes_whose_price_nobody_knows(budget: int) -> None:
    """All would start at once, as the forecast allows, at five times its price: few would end."""
    world = World(
        budget=budget * UNIT, draw=of_any_length, sizes={"a": 400}, widths={"a": 400}, priors={"a": 2.0}
    ).run()
    assert world.unfinished <= 1
    assert world.spent > budget * UNIT - BOUND - 30 * UNIT


@pytest.mark.parametrize(("budget", "started"), [(34, 0), (35, 1)])
def test_an_episode_alone_needs_its_cost_a_margin_and_the_bound_of_a_request(budget: int, started: int) -> None:
    """10 are predicted and half as much may come to it; a request is bounded by 20."""
    world = World(budget=budget * UNIT, draw=of_any_length, priors={"a": 10.0}).run()
    assert len(world.plays["a"]) == started


@dataclass(kw_only=True)
class BlockWorld:
    """Two lanes, one of them with two agents, whose cells differ in price and in how well it is known. Money comes and
    goes as a test says."""

    seed: int
    rounds: dict[str, int]
    """By lane: how often each of its agents plays each of its suites."""
    begun: int = 0
    """Episodes of each lane that earlier calls began."""
    budget: int
    capped: tuple[tuple[str, str], ...] = ()
    """Lanes and agents with a budget of their own, of a tenth of it."""
    spent: int = 0
    charged: int = 0

    def __post_init__(self) -> None:
        draws, lanes = random.Random(self.seed), {"ab": ("a", "b"), "c": ("c",)}
        cells = [(agent, suite) for agents in lanes.values() for suite in "st" for agent in agents]
        self.forecast = Forecast([prior(agent, draws.uniform(2, 30), suite) for agent, suite in cells])
        for cell_key in cells:
            for _ in range(draws.choice([0, 0, 1, 5, 40])):
                self.forecast.learn(*cell_key, cost=round(draws.uniform(2, 90) * UNIT), requests=10)
        self.ceilings = {scope: Ceiling(budget=self.budget * UNIT // 10, before=0) for scope in self.capped}
        self.admission = Admission(
            self.forecast,
            [self._backlog(name, agents) for name, agents in lanes.items()],
            stats=self._stats,
            clock=lambda: 0.0,
            first_bound=lambda _: BOUND,
            ceilings=self.ceilings,
        )

    def _backlog(self, name: str, agents: tuple[str, ...]) -> LaneBacklog:
        numbers = range(self.rounds[name])
        todo = [an_episode(agent, number, suite) for number in numbers for suite in "st" for agent in agents]
        begun = {one.id: (one.cell_key, 3 * UNIT * n, 2 * n) for n, one in enumerate(todo[: self.begun], 1)}
        return LaneBacklog(
            name=name,
            todo=iter(todo),
            total=len(todo),
            planned=len(todo),
            ended=0,
            fresh=Counter(one.cell_key for one in todo if one.id not in begun),
            begun=begun,
            bound=lambda: BOUND,
        )

    def _stats(self) -> BudgetStats:
        return BudgetStats(
            budget=self.budget * UNIT,
            spent=self.spent * UNIT,
            session=self.spent * UNIT,
            charged=self.charged * UNIT,
            reserved=0,
            left=None,
            waiting=0,
            unmetered=UnmeteredReplies(),
        )

    def spend(self, percent: int) -> None:
        """So much of each budget is spent now."""
        self.spent = self.budget * percent // 100
        for ceiling in self.ceilings.values():
            ceiling.spent = ceiling.budget * percent // 100


@pytest.mark.exhaustive
@settings(max_examples=examples(400))
@given(
    seed=st.integers(0, 10_000),
    rounds=st.fixed_dictionaries({"ab": st.integers(1, 12), "c": st.integers(1, 20)}),
    begun=st.integers(0, 8),
    budget=st.integers(100, 6000),
    capped=st.sampled_from([(), (), (("agent", "a"),), (("agent", "b"),), (("agent", "a"), ("agent", "b"))]),
    charged=st.sampled_from([0, 0, 1]),
    blocks=st.lists(
        st.tuples(st.sampled_from(["ab", "c"]), st.integers(1, 25), st.integers(0, 99)), min_size=1, max_size=8
    ),
)
def test_a_block_is_what_single_decisions_would_let_start(blocks: list[tuple[str, int, int]], **settings: Any) -> None:
    """Nothing is learned between them, so that looks at those in flight change nothing."""
    whole, single = BlockWorld(**settings), BlockWorld(**settings)
    for lane, most, spent in blocks:
        whole.spend(spent)
        single.spend(spent)
        together, alone = whole.admission.next(lane, most), list[Any]()
        while len(alone) < most and (one := single.admission.next(lane)):
            alone += one
        assert [episode.id for episode in together] == [episode.id for episode in alone]
        assert whole.admission.backlogs[lane].why == single.admission.backlogs[lane].why
    assert whole.admission.remaining() == single.admission.remaining()


def test_an_agent_on_one_suite_is_struck_and_its_others_stay() -> None:
    world = BlockWorld(seed=1, rounds={"ab": 3, "c": 1}, begun=1, budget=10**6, capped=(("agent", "b"),))
    assert world.admission.next("ab")[0].cell_key == ("a", "s")
    world.admission.dismiss({("a", "s"), ("c", "t")})
    backlog = world.admission.backlogs["ab"]
    assert ("a", "s") not in backlog.fresh
    # Of the agent that was struck on one suite all others start, and the other agent's on both.
    started = Counter(one.cell_key for one in world.admission.next("ab", 100))
    assert started == {("a", "t"): 3, ("b", "s"): 3, ("b", "t"): 3}
    assert Counter(one.cell_key for one in world.admission.next("c", 100)) == {("c", "s"): 1}
