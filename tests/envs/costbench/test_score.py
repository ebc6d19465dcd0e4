"""Scores from facts written by hand; whole golden episodes are compared in tests/conform."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.events import course_of, terms_of, world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.planning.solve import call_is_optimal
from evalkit.envs.costbench.score import answered, score, units
from evalkit.envs.environment import Facts, Score
from tests.support.costbench_lines import ATOMIC, DECIDE, SEARCH, SELECT, STEP1, STEP2

BOTH, STEPS, LATE = "Dining_Preference_and_Search", "Dining_Refine_to_Step2", "Dining_Finalize_from_Step2"
WISHES = {"category": "restaurant", "feature_package": "live_music_or_performance"}
FIRST = {**WISHES, "style": "value_for_money_priority", "tier": "nationally_acclaimed"}
SECOND = {**FIRST, "category": "bakery"}


def query(number: int, preferences: dict[str, str]) -> dict[str, Any]:
    return {
        "id": f"<Query{number:05d}>",
        "preferences": preferences,
        "given": {"TimeInfo": 904, "LocationPreference": 12},
        "text": "somewhere to eat",
    }


def make(**fields: Any) -> PlanningProblem:
    """A dining instance in which all atomic tools cost 20 and composites as much as their parts, but as named."""
    named = fields.pop("costs", {})
    line: dict[str, Any] = {"id": "i", "task": "dining", "length": 5, "query": query(1, FIRST), **fields}
    plain = COSTBENCH.load(line)
    costs = {tool.name: 20.0 * tool.size for tool in world_of(plain).tools} | named
    return COSTBENCH.load({**line, "costs": costs})


@cache
def one_way() -> PlanningProblem:
    """BOTH, STEPS, SELECT is the only optimal path: 30 + 30 + 20."""
    return make(costs={BOTH: 30.0, STEPS: 30.0})


@cache
def many_ways() -> PlanningProblem:
    """Every path costs 100."""
    return make()


def play(
    instance: PlanningProblem, calls: Sequence[str | tuple[str, str]], answer: str = "", **last: Any
) -> list[Facts]:
    """Facts of one call a turn: a name succeeds; a pair names the outcome too. Then a turn that answers."""
    world = world_of(instance)
    costs = dict(zip([tool.name for tool in world.tools], terms_of(instance).costs, strict=False))
    facts: list[dict[str, Any]] = []
    state = world.start
    for turn, call in enumerate(calls, 1):
        name, outcome = (call, "ok") if isinstance(call, str) else call
        one: dict[str, Any] = {"tool": name, "outcome": outcome}
        if outcome in ("ok", "banned", "failed") and name in costs:
            one["cost"] = costs[name]
        if outcome == "ok":
            state |= world.tools[world.place[name]].gives
        goal = bool(state & world.goal)
        facts.append({"turn": turn, "calls": [one], "goal": goal, "silent": True})
    goal = bool(facts) and facts[-1]["goal"]
    told = {"answer": answer, "ended": "answered"} if answer else {"ended": "no_call"}
    return [*facts, {"turn": len(facts) + 1, "calls": [], "goal": goal, **told, **last}]


def score_of(instance: PlanningProblem, *calls: str | tuple[str, str], answer: str = "") -> Score:
    return score(instance, play(instance, calls, answer))


def test_the_optimal_path_scores_one() -> None:
    instance = one_way()
    found = score_of(instance, BOTH, STEPS, SELECT, answer=f"{instance.query.number:05d}")
    assert (found.value, found.solved, found.path) == (1.0, True, (BOTH, STEPS, SELECT))
    metrics = found.metrics
    assert [metrics[name] for name in ("goal", "exact", "exact_any", "intent", "answered", "eligible")] == [1.0] * 6
    assert (metrics["cost"], metrics["optimal_cost"], metrics["gap"]) == (80.0, 80.0, 0.0)
    assert (metrics["edit_distance"], metrics["ned"]) == (0.0, 0.0)
    assert (metrics["messages"], metrics["calls"], metrics["valid_calls"], metrics["atomic_calls"]) == (9, 3, 3, 1)
    assert (metrics["blocks_planned"], metrics["blocks_met"], metrics["complete_truth"]) == (0, 0, 1)
    assert (metrics["paths_possible"], metrics["paths_whole"]) == (15, 16)
    assert "truth_change" not in metrics
    assert "plan_paths" not in metrics
    assert all(isinstance(value, float) for value in metrics.values())


def test_another_path_scores_its_distance() -> None:
    found = score_of(one_way(), DECIDE, SEARCH, STEPS, SELECT)
    assert not found.solved
    assert found.value == 1 - 2 / 4
    assert (found.metrics["edit_distance"], found.metrics["ned"], found.metrics["exact"]) == (2, 0.5, 0)
    assert (found.metrics["cost"], found.metrics["gap"]) == (90.0, 10.0)
    assert (found.metrics["intent"], found.metrics["answered"]) == (0, 0)


def test_without_the_goal_there_is_no_score_and_the_worst_distance() -> None:
    found = score_of(one_way(), BOTH, STEPS, answer="00001")
    assert (found.value, found.solved) == (0.0, False)
    assert (found.metrics["goal"], found.metrics["edit_distance"], found.metrics["ned"]) == (0, 3, 1)
    assert found.metrics["exact"] == 0
    assert "gap" not in found.metrics
    assert found.metrics["answered"] == 1


def test_nothing_at_all_is_scored_too() -> None:
    for facts in ([], play(one_way(), [])):
        found = score(one_way(), facts)
        assert (found.value, found.solved, found.path) == (0.0, False, ())
        assert (found.metrics["calls"], found.metrics["edit_distance"]) == (0, 3)


@pytest.mark.parametrize("path", [ATOMIC, (BOTH, STEPS, SELECT), (DECIDE, SEARCH, STEP1, LATE)])
def test_any_optimal_path_is_solved(path: tuple[str, ...]) -> None:
    found = score_of(many_ways(), *path)
    assert (found.value, found.solved, found.metrics["exact_any"], found.metrics["gap"]) == (1.0, True, 1.0, 0.0)
    assert found.metrics["exact"] == (found.path == course_of(many_ways()).path)


def test_the_nearest_optimal_path_counts() -> None:
    found = score_of(many_ways(), DECIDE, SEARCH, SEARCH, STEP1, STEP2, SELECT)
    assert found.value == 1 - 1 / 6
    assert not found.solved


def test_refused_calls_neither_cost_nor_count_as_steps() -> None:
    refused = [(SELECT, "inaccessible"), ("Dining_Nope", "unknown_tool"), (DECIDE, "bad_value"), (DECIDE, "not_json")]
    found = score_of(one_way(), *refused, BOTH, STEPS, SELECT)
    metrics = found.metrics
    assert (found.solved, metrics["cost"], metrics["exact"]) == (True, 80.0, 1.0)
    assert (metrics["unaccessible"], metrics["wrong_parameter"]) == (1, 3)
    assert (metrics["calls"], metrics["valid_calls"], metrics["atomic_calls"]) == (7, 3, 4)


def test_repeated_and_extra_calls() -> None:
    found = score_of(one_way(), DECIDE, BOTH, STEPS, STEPS, SELECT, STEP1, SELECT).metrics
    assert (found["repeated"], found["extra"]) == (2, 2)
    assert score_of(one_way(), SEARCH, DECIDE, STEPS, SELECT).metrics["repeated"] == 0
    assert not score_of(one_way(), BOTH, STEPS, SELECT, SELECT).solved


def test_calls_that_were_not_looked_at() -> None:
    facts = [dict(one) for one in play(one_way(), [BOTH, STEPS, SELECT], answer="00001")]
    facts[0]["calls"] = [*facts[0]["calls"], {"tool": SEARCH, "outcome": "extra_parallel"}]
    facts[-1]["calls"] = [{"tool": SEARCH, "outcome": "not_executed"}]
    found = score(one_way(), facts)
    assert (found.solved, found.metrics["calls"], found.metrics["parallel_extra"]) == (True, 3, 1)
    assert found.metrics["messages"] == 2 + 4 + 4


def test_the_last_reply_that_speaks_of_an_answer_decides() -> None:
    assert answered([{"answer": "00007"}, {"calls": []}]) == 7
    assert answered([{"answer": "00007"}, {"answer": ""}]) is None
    assert answered([{"answer": "00007"}, {"silent": True}]) is None
    assert answered([]) is None


def test_the_visible_plan_is_carried_over() -> None:
    facts = play(one_way(), [BOTH, STEPS, SELECT], plan={"paths": 4, "valid": 3})
    metrics = score(one_way(), facts).metrics
    assert (metrics["plan_paths"], metrics["plan_valid"]) == (4, 3)


def test_the_tool_for_the_whole_is_one_more_path() -> None:
    metrics = score_of(make(whole=True), *ATOMIC).metrics
    assert (metrics["paths_possible"], metrics["paths_whole"]) == (16, 16)


def banned() -> PlanningProblem:
    """A ban in turn 1; the truth calls BOTH (30), which is banned, then its two parts."""
    return make(costs={BOTH: 30.0, STEPS: 30.0}, schedule=[{"at": 1, "kind": "ban_tool"}])


def with_event(facts: list[Facts], turn: int, kind: str) -> list[Facts]:
    return [{**one, "events": [{"kind": kind}]} if one["turn"] == turn else one for one in facts]


def test_after_a_ban_the_optimum_is_planned_anew() -> None:
    instance = banned()
    facts = with_event(play(instance, [(BOTH, "banned"), DECIDE, SEARCH, STEPS, SELECT]), 1, "ban_tool")
    found = score(instance, facts)
    assert course_of(instance).path == (BOTH, DECIDE, SEARCH, STEPS, SELECT)
    assert (found.value, found.solved, found.metrics["exact"], found.metrics["blocks_met"]) == (1.0, True, 1.0, 1)
    assert (found.metrics["banned_calls"], found.metrics["cost"], found.metrics["optimal_cost"]) == (1, 120.0, 120.0)
    assert found.metrics["truth_change"] == pytest.approx(2 / 5)
    assert (found.metrics["eligible"], found.metrics["eligible_any_agent"]) == (1, 1)
    assert "gap" not in found.metrics


def test_a_banned_call_must_have_been_optimal_itself() -> None:
    instance = banned()
    facts = with_event(play(instance, [(DECIDE, "banned"), BOTH, STEPS, SELECT]), 1, "ban_tool")
    found = score(instance, facts)
    assert not found.solved
    assert found.value == 1 - 2 / 5


def test_calling_a_banned_tool_again_is_no_optimal_call() -> None:
    instance = banned()
    facts = with_event(play(instance, [(BOTH, "banned"), (BOTH, "banned"), *ATOMIC]), 1, "ban_tool")
    assert not score(instance, facts).solved


def test_a_ban_on_a_banned_name_is_the_worst_case_with_several_bans() -> None:
    instance = make(costs={BOTH: 30.0}, schedule=[{"at": 1, "kind": "ban_tool"}, {"at": 2, "kind": "ban_tool"}])
    facts = play(instance, [(BOTH, "banned"), (BOTH, "banned"), *ATOMIC])
    found = score(instance, with_event(with_event(facts, 1, "ban_tool"), 2, "ban_tool"))
    assert (found.metrics["goal"], found.metrics["ned"], found.metrics["exact"]) == (1, 1, 0)
    assert found.metrics["edit_distance"] == len(found.path)
    assert found.value > 0


def test_a_banned_name_of_no_tool_costs_nothing_and_is_part_of_the_path() -> None:
    facts = with_event(play(banned(), [("Dining_Nope", "banned"), BOTH, STEPS, SELECT]), 1, "ban_tool")
    found = score(banned(), facts)
    assert (found.path[0], found.metrics["cost"], found.solved) == ("Dining_Nope", 80.0, False)


def test_a_call_that_failed_once_may_be_made_again() -> None:
    instance = make(costs={BOTH: 30.0, STEPS: 30.0}, schedule=[{"at": 1, "kind": "tool_failure"}])
    facts = with_event(play(instance, [(BOTH, "failed"), BOTH, STEPS, SELECT]), 1, "tool_failure")
    found = score(instance, facts)
    assert (found.solved, found.metrics["exact"], found.metrics["failed_calls"]) == (True, 1.0, 1)
    assert found.metrics["cost"] == found.metrics["optimal_cost"] == 110.0


def test_costs_that_change_make_another_continuation_optimal() -> None:
    change = {"at": 1, "kind": "cost_change", "costs": {STEPS: 90.0}}
    instance = make(costs={BOTH: 30.0, STEPS: 30.0}, schedule=[change])
    facts = with_event(play(instance, [BOTH, STEP1, STEP2, SELECT]), 1, "cost_change")
    found = score(instance, facts)
    assert (found.solved, found.value) == (True, 1.0)
    stubborn = with_event(play(instance, [BOTH, STEPS, SELECT]), 1, "cost_change")
    assert not score(instance, stubborn).solved


def test_after_a_change_of_mind_the_first_wish_is_the_wrong_answer() -> None:
    instance = make(
        costs={BOTH: 30.0, STEPS: 30.0},
        schedule=[{"at": 1, "kind": "preference_change"}],
        alternatives=[query(2, SECOND)],
    )
    path = [BOTH, BOTH, STEPS, SELECT]
    old, new = instance.query.number, instance.alternatives[0].number
    facts = with_event(play(instance, path, answer=f"{new:05d}"), 1, "preference_change")
    found = score(instance, facts)
    assert (found.solved, found.metrics["repeated"]) == (True, 0)
    assert (found.metrics["intent"], found.metrics["previous_intent"]) == (1, 1)
    late = score(instance, with_event(play(instance, path, answer=f"{old:05d}"), 1, "preference_change"))
    assert (late.metrics["intent"], late.metrics["previous_intent"]) == (0, 1)
    assert found.metrics["messages"] == 2 + 2 * 4 + 1 + 1


def test_an_event_right_before_the_end_does_not_count_as_met() -> None:
    instance = make(schedule=[{"at": 4, "kind": "cost_change", "costs": {SELECT: 30.0}}])
    facts = with_event(play(instance, [BOTH, STEPS, (SELECT, "bad_id"), (SELECT, "bad_id")]), 4, "cost_change")
    assert score(instance, facts).metrics["blocks_met"] == 0


def test_every_call_is_judged_from_the_state_it_was_made_in() -> None:
    instance = one_way()
    world, terms = world_of(instance), terms_of(instance)
    assert call_is_optimal(world, terms, world.start, world.place[BOTH])
    assert not call_is_optimal(world, terms, world.start, world.place[DECIDE])


def test_units_add_floats_from_the_left() -> None:
    assert units([]) == 0.0
    assert units([10, 20]) == 0.1 + 0.2
    assert units([3055, 2411, 1026]) == 30.55 + 24.11 + 10.26
