"""Golden cases of CostBench's blocking: parameters, turns, replanning, and who follows the ground truth to its end.

Not compared: `upstream_greedy`, the reference's greedy policy under blocking. It replays other costs and other hidden
tools than the episode had (specification, section 6.3), and evalkit's plays in the real ones.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from evalkit.envs.costbench.domain.catalogue import title
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.events import Course, agent_blocks, course_of, oracle_eligible, world_of
from evalkit.envs.costbench.instances.blocks import SEED_STEP, draws, planned_blocks
from evalkit.envs.costbench.instances.costs import query_seed
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import KINDS
from tests.conform.compare.goldens import GoldenVerdict, Row, judged, out_of_scope

QUERIES = Path("costbench", "test", "queries.json")
"""Below the folder with the reference's data set."""

SEED = 42
"""The global seed, where a row names none."""

NAMES = {"steplen_change": "remove_tools"}
"""The reference's names of kinds, where they are not ours."""

SKIPPED = "upstream_greedy"


def blocking(row: Row, data: Path | None) -> GoldenVerdict:
    """One query under one kind of block: plan, turns, scenarios, segmented path, and the oracle's whole episode.

    With the reference's queries, the alternatives of preference changes are drawn from them, too.
    """
    queries = reference_queries(data)
    instance = instance_of(row)
    plan = row["plan"]
    if instance.block == "preference_change" and queries is not None:
        plan = _drawn_plan(instance, queries)
        own = next(one for one in queries if one["query_id"] == row["query_id"])
        instance = replace(
            instance,
            query=replace(instance.query, number=_number(own["groundtruth"])),
            alternatives=tuple(_alternative(entry) for entry in plan),
        )
    course = course_of(instance)
    ours = {
        **row,
        "task_length": row["refinement_level"] + 3,
        "tool_creation_seed": query_seed(instance.seed, instance.query.id),
        "plan": plan if instance.block == "preference_change" else _plan(instance),
        "block_step": [event.at for event in course.events],
        "scenarios": _scenarios(instance, course),
        "segmented_gt_path": course.path,
        "segmented_gt_cost": as_float(course.costs),
        **_oracle(instance, course),
    }
    return judged(_compared(row), _compared(ours))


def gt_change(row: Row, data: Path | None) -> GoldenVerdict:
    """How far one block moves the ground truth: means over all queries, to the four decimals of the golden file."""
    queries = reference_queries(data)
    if queries is None:
        return out_of_scope("needs the reference's queries: --data")
    ours = {}
    for key in row["rows"]:
        length, kind = key.removeprefix("N").split(":")
        ours[key] = change_of(queries, kind, int(length))
    return judged(row["rows"], ours, "rows")


def change_of(queries: Sequence[Mapping[str, Any]], kind: str, length: int) -> dict[str, float]:
    """Mean normalised edit distance between static and segmented ground truth under one block, and how many moved."""
    from rapidfuzz.distance import Levenshtein

    distances = []
    for one in queries:
        instance = _instance(
            one["query_id"], one["task"], length, NAMES.get(kind, kind), 1, _number(one["groundtruth"])
        )
        if instance.block == "preference_change":
            # What is wanted then plays no part for the path: the plan begins anew either way.
            instance = replace(instance, alternatives=(instance.query,))
        course = course_of(instance)
        distances.append(Levenshtein.normalized_distance(course.scenarios[0].path, course.path))
    count = len(distances)
    return {
        "n": count,
        "mean_ned": round(sum(distances) / count, 4),
        "changed_share": round(sum(distance > 0 for distance in distances) / count, 4),
    }


@lru_cache(maxsize=4)
def reference_queries(data: Path | None) -> tuple[Mapping[str, Any], ...] | None:
    """The reference's test queries in the order of their file; None where they are not given."""
    if data is None or not (data / QUERIES).is_file():
        return None
    return tuple(json.loads((data / QUERIES).read_bytes()))


def instance_of(row: Row) -> PlanningProblem:
    """What a row was made from; its alternatives are those that the row names."""
    kind = NAMES.get(row["block_mode"], row["block_mode"])
    if kind not in KINDS:
        raise ValueError(f"there is no kind of block {row['block_mode']!r}")
    instance = _instance(
        row["query_id"],
        row["task"],
        row["task_length"],
        kind,
        row["block_num"],
        _number(row["scenarios"][0]["gt_id"]),
        row.get("global_seed", SEED),
    )
    named = row["plan"] if kind == "preference_change" else ()
    return replace(instance, alternatives=tuple(_alternative(entry) for entry in named))


def as_float(costs: Sequence[int]) -> float:
    """A sum of cents as the reference makes it: floats, added from the left."""
    total = 0.0
    for cents in costs:
        total += cents / 100
    return total


def _instance(
    query_id: str, task: str, length: int, block: Any, blocks: int, number: int, seed: int = SEED
) -> PlanningProblem:
    """An instance at the reference's settings. Wishes and texts play no part in blocking."""
    return PlanningProblem(
        id=query_id,
        catalogue=shipped("travel"),
        catalogue_name="travel",
        task=task,
        length=length,
        split="test",
        query=Query(id=query_id, preferences={}, given={}, number=number, text=""),
        generator="reference",
        seed=seed,
        low=15,
        high=25,
        noise=0.1,
        distribution="uniform",
        whole=False,
        block=block,
        blocks=blocks,
    )


def _number(preference_id: str) -> int:
    return int("".join(letter for letter in preference_id if letter.isdigit()))


def _alternative(entry: Mapping[str, Any]) -> Query:
    query_id, number = entry["alternative_query_id"], _number(entry["groundtruth"])
    return Query(id=query_id, preferences={}, given={}, number=number, text="")


def _drawn_plan(instance: PlanningProblem, queries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Preference changes as the reference draws them: from the other queries of the task, in the order of the file."""
    pool = [one for one in queries if one["task"] == instance.task and one["query_id"] != instance.query.id]
    base = query_seed(instance.seed, instance.query.id)
    drawn = [pool[draws("reference", base, "preference_change", i).below(len(pool))] for i in range(instance.blocks)]
    return [
        {
            "alternative_query_id": one["query_id"],
            "groundtruth": one["groundtruth"],
            "location": one.get("location_preference"),
        }
        for one in drawn
    ]


def _plan(instance: PlanningProblem) -> list[dict[str, Any]]:
    base = query_seed(instance.seed, instance.query.id)
    found: list[dict[str, Any]] = []
    for i, block in enumerate(planned_blocks(instance, world_of(instance))):
        if block.kind == "cost_change":
            found.append({"new_random_seed": block.seed})
        elif block.kind == "remove_tools":
            found.append({"target_range": block.reach, "removed_component_count": block.size})
        else:
            found.append({"return_message_seed": base + SEED_STEP * i})
    return found


def _scenarios(instance: PlanningProblem, course: Course) -> list[dict[str, Any]]:
    label, digits = f"{title(instance.task)}Preference", instance.catalogue.digits[instance.split]
    return [
        {
            "gt_id": show_id(label, scenario.query.number, digits),
            "tools": scenario.path,
            "costs": [cents / 100 for cents in scenario.costs],
            "total_cost": as_float(scenario.costs),
        }
        for scenario in course.scenarios
    ]


def _oracle(instance: PlanningProblem, course: Course) -> dict[str, Any]:
    """The episode of an agent that follows the ground truth, as the reference records it."""
    calls = len(course.path)
    steps = calls + 1
    counted = agent_blocks([(event.at, event.kind) for event in course.events if event.at <= calls], steps)
    eligible = oracle_eligible(instance)
    cost = as_float(course.costs)
    scored = {
        "final_answer_correct": True,
        "edit_distance": 0,
        "normalized_edit_distance_single": 0.0,
        "tool_path_exact_match": True,
        "agent_cost": cost,
        "gt_cost": cost,
    }
    return {
        "oracle_calls": [[name, cents / 100, True] for name, cents in zip(course.path, course.costs, strict=True)],
        "total_steps": steps,
        "is_goal_state": True,
        "block_count_agent": counted,
        "block_count_gt": sum(bool(scenario.path) for scenario in course.scenarios) - 1,
        "gt_unblocked_flag": False,
        "eval": {
            "is_valid": eligible,
            "is_block_valid": counted == instance.blocks,
            "gt_incomplete": not course.complete,
            "gt_unblocked": not course.complete,
            "has_null_block_step": len(course.events) < instance.blocks,
            **{key: value if eligible else None for key, value in scored.items()},
            "error": None,
        },
    }


def _compared(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != SKIPPED}
