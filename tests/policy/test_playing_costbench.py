"""The policies on CostBench itself, over whole episodes."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from evalkit.dialogue import Request
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.domain.world import Terms
from evalkit.envs.costbench.events import course_of, query_after, terms_of, world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import KINDS
from evalkit.envs.costbench.planning.solve import optimum
from evalkit.envs.costbench.step import State
from evalkit.envs.environment import Facts
from evalkit.seeds import derive
from evalkit.tasks.costbench.queries import read_queries, suite_lines
from tests.support.episode_loop import Episode, kit, play, policy

LENGTHS = range(3, 9)


@lru_cache
def all_lines(shared: Path, length: int) -> list[dict[str, Any]]:
    return suite_lines([read_queries(shared / "data" / "costbench" / "test" / "queries.json")], length=length)


def lines(shared: Path, length: int, every: int = 1, first: int = 0, **fields: Any) -> list[dict[str, Any]]:
    """The reference's queries as instances, or every so manieth of them."""
    return [{**line, **fields} for line in all_lines(shared, length)[first::every]]


def generated(count: int, seed: int = 0, **fields: Any) -> list[dict[str, Any]]:
    return [dict(line) for line in COSTBENCH.generate(fields, count, seed)]


def played(line: dict[str, Any], name: str, seed: int = 0) -> Episode:
    instance = COSTBENCH.load(line) if name == "oracle" else None
    return play(COSTBENCH, line, policy(name, "costbench", instance=instance), seed=seed)


def path(episode: Episode) -> tuple[str, ...]:
    """The first call of every turn."""
    return tuple(facts["calls"][0]["tool"] for facts in episode.facts if facts["calls"])


def cost(facts: list[Facts]) -> int:
    return sum(call.get("cost", 0) for one in facts for call in one["calls"])


@pytest.mark.exhaustive
def test_greedy_goes_the_references_greedy_paths(shared: Path) -> None:
    golden = (shared / "goldens" / "costbench" / "paths_seed42.jsonl").read_text().splitlines()
    wanted = {row["query_id"]: row["greedy_path"] for row in map(json.loads, golden) if row["task_length"] == 5}
    played_lines = lines(shared, 5)
    assert len(played_lines) == len(wanted) == 381
    for line in played_lines:
        episode = played(line, "greedy")
        assert list(path(episode)) == wanted[line["query"]["id"]]
        assert (episode.ending, episode.facts[-1]["goal"]) == ("answered", True)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("name", ["planner", "replanner"])
@pytest.mark.parametrize("length", LENGTHS)
def test_where_nothing_happens_planners_reach_the_goal_at_the_lowest_cost(shared: Path, length: int, name: str) -> None:
    for place, line in enumerate(lines(shared, length, every=9, first=length)):
        episode = played({**line, "composites": bool(place % 2)}, name)
        instance = COSTBENCH.load(line)
        world = world_of(instance)
        assert cost(episode.facts) == optimum(world, terms_of(instance), world.start)
        assert (episode.ending, episode.facts[-1]["goal"]) == ("answered", True)
        assert {outcome for _, outcome in episode.outcomes()} == {"ok"}


def walk(line: dict[str, Any], name: str) -> Iterator[tuple[State, Facts]]:
    """Turn by turn: the state, and what the policy's reply brought about."""
    agent, instance = policy(name), COSTBENCH.load(line)
    state = COSTBENCH.start(instance, kit("costbench"))
    messages = list(COSTBENCH.opening(state).messages)
    while not COSTBENCH.ended(state):
        turn = state.steps
        request = Request(
            messages=tuple(messages),
            tools=COSTBENCH.tools(state),
            sampling=COSTBENCH.defaults,
            seed=derive(line["id"], turn),
        )
        reply = agent(request)
        before = state
        state, observation = COSTBENCH.step(state, reply)
        messages += (reply.message(), *observation.messages)
        yield before, observation.facts


def left(state: State) -> int:
    """Cents of the cheapest way from here, as things stand."""
    world = state.setup.world
    banned = frozenset(world.place[name] for name in state.bans)
    found = optimum(world, Terms(state.terms.costs, state.terms.off | banned), state.have)
    assert found is not None
    return found


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_replanner_goes_on_optimally_whatever_happens(shared: Path, kind: str, blocks: int) -> None:
    fired = 0
    for length in (5, 8):
        for line in lines(shared, length, every=23, first=blocks, block=kind, blocks=blocks):
            for before, facts in walk(line, "replanner"):
                if facts["calls"] and facts["calls"][0]["outcome"] == "ok":
                    world = before.setup.world
                    gained = before.have | world.tools[world.place[facts["calls"][0]["tool"]]].gives
                    then = State(**{**fields_of(before), "have": gained})
                    assert facts["calls"][0]["cost"] + left(then) == left(before)
                assert all(call["outcome"] in ("ok", "banned") for call in facts["calls"])
                fired += len(facts.get("events", ()))
            assert (facts["ended"], facts["goal"]) == ("answered", True)
    assert fired > 20


def fields_of(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in State.__dataclass_fields__}


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("kind", KINDS)
def test_the_planner_and_greedy_come_through_blocks(shared: Path, kind: str) -> None:
    reached = 0
    for line in lines(shared, 6, every=19, block=kind, blocks=2):
        planned, greedy = played(line, "planner"), played(line, "greedy")
        assert (planned.ending, planned.facts[-1]["goal"]) == ("answered", True)
        reached += greedy.facts[-1]["goal"]
        assert greedy.ending in ("answered", "no_call")
    # Greedy goes on only from what it gained last; a ban may leave it nothing to go on with.
    assert reached >= (15 if kind == "ban_tool" else 21)


def right_answer(line: dict[str, Any], turns: int) -> str:
    instance: PlanningProblem = COSTBENCH.load(line)
    fired = sum(event.at < turns for event in course_of(instance).events)
    return f"{query_after(instance, fired).number:0{instance.catalogue.digits[instance.split]}d}"


def check_oracle(line: dict[str, Any]) -> None:
    episode = played(line, "oracle")
    course = course_of(COSTBENCH.load(line))
    assert path(episode) == course.path
    assert [facts["calls"][0]["cost"] for facts in episode.facts if facts["calls"]] == list(course.costs)
    assert all(outcome in ("ok", "banned", "failed") for _, outcome in episode.outcomes())
    assert episode.ending == "answered"
    assert episode.facts[-1]["answer"] == right_answer(line, len(episode.facts))
    if course.complete:
        assert episode.facts[-1]["goal"]


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
def test_the_oracle_follows_the_ground_truth_exactly(shared: Path, kind: str, blocks: int) -> None:
    for length in (5, 7):
        for line in lines(shared, length, every=31, first=blocks, block=kind, blocks=blocks, strict=True):
            check_oracle(line)


def test_the_oracle_plays_every_domain_and_calls_that_fail() -> None:
    # A graph may have tools without which there is no way, so that nothing of it is ever banned.
    for catalogue, kinds in (("travel", ["mixed"]), ("delivery", ["cost_change", "preference_change"])):
        for kind in kinds:
            for line in generated(12, catalogue=catalogue, length=6, strict=True, failures=0.3, block=kind, blocks=2):
                check_oracle(line)


def test_the_oracle_is_rated_perfect() -> None:
    for line in generated(12, length=7):
        episode = played(line, "oracle")
        assert (episode.score.value, episode.score.solved) == (1.0, True)


@pytest.mark.parametrize("name", ["planner", "replanner"])
def test_planners_play_a_graph_optimally(name: str) -> None:
    for composites in (True, False):
        for line in generated(6, seed=2, catalogue="delivery", task="release", composites=composites):
            instance = COSTBENCH.load(line)
            world = world_of(instance)
            assert not world.chain
            episode = played(line, name)
            assert cost(episode.facts) == optimum(world, terms_of(instance), world.start)
            assert (episode.ending, episode.facts[-1]["goal"]) == ("answered", True)


def test_calls_that_fail_for_once_keep_nobody_from_the_goal() -> None:
    for line in generated(12, length=6, failures=0.3):
        for name in ("planner", "replanner"):
            episode = played(line, name)
            assert (episode.ending, episode.facts[-1]["goal"]) == ("answered", True)


def test_random_reaches_the_goal_by_any_way_and_pays_more() -> None:
    paths, dearer, reached = set(), 0, 0
    for seed in range(20):
        for line in generated(2, length=5):
            episode = played(line, "random", seed=seed)
            assert {outcome for _, outcome in episode.outcomes()} == {"ok"}
            paths.add(path(episode))
            dearer += cost(episode.facts) > cost(played(line, "replanner").facts)
            reached += episode.facts[-1]["goal"]
    assert len(paths) > 30
    assert dearer > 35
    assert reached > 35


@pytest.mark.parametrize("name", ["noisy", "random"])
def test_an_episode_repeats_exactly_and_another_seed_makes_another(name: str) -> None:
    (line,) = generated(1, length=8, block="mixed", blocks=3)
    one, same, *others = (played(line, name, seed=seed) for seed in (1, 1, 2, 3, 4))
    assert one.replies == same.replies
    assert one.facts == same.facts
    assert any(one.replies != other.replies for other in others)


@pytest.mark.exhaustive
def test_noisy_makes_every_kind_of_mistake_and_mostly_reaches_the_goal() -> None:
    found: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    reached = 0
    settings: tuple[dict[str, Any], ...] = (
        {"strict": True, "block": "mixed", "blocks": 2},
        {"block": "ban_tool", "blocks": 2, "failures": 0.1},
    )
    for fields in settings:
        for line in generated(60, length=8, **fields):
            for seed in range(3):
                episode = played(line, "noisy", seed=seed)
                found += Counter(outcome for _, outcome in episode.outcomes())
                endings[episode.ending] += 1
                reached += episode.facts[-1]["goal"]
    # No reply is longer than its limit of tokens, so that arguments are cut before they are too large.
    assert set(found) == {
        "ok",
        "banned",
        "failed",
        "unknown_tool",
        "inaccessible",
        "too_deep",
        "not_json",
        "not_object",
        "missing",
        "bad_value",
        "bad_id",
        "unknown_context",
        "wrong_id",
        "extra_parallel",
        "not_executed",
    }
    assert set(endings) <= {"answered", "no_call", "step_limit"}
    assert reached > 0.75 * endings.total()
