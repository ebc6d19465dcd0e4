"""Whole episodes: optimal ones of every task, and the reference's own, turn by turn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.costbench import step
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.events import course_of
from evalkit.envs.costbench.instances.blocks import draws
from evalkit.envs.costbench.instances.costs import query_seed
from evalkit.envs.costbench.instances.instance import PlanningProblem
from tests.support.costbench_episodes import Episode, make_instance

TASKS = [(name, task) for name in ("travel", "delivery") for task in shipped(name).tasks]


def play_truth(instance: PlanningProblem) -> Episode:
    """An episode that follows the segmented ground truth and answers."""
    episode = Episode(instance)
    for name in course_of(instance).path:
        episode.call(name)
    episode.answer()
    return episode


@pytest.mark.exhaustive(but=15)
@pytest.mark.parametrize("length", range(3, 11))
@pytest.mark.parametrize(("catalogue", "task"), TASKS)
def test_whoever_follows_the_truth_reaches_the_goal_and_answers_right(catalogue: str, task: str, length: int) -> None:
    instance = make_instance(task, length, shipped(catalogue), example=length <= 8)
    episode = play_truth(instance)
    facts, course = episode.facts, course_of(instance)
    assert [call["cost"] for one in facts for call in one["calls"]] == list(course.costs)
    assert all(call["outcome"] == "ok" for one in facts for call in one["calls"])
    assert facts[-2]["calls"][0]["goal"] is True
    assert facts[-1]["goal"] is True
    assert facts[-1]["ended"] == "answered"
    assert int(facts[-1]["answer"]) == instance.query.number
    score = COSTBENCH.score(instance, facts)
    assert (score.value, score.solved) == (1.0, True)


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("block", ["ban_tool", "preference_change", "remove_tools", "cost_change"])
@pytest.mark.parametrize("generator", ["reference", "native"])
def test_the_truth_stays_right_under_blocks(generator: str, block: str, blocks: int) -> None:
    instance = make_instance(length=8, generator=generator, block=block, blocks=blocks)
    episode, course = play_truth(instance), course_of(instance)
    outcomes = [call["outcome"] for one in episode.facts for call in one["calls"]]
    assert outcomes.count("banned") == (len(course.events) if block == "ban_tool" else 0)
    assert set(outcomes) <= {"ok", "banned"}
    assert [call["cost"] for one in episode.facts for call in one["calls"]] == list(course.costs)
    assert episode.facts[-1]["goal"] is True
    assert int(episode.facts[-1]["answer"]) == course.scenarios[-1].query.number


def test_a_line_is_generated_loaded_and_played() -> None:
    for line in COSTBENCH.generate({"length": 4}, 6, 7):
        episode = play_truth(COSTBENCH.load(line))
        assert COSTBENCH.score(episode.instance, episode.facts).solved


KINDS = {
    "bad_json": {"not_json", "not_object"},
    "missing_param": {"missing"},
    "bad_enum": {"bad_value"},
    "unknown_location": {"unknown_context"},
    "composite_inner_error": {"unknown_context"},
}
MODES = {"steplen_change": "remove_tools"}


def as_query(row: dict[str, Any]) -> Query:
    given = {"TimeInfo": int(row["TimeInfo"][-6:-1])}
    if "location_preference" in row:
        given["LocationPreference"] = int(row["location_preference"][-6:-1])
    return Query(
        id=row["query_id"],
        preferences=row["preferences"],
        given=given,
        number=int(row["groundtruth"][-6:-1]),
        text=row["user_requirements"],
    )


def as_instance(row: dict[str, Any], queries: list[dict[str, Any]]) -> PlanningProblem:
    own = next(one for one in queries if one["query_id"] == row["query_id"])
    pool = [one for one in queries if one["task"] == own["task"] and one is not own]
    base = query_seed(42, row["query_id"])
    blocks = row["block_num"]
    others = tuple(
        as_query(pool[draws("reference", base, "preference_change", i).below(len(pool))]) for i in range(blocks)
    )
    mode = row["block_mode"]
    return make_instance(
        own["task"],
        row["refinement_level"] + 3,
        query=as_query(own),
        alternatives=others,
        block=MODES.get(mode, mode) if blocks else "none",
        blocks=blocks,
    )


def turns(trajectory: list[dict[str, Any]]) -> Iterator[tuple[Reply, list[dict[str, Any]], bool]]:
    """The agent's messages, what the tools answered to each, and whether the user then spoke."""
    for place, said in enumerate(trajectory):
        if said["role"] != "assistant":
            continue
        calls = tuple(ToolCall(id=str(i), **call) for i, call in enumerate(said["tool_calls"]))
        behind = []
        for one in trajectory[place + 1 :]:
            if one["role"] == "assistant":
                break
            behind.append(one)
        tools = [one for one in behind if one["role"] == "tool"]
        yield Reply(text=said["content"] or "", calls=calls), tools, any(one["role"] == "user" for one in behind)


def again_banned(call: dict[str, Any], tool: dict[str, Any]) -> bool:
    """Whether a name that no tool has is called again after its ban: the reference's record takes that for a success
    without cost, and its path has the call as ours does."""
    return call["outcome"] == "banned" and "cost" not in call and (tool["kind"], tool["cost_text"]) == ("ok", None)


def test_the_reference_s_episodes_go_the_same_way_here(shared: Path) -> None:
    queries = json.loads((shared / "data/costbench/test/queries.json").read_text())
    seen_kinds, seen_modes = set(), set()
    for line in (shared / "goldens/costbench/metrics_synthetic.jsonl").read_text().splitlines():
        row = json.loads(line)
        episode = Episode(as_instance(row, queries))
        where = (row["query_id"], row["name"], row["block_mode"])
        for reply, tools, told in turns(row["trajectory"]):
            seen = episode.say(reply)
            calls = seen.facts["calls"]
            assert told == (len(seen.messages) > len(calls)), where
            for call, tool in zip(calls, tools, strict=False):
                seen_kinds.add(tool["kind"])
                assert call["outcome"] in KINDS.get(tool["kind"], {tool["kind"]}) or again_banned(call, tool), where
                if "cost" in call:
                    assert str(call["cost"] / 100) == tool["cost_text"], where
                elif call["outcome"] == "banned":
                    assert tool["cost_text"] is None, where
            assert tools or all(call["outcome"] == "not_executed" for call in calls), where
        facts = episode.facts
        assert len(facts) == row["total_steps"], where
        assert (bool(facts) and facts[-1]["goal"]) is row["is_goal_state"], where
        assert bool(step.ended(episode.state)) is not row["name"].startswith("api_error"), where
        if row["block_mode"]:
            seen_modes.add(row["block_mode"])
            fired = [one["turn"] for one in facts if "events" in one]
            assert (
                fired
                == [at for at in row["block_stats"]["block_step"] if at is not None and at <= len(facts)][: len(fired)]
            )
    assert len(seen_kinds) >= 10
    assert len(seen_modes) == 4
