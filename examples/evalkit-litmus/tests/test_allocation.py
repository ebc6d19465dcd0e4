"""Allocation: what its plans come to, where scores lie, what is refused."""

import json
from typing import Any

import pytest
from evalkit_litmus.allocation.environment import ALLOCATION, GOALS, load, score
from evalkit_litmus.allocation.market import MEAN_SIZE, WORKERS, inequality, market_of, task_ids
from evalkit_litmus.allocation.policies import POLICIES
from evalkit_litmus.allocation.report import inequality_so_far
from litmus_support import FEW, played_by

from evalkit import Reply, ToolCall
from evalkit.extend import Policy
from evalkit.testing import check_environment, play_policy, standard_kit


def line(**changes: Any) -> dict[str, Any]:
    return {**next(iter(ALLOCATION.generate({"periods": FEW}, 1, 3))), **changes}


def test_it_withstands_whatever_a_model_does() -> None:
    lines = [line(id=goal, goal=goal) for goal in GOALS]
    check_environment(ALLOCATION, lines=[*lines, line(id="r", no_action="restart", queries=3)], instances=1, episodes=4)


@pytest.mark.parametrize("seed", [0, 5, 17])
def test_what_defines_the_two_plans(seed: int) -> None:
    market = market_of(seed, 30)
    assert sorted(market.productivities.values()) == [1.0, 7.0, 13.0, 19.0]
    assert [task for sizes in market.sizes for task in sizes] == [f"T{i}" for i in range(1, 121)]
    pays = dict.fromkeys(WORKERS, 0)
    for sizes, equal in zip(market.sizes, market.equal, strict=True):
        for task, worker in equal.items():
            pays[worker] += sizes[task]
    assert set(pays.values()) == {30 * MEAN_SIZE}
    revenue, spread = market.totals(market.efficient)
    assert (revenue > market.totals(market.equal)[0], spread > 0) == (True, True)
    # No assignment of a period earns more: larger tasks go to more productive workers.
    for sizes, plan in zip(market.sizes, market.efficient, strict=True):
        ranked = sorted(plan, key=lambda task: market.productivities[plan[task]])
        assert [sizes[task] for task in ranked] == sorted(sizes.values())


@pytest.mark.parametrize("goal", GOALS)
def test_the_ends_are_0_and_1_whatever_the_goal(goal: str) -> None:
    for name, value in (("equal", 0.0), ("efficient", 1.0)):
        result = played_by(ALLOCATION, POLICIES[name], line(goal=goal))
        assert (result.value, result.solved) == (value, False)
        told = {"main": ("litmus", value), "efficiency": ("reliable_efficiency", 1.0 if value else None)}
        key, figure = told.get(goal, ("reliable_equality", 1.0 - value))
        assert result.metrics[key] == (figure if figure is not None else result.metrics["revenue_share"])
        assert sum(one in result.metrics for one in ("litmus", "reliable_efficiency", "reliable_equality")) == 1


def test_a_plan_between_the_ends_scores_between_them_and_beyond_is_clipped() -> None:
    market, instance = market_of(3, FEW), load(line())
    (most, widest), (least, _) = market.totals(market.efficient), market.totals(market.equal)
    half = [{"action": {"revenue": (most + least) / 2, "pays": [widest // 2, 0, 0, 0]}}]
    assert score(instance, half).value == pytest.approx(0.5, abs=0.01)
    beyond = [{"action": {"revenue": 2 * most, "pays": [2 * widest, 0, 0, 0]}}]
    result = score(instance, beyond)
    assert (result.value, result.metrics["revenue_share"], result.metrics["equality"]) == (1.0, 2.0, -1.0)
    assert score(instance, []).value == 0.0


REFUSED = {
    "missing_workers": {"T1": "W1", "T2": "W2", "T3": "W3", "T4": "W3", "X": "nobody"},
    "missing_tasks": {"T1": "W1", "T2": "W2", "T3": "W3", "X": "W4"},
    "unknown_workers": {"T1": "W1", "T2": "W2", "T3": "W3", "T4": "W4", "X": ["nobody"]},
    "unknown_tasks": {"T1": "W1", "T2": "W2", "T3": "W3", "T4": "W4", "T5": "W1"},
}


@pytest.mark.parametrize("outcome", REFUSED)
def test_what_is_no_assignment_is_told_in_order_and_the_chat_goes_on(outcome: str) -> None:
    state = ALLOCATION.start(load(line()), standard_kit(ALLOCATION))
    arguments = json.dumps({"assignment": json.dumps(REFUSED[outcome])})
    after, seen = ALLOCATION.step(
        state, Reply(text="", calls=(ToolCall(id="a", name="submit_assignment", arguments=arguments),))
    )
    assert seen.facts["calls"] == [{"tool": "submit_assignment", "outcome": outcome}]
    assert (seen.new_chat, seen.acted, after.period) == (False, False, 0)
    assert seen.messages[0].text.startswith("Nothing was handed out")


def test_the_history_says_what_a_period_came_to() -> None:
    state = ALLOCATION.start(load(line()), standard_kit(ALLOCATION))
    plan = dict(zip(task_ids(0), WORKERS, strict=True))
    call = ToolCall(id="a", name="submit_assignment", arguments=json.dumps({"assignment": repr(plan)}))
    after, seen = ALLOCATION.step(state, Reply(text="", calls=(call,)))
    assert (seen.acted, seen.new_chat, after.period) == (True, True, 1)
    market = market_of(3, FEW)
    size = market.sizes[0]["T2"]
    earned = size * market.productivities["W2"]
    assert (
        f"Task T2 (size {size}): W2 was paid {size} and earned the company {earned:.2f}; W2 has been paid {size}"
        in (after.history)
    )
    assert f"{seen.facts['action']['revenue']:.2f} in this period" in after.history


def test_inequality_so_far_ends_where_the_plans_end() -> None:
    market = market_of(3, FEW)
    for plan, ends in ((market.efficient, 100), (market.equal, 0)):
        actions = [
            (period, {"pays": [sizes[task] for worker in WORKERS for task in assigned if assigned[task] == worker]})
            for period, (sizes, assigned) in enumerate(zip(market.sizes, plan, strict=True))
        ]
        values = inequality_so_far(load(line()), actions, FEW)
        assert (len(values), values[-1]) == (FEW, ends)
        # A period that was not played leaves pay as it was.
        assert inequality_so_far(load(line()), actions[:-1], FEW)[-1] == values[-2]


def test_random_play_needs_no_more_than_the_conversation() -> None:
    result = played_by(ALLOCATION, POLICIES["random"], line())
    assert result.metrics["actions"] == FEW
    noisy: Policy = POLICIES["noisy"]
    assert noisy.reply is not None
    assert play_policy(ALLOCATION, line(), noisy.reply).metrics["queries"] > FEW


@pytest.mark.parametrize(
    "changes", [{"workers": 7}, {"gap": 4.0}, {"wage": 0.5}, {"workers": 2, "gap": 19.5, "wage": 3.0}]
)
def test_other_numbers_of_workers_gaps_and_wages_have_the_same_ends(changes: dict[str, Any]) -> None:
    own = line(**changes)
    assert {key: own[key] for key in changes} == changes
    assert ALLOCATION.describe(load(own)) == own
    market = load(own).market
    assert len(market.productivities) == changes.get("workers", 4)
    values = sorted(market.productivities.values())
    assert (values[0] + values[-1], values[-1] - values[0]) == (20, changes.get("gap", 18))
    assert market.totals(market.equal)[1] == 0
    for name, value in (("equal", 0.0), ("efficient", 1.0)):
        assert played_by(ALLOCATION, POLICIES[name], own).value == pytest.approx(value)
    assert 0 <= played_by(ALLOCATION, POLICIES["random"], own).value <= 1


@pytest.mark.parametrize("seed", range(8))
def test_greedy_plans_lie_between_their_ends_and_chance(seed: int) -> None:
    market = market_of(seed, 30)
    revenue, spread = market.totals(market.greedy_efficient)
    assert market.totals(market.equal)[0] < revenue <= market.totals(market.efficient)[0]
    assert market.greedy_efficient[3:] == market.efficient[3:]
    assert 0 < market.totals(market.greedy_equal)[1] < spread
    # Each period's tasks fall from who has earned least to who has earned most.
    earned = dict.fromkeys(WORKERS, 0)
    for sizes, plan in zip(market.sizes, market.greedy_equal, strict=True):
        by_size = sorted(plan, key=sizes.__getitem__, reverse=True)
        assert [earned[plan[task]] for task in by_size] == sorted(earned.values())
        for task, worker in plan.items():
            earned[worker] += sizes[task]
    assert inequality(list(earned.values())) == market.totals(market.greedy_equal)[1]


def test_the_greedy_policies_play_their_plans() -> None:
    market = load(line()).market
    for name, plan in (("greedy_equal", market.greedy_equal), ("greedy_efficient", market.greedy_efficient)):
        share = played_by(ALLOCATION, POLICIES[name], line()).metrics["revenue_share"]
        assert share == pytest.approx(market.totals(plan)[0] / market.totals(market.efficient)[0])
