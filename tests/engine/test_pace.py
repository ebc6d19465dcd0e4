"""Agents that are compared start their episodes together, and end when nothing can be found out any more."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from evalkit.engine.episode import LaneContext, Player
from evalkit.engine.forecast import Forecast
from evalkit.engine.options import Stop
from evalkit.engine.pace import Pacer, may_begin
from evalkit.engine.scheduler import CellCount, LaneJob, play_lanes
from evalkit.machines.dealer import JobDealer
from tests.support.virtual_clock import run_virtual

AHEAD, WIDTH = 4, 3


class Sleeper(Player):
    """Plays an episode in the agent's time, counts how many have begun, and may end its lane after so many."""

    def __init__(self, seconds: dict[str, float], dies: dict[str, int]) -> None:
        self.seconds, self.dies = seconds, dies
        self.begun, self.most = Counter[str](), Counter[tuple[str, str]]()
        self.dropped = set[str]()

    async def play(self, active: Any, context: LaneContext) -> str:
        agent = active.episode.cell.agent.name
        if self.begun[agent] >= self.dies.get(agent, 1 << 30):
            context.lane_stop.set("lane", f"{agent} is gone")
            return "stopped"
        self.begun[agent] += 1
        for other in self.seconds:
            self.most[agent, other] = max(self.most[agent, other], self.begun[agent] - self.begun[other])
        await asyncio.sleep(self.seconds[agent])
        return "complete"


def lane(name: str, order: Iterable[str], player: Sleeper, stop: Stop) -> LaneJob:
    """A lane that plays one episode of each of these agents, in their order."""
    agents = list(order)

    def episode(number: int, agent: str) -> Any:
        cell = SimpleNamespace(agent=SimpleNamespace(name=agent))
        suite = SimpleNamespace(name="suite")
        return SimpleNamespace(
            id=f"{name} {number}", cell=cell, suite=suite, cell_key=(agent, "suite"), index=number, replicate=0
        )

    return LaneJob(
        name=name,
        width=WIDTH,
        episodes=len(agents),
        planned=len(agents),
        done_before=0,
        todo=(episode(number, agent) for number, agent in enumerate(agents) if agent not in player.dropped),
        activate=lambda one: SimpleNamespace(episode=one, acted=True),  # type: ignore[arg-type,return-value]
        asker=lambda _: player,
        context=LaneContext(log=SimpleNamespace(), worker="w", stop=stop),
        cells={(agent, "suite"): CellCount(planned=count, ended=0) for agent, count in Counter(agents).items()},
    )


def played(
    lanes: dict[str, list[str]],
    pairs: list[tuple[str, str]],
    seconds: dict[str, float],
    *,
    dies: dict[str, int] | None = None,
    alone: tuple[str, ...] = (),
) -> tuple[Sleeper, float]:
    """Who has begun how much when all players have ended, and after which time."""
    player, stop = Sleeper(seconds, dies or {}), Stop()
    jobs = [lane(name, order, player, stop) for name, order in lanes.items()]

    async def play() -> float:
        loop = asyncio.get_running_loop()

        def dismiss() -> None:
            player.dropped |= pace.vain()
            pace.drop({(agent, "suite") for agent in pace.vain()})

        def tell() -> None:
            loop.call_soon(dismiss)

        pace = Pacer(jobs, None, {"suite"}, AHEAD, tell)
        pace.ask(pairs, alone)
        await play_lanes(jobs)
        return loop.time()

    return player, run_virtual(play())


def test_a_fast_agent_waits_for_a_slow_one_and_the_slow_one_ends_no_later() -> None:
    lanes, seconds = {"fast": ["fast"] * 30, "slow": ["slow"] * 30}, {"fast": 1.0, "slow": 5.0}
    player, took = played(lanes, [("fast", "slow")], seconds)
    assert player.begun == {"fast": 30, "slow": 30}
    assert player.most["fast", "slow"] <= AHEAD
    assert took == 50.0  # what the slow one takes alone


def test_without_an_open_question_nobody_waits() -> None:
    lanes, seconds = {"fast": ["fast"] * 30, "slow": ["slow"] * 30}, {"fast": 1.0, "slow": 5.0}
    assert played(lanes, [], seconds)[0].most["fast", "slow"] > 20
    # Its own mean is wanted, whatever becomes of the pair.
    assert played(lanes, [("fast", "slow")], seconds, alone=("fast",))[0].most["fast", "slow"] > 20


def test_nobody_plays_on_beside_a_lane_that_has_ended() -> None:
    lanes = {name: [name] * 80 for name in ("a", "b", "c")}
    seconds = {"a": 1.0, "b": 1.0, "c": 1.0}
    player, _ = played(lanes, [("a", "c"), ("b", "c")], seconds, dies={"c": 6})
    # Of those of c that have begun all end: so many common draws there may be, and no more.
    assert player.begun["c"] == 6
    assert 6 <= player.begun["a"] <= 6 + AHEAD
    assert 6 <= player.begun["b"] <= 6 + AHEAD
    # The pair of a and b is open: both go on, and c holds nobody back.
    player, _ = played(lanes, [("a", "b"), ("a", "c"), ("b", "c")], seconds, dies={"c": 6})
    assert (player.begun["a"], player.begun["b"]) == (80, 80)


def test_lanes_that_wait_for_each_other_go_on() -> None:
    lanes = {"first": ["a"] * 20 + ["c"] * 20, "second": ["d"] * 20 + ["b"] * 20}
    player, _ = played(lanes, [("a", "b"), ("c", "d")], dict.fromkeys("abcd", 1.0))
    assert player.begun == dict.fromkeys("abcd", 20)


def test_what_is_dealt_to_other_processes_counts_as_begun() -> None:
    stop = Stop()
    jobs = [lane(name, [name] * 30, Sleeper({}, {}), stop) for name in ("fast", "slow")]
    Pacer(jobs, None, {"suite"}, AHEAD, lambda: None).ask([("fast", "slow")], ())
    schedule: Any = SimpleNamespace(jobs=jobs, admitter=None, forecast=Forecast(), question=None)
    dealer = JobDealer(schedule)
    assert len(dealer.deal("fast", 20)) == AHEAD
    assert dealer.deal("fast", 20) == []
    assert dealer.remaining("fast")
    assert len(dealer.deal("slow", 7)) == 7
    assert len(dealer.deal("fast", 20)) == 7


def test_the_bound_is_of_the_slowest_that_goes_on() -> None:
    begun = {"a": 10, "b": 50, "c": 20}
    ended: dict[str, int | None] = {"a": None, "b": None, "c": None}
    assert may_begin(["a", "b", "c"], begun.__getitem__, ended.get, 32) == (42, False)
    ended["a"] = 8
    assert may_begin(["a", "b", "c"], begun.__getitem__, ended.get, 32) == (52, False)
    assert may_begin(["a"], begun.__getitem__, ended.get, 32) == (8, True)


def test_an_agent_that_needs_a_suite_no_more_goes_on_with_others() -> None:
    player, stop = Sleeper({"new": 1.0}, {}), Stop()
    job = lane("new", ["new"] * 12, player, stop)
    job.cells = {("new", name): CellCount(planned=6, ended=0) for name in ("suite", "other")}
    pace = Pacer([job], None, {"suite", "other"}, AHEAD, lambda: None)
    pace.drop({("new", "other"), ("nobody", "suite")})
    job.dismiss({("new", "other")}, {("new", "other"): 2})
    assert job.spared == {("new", "other"): 4}
    assert (job.cells["new", "suite"].planned, job.cells["new", "other"].planned, job.planned) == (6, 2, 8)
    assert pace._left["new"] == 6
    pace.drop({("new", "suite"), ("new", "other")})
    assert pace._left["new"] == 0
