"""The time that a call still takes, as the display says it, on lanes that are played tick by tick."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evalkit.engine.episode import LaneContext
from evalkit.engine.forecast import Forecast, Prior
from evalkit.engine.options import Stop
from evalkit.engine.scheduler import CellCount, LaneJob
from evalkit.engine.time_left import SETTLED_S, TimeLeft

TICK_S = 0.25
PLACE = ("gpt", "s")


def prior(requests: float) -> Prior:
    return Prior(
        agent="gpt",
        suite="s",
        stand_in="p",
        played=1,
        cost=1.0,
        requests=requests,
        tokens_in=0,
        tokens_out=0,
    )


@dataclass
class Backlog:
    """What a lane's next episode waits for."""

    why: str = ""


@dataclass
class Fleet:
    """A lane whose episodes take `length` requests of `reply_s` each, `width` of them at once."""

    episodes: int
    width: int
    length: int
    reply_s: float
    limit: int | None = None
    opens_s: float = 0.0
    """Until then it plays one episode at a time."""
    now: float = 0.0
    learn: Forecast | None = None
    name: str = "lane"
    held: Backlog | None = None
    """Says why its next episode may not start."""
    job: LaneJob = field(init=False)

    def __post_init__(self) -> None:
        held = self.held
        context = LaneContext(log=cast(Any, None), worker="w", stop=Stop())
        planned = self.episodes if self.limit is None else self.limit
        self.job = LaneJob(
            name=self.name,
            width=self.width,
            episodes=self.episodes,
            planned=planned,
            done_before=0,
            todo=iter(()),
            activate=cast(Any, None),
            asker=cast(Any, None),
            context=context,
            cells={PLACE: CellCount(planned=self.episodes, ended=0)},
            admitter=None if held is None else cast(Any, SimpleNamespace(held_by=lambda _: held.why)),
        )
        self.started = 0
        self.partial = 0.0

    @property
    def over(self) -> bool:
        return self.job.done >= self.job.planned

    def tick(self) -> None:
        context = self.job.context
        width = self.width if self.now >= self.opens_s else 1
        while len(context.flying) < width and self.started < self.job.planned and not (self.held and self.held.why):
            episode = SimpleNamespace(
                cell=SimpleNamespace(agent=SimpleNamespace(name="gpt")), suite=SimpleNamespace(name="s")
            )
            context.flying[str(self.started)] = cast(
                Any, SimpleNamespace(episode=episode, position=SimpleNamespace(step=0))
            )
            self.started += 1
        context.playing = len(context.flying)
        self.now += TICK_S
        self.partial += TICK_S / self.reply_s
        made, self.partial = int(self.partial), self.partial % 1
        for name, active in list(context.flying.items()):
            active.position.step += made
            context.steps += made
            if active.position.step >= self.length:
                del context.flying[name]
                context.ended["stable"] = context.ended.get("stable", 0) + 1
                self.job.cells[PLACE].ended += 1
                if self.learn is not None:
                    self.learn.learn(*PLACE, cost=1, requests=self.length)


def looks(fleet: Fleet, forecast: Forecast) -> Iterator[tuple[float, float | None]]:
    """(clock, what is said) until the lane is over."""
    left = TimeLeft([fleet.job], forecast, 0.0)
    while not fleet.over:
        fleet.tick()
        yield fleet.now, left.look(fleet.now)


@pytest.mark.parametrize(("episodes", "width"), [(8, 8), (200, 16), (20, 64)])
def test_it_is_said_before_any_episode_ends_and_it_holds(episodes: int, width: int) -> None:
    fleet = Fleet(episodes=episodes, width=width, length=100, reply_s=0.5)
    said = list(looks(fleet, Forecast([prior(100)])))
    total = fleet.now
    first = next(now for now, left in said if left is not None)
    assert first < 0.2 * 100 * 0.5  # long before the first episode ends
    for now, left in said:
        if left is not None and total - now > 0.3 * total:
            assert left == pytest.approx(total - now, rel=0.25), now


def test_it_does_not_swing_where_all_episodes_end_together() -> None:
    fleet = Fleet(episodes=64, width=16, length=100, reply_s=0.5)
    ends = [now + left for now, left in looks(fleet, Forecast([prior(130)])) if left is not None]
    assert max(abs(after - before) for before, after in pairwise(ends)) < 0.1 * fleet.now


def test_the_whole_width_is_assumed_while_the_window_opens() -> None:
    fleet = Fleet(episodes=320, width=32, length=20, reply_s=0.5, opens_s=6.0)
    first = next((now, left) for now, left in looks(fleet, Forecast([prior(20)])) if left is not None)
    for _ in looks(fleet, Forecast()):
        pass
    assert first[0] < 6.0
    assert first[1] == pytest.approx(fleet.now - first[0], rel=0.35)


def test_with_a_limit_it_is_of_what_this_call_plays() -> None:
    fleet = Fleet(episodes=10_000, width=4, length=50, reply_s=0.5, limit=8)
    said = [(now, left) for now, left in looks(fleet, Forecast([prior(50)])) if left is not None]
    assert fleet.job.done == 8
    now, left = said[0]
    assert left == pytest.approx(fleet.now - now, rel=0.25)


def test_without_a_forecast_it_is_said_once_an_episode_has_ended() -> None:
    forecast = Forecast()
    fleet = Fleet(episodes=64, width=8, length=40, reply_s=0.5, learn=forecast)
    left = TimeLeft([fleet.job], forecast, 0.0)
    while True:
        fleet.tick()
        if fleet.job.done:
            break
        assert left.look(fleet.now) is None
        assert left.requests() == 0 or left.requests() is None
    said = []
    while not fleet.over:
        fleet.tick()
        said.append((fleet.now, left.look(fleet.now)))
    known = [(now, seconds) for now, seconds in said if seconds is not None]
    assert known[0][1] == pytest.approx(fleet.now - known[0][0], rel=0.25)


def test_a_lane_that_has_ended_is_not_waited_for() -> None:
    fleet = Fleet(episodes=64, width=8, length=40, reply_s=0.5)
    left = TimeLeft([fleet.job], Forecast([prior(40)]), 0.0)
    for _ in range(int(2 * SETTLED_S / TICK_S)):
        fleet.tick()
        left.look(fleet.now)
    assert (left.look(fleet.now) or 0) > 10
    fleet.job.context.lane_stop.set("lane")
    for _ in range(400):
        fleet.now += TICK_S
        seconds = left.look(fleet.now)
    assert seconds is not None
    assert math.isclose(seconds, 0.0, abs_tol=1.0)


def play_held_back(first: Fleet, second: Fleet, most: int) -> list[tuple[float, float]]:
    """(clock, what is said) until both are over; the budget lets so many episodes of both be begun at once."""
    fleets = (first, second)
    left = TimeLeft([fleet.job for fleet in fleets], Forecast([prior(100)]), 0.0, busy=lambda: 0.0)
    said = []
    while not all(fleet.over for fleet in fleets):
        for fleet in fleets:
            assert fleet.held is not None
            others = sum(len(other.job.context.flying) for other in fleets if other is not fleet)
            fleet.width = max(0, most - others)
            waits = fleet.started < fleet.job.planned and len(fleet.job.context.flying) >= fleet.width
            fleet.held.why = "budget" if waits else ""
            fleet.tick()
            fleet.held.why = "budget" if fleet.started < fleet.job.planned else ""
        seconds = left.look(first.now)
        if seconds is not None:
            said.append((first.now, seconds))
    return said


def test_a_lane_that_the_budget_holds_back_gets_the_places_of_others() -> None:
    """The second lane plays with two until the first one's episodes have ended, and with twenty from then on."""
    first = Fleet(episodes=18, width=18, length=100, reply_s=0.5, name="first", held=Backlog())
    second = Fleet(episodes=60, width=20, length=100, reply_s=0.5, name="second", held=Backlog())
    said = play_held_back(first, second, 20)
    total = first.now
    assert said[0][0] < 0.1 * total
    for now, left in said:
        if total - now > 0.3 * total:
            assert left == pytest.approx(total - now, rel=0.3), now


@dataclass
class Processor:
    """Lanes that share it take as long for a step as there are episodes."""

    step_s: float
    fleets: tuple[Fleet, ...]
    ran_s: float = 0.0

    def tick(self) -> None:
        playing = sum(min(fleet.width, fleet.job.planned - fleet.job.done) for fleet in self.fleets)
        for fleet in self.fleets:
            fleet.reply_s = self.step_s * max(1, playing)
            fleet.tick()
        self.ran_s += TICK_S


def test_without_processor_time_a_lane_gets_faster_as_others_end() -> None:
    first = Fleet(episodes=10, width=10, length=400, reply_s=1.0, name="first")
    second = Fleet(episodes=40, width=10, length=400, reply_s=1.0, name="second")
    processor = Processor(0.05, (first, second))
    jobs = [first.job, second.job]
    loaded = TimeLeft(jobs, Forecast([prior(400)]), 0.0, busy=lambda: processor.ran_s)
    idle = TimeLeft(jobs, Forecast([prior(400)]), 0.0, busy=lambda: 0.0)
    said, unaware = [], []
    while not all(job.done >= job.planned for job in jobs):
        processor.tick()
        said.append((first.now, loaded.look(first.now)))
        unaware.append((first.now, idle.look(first.now)))
    total = first.now
    at_once = 0.4 * total, 0.5 * total  # the first lane has just ended: its neighbour's pace is not seen at once
    known = [(now, left) for now, left in said if left is not None and 0.15 * total < now < 0.7 * total]
    for now, left in [(now, left) for now, left in known if not at_once[0] <= now < at_once[1]]:
        assert left == pytest.approx(total - now, rel=0.3), now
    # Lanes that seem to wait for their providers alone are taken at their present pace.
    before_any_ends = [(now, left) for now, left in unaware if left is not None and 0.1 * total < now < 0.35 * total]
    assert before_any_ends
    for now, left in before_any_ends:
        assert left > 1.3 * (total - now), now
