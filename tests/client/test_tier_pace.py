"""A week of nights in virtual time: a lane's requests go by flex while all would end in time, by the standard tier for
what would remain. Every night ends in time, whatever flex does; its money is told beside that of the standard tier."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson
import pytest

from evalkit.client.ask import Question
from evalkit.client.client import ModelAsker
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.tier_pace import TierPace, TierSpeed
from evalkit.money import FREE
from evalkit.spec.model import Limits
from evalkit.wire.http import HttpResponse
from tests.client.test_client import COST, Scene, failed
from tests.client.test_tiers import FULL, HALF, WORDS, served
from tests.support.virtual_clock import run_virtual

EPISODES, LONG, WIDTH, STANDARD_S = 200, 12, 40, 10.0
"""Episodes of a night, requests of each, episodes side by side, seconds of a reply by the standard tier on average: by
that alone a night takes ten minutes."""
ALONE_S = EPISODES * LONG / WIDTH * STANDARD_S
HOURS = 3600.0

Load = Callable[[random.Random, float], float | None]
"""(draws, seconds since the night began) -> seconds of a reply by flex; None: it has no room."""


def heavy(draws: random.Random, _: float) -> float:
    return draws.lognormvariate(3.0, 1.2)


LOADS: dict[str, Load] = {
    "quick": lambda draws, now: draws.uniform(8, 16),
    "three times as slow": lambda draws, now: draws.uniform(15, 45),
    "ten times as slow": lambda draws, now: draws.uniform(60, 140),
    "heavy tail": heavy,
    "full half the time": lambda draws, now: None if draws.random() < 0.5 else draws.uniform(15, 45),
    "always full": lambda draws, now: None,
    "breaks down": lambda draws, now: draws.uniform(15, 45) if now < 0.6 * ALONE_S else 10_000.0,
}
WEEK = tuple(LOADS)
"""One night each."""


@dataclass
class Night:
    ended_s: float
    money: float
    """Of replies, beside that of the standard tier alone."""
    charged: float
    """Of attempts that were given up, in the same unit."""
    served: Counter[str]


class Busy:
    """A transport that sells tiers under a load."""

    def __init__(self, load: Load, seed: int) -> None:
        self.load, self.seed, self.served = load, seed, Counter[str]()

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        now, draws = asyncio.get_running_loop().time(), random.Random(f"{self.seed}/{request_id}")
        tier = orjson.loads(body)["service_tier"]
        takes = self.load(draws, now) if tier == "flex" else draws.uniform(0.5, 1.5) * STANDARD_S
        if takes is None:
            return FULL
        if takes > 900:
            await asyncio.sleep(900)
            return failed("timeout")
        await asyncio.sleep(takes)
        self.served[tier] += 1
        return served(tier)


def night(load: Load, deadline_s: float, *, seed: int = 0) -> Night:
    async def play() -> Night:
        scene, busy = Scene(budget=None), Busy(load, seed)
        lane = Lane("acme/m", limits=Limits(), width=WIDTH, start=WIDTH)
        lane.deadline = deadline_s
        provider, prices = replace(scene.template.provider, service_tiers=WORDS), {"flex": HALF, "priority": FREE}
        template = replace(scene.template, tiers=("flex", "standard"), tier_prices=prices, provider=provider)
        asker = ModelAsker(template, lane=lane, budget=scene.budget, transport=busy)
        left, flying, money = list(range(EPISODES)), dict[str, int](), 0

        def remaining() -> tuple[float, float, int]:
            requests = len(left) * LONG + sum(flying.values())
            return (
                requests,
                max([*flying.values(), LONG if left else 0], default=0),
                max(len(flying), min(WIDTH, len(left))),
            )

        lane.pace = TierPace(deadline_s, remaining, lambda episode: flying[episode])

        async def player() -> None:
            nonlocal money
            while left:
                name = f"{left.pop():024x}"
                for step in range(LONG):
                    flying[name] = LONG - step
                    question = Question(
                        episode=name, step=step, seed=1, tools=scene.question.tools, messages=scene.question.messages
                    )
                    answer = await asker.ask(question)
                    money += answer.cost
                del flying[name]

        async with asyncio.TaskGroup() as group:
            for _ in range(WIDTH):
                group.create_task(player())
        whole = COST * EPISODES * LONG
        charged = scene.budget.stats().charged
        return Night(asyncio.get_running_loop().time(), money / whole, charged / whole, busy.served)

    return run_virtual(play())


@pytest.mark.exhaustive(but=6)
@pytest.mark.parametrize("load", WEEK)
@pytest.mark.parametrize("times", [1.2, 1.5, 3.0, 8.0])
def test_every_night_ends_in_time_whatever_flex_does(load: str, times: float) -> None:
    deadline_s = times * ALONE_S
    found = night(LOADS[load], deadline_s)
    print(f"{load:>20} {times:>4} ended {found.ended_s / deadline_s:.2f} money {found.money:.3f} + {found.charged:.3f}")
    assert found.ended_s <= deadline_s
    assert sum(found.served.values()) == EPISODES * LONG
    assert 0.5 <= found.money <= 1.0


@pytest.mark.parametrize(("load", "most"), [("quick", 0.5), ("three times as slow", 0.5), ("always full", 1.0)])
def test_with_time_enough_it_costs_what_flex_does(load: str, most: float) -> None:
    found = night(LOADS[load], 40 * ALONE_S)
    assert found.money <= most + 0.02  # a part of the first requests goes by the standard tier
    assert found.charged == 0


def test_the_shorter_the_time_the_more_goes_by_the_standard_tier() -> None:
    shares = [night(LOADS["three times as slow"], times * ALONE_S).money for times in (1.3, 1.8, 2.4, 3.2, 5.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    assert shares[-1] < 0.55


def test_a_tier_that_answers_nothing_is_soon_expected_to_take_longer() -> None:
    speed = TierSpeed()
    assert speed.expected_s(5.0) == 0.0
    for at in range(10):
        speed.asked(float(at))
        speed.ended(float(at), at + 2.0, answered=True)
    assert speed.expected_s(20.0) == 2.0
    speed.asked(20.0)
    speed.asked(20.0)
    assert [speed.expected_s(now) for now in (21.0, 22.0, 50.0)] == [2.0, 2.0, 30.0]
    speed.ended(20.0, 50.0, answered=False)
    assert speed.mean_s == pytest.approx(2.0 + 28.0 / 11)
