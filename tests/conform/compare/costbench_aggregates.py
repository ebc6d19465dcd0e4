"""Golden figures of whole groups of CostBench episodes, recomputed from the rows in the same folder.

Every row is played through the environment (`costbench_metrics.py`); what is compared here is how single runs are left
out and put together: with the reference's populations (specification, section 7.2). Not compared: the greedy baseline
of the groups with blocks, which the reference replays by other rules than its episodes'.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit.envs.costbench.score import edit_distance, normalised
from tests.conform.compare.costbench_metrics import BESIDE, QUERIES, Episode, as_recorded, played
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, documented, out_of_scope, parting

ROWS = "metrics_synthetic*.jsonl"
"""Files in whose rows the groups' single runs stand."""

BESIDE_KEY = "beside"
"""Under this key of the document the caller puts the rows of the files beside it."""

SHORT_TALK = 3
MEAN_ATOMIC_COST = 20.0
STATIC, GREEDY = "static", "stimulation_metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as the groups' figures take it in."""

    said: Mapping[str, Any]
    """Its evaluation."""
    greedy: tuple[str, ...]
    greedy_cost: float


def aggregates(row: Row, data: Path | None) -> GoldenVerdict:
    """All groups of a document: static ones by level, blocked ones by kind."""
    rows = row.get(BESIDE_KEY)
    if not rows:
        return out_of_scope(f"the single runs ({ROWS}) are not beside it")
    if data is None or not (data / QUERIES).is_file():
        return out_of_scope("needs the reference's queries: --data")
    beside = False
    for name, golden in row.items():
        if name == BESIDE_KEY:
            continue
        members = [one for one in rows if group_of(one) == name]
        episodes = [played(one, data) for one in members]
        beside |= any(episode.beside for episode in episodes)
        runs = [_run(one, episode) for one, episode in zip(members, episodes, strict=True)]
        static = name.startswith(STATIC)
        ours = {**figures(runs), **({GREEDY: greedy_figures(runs)} if static else {})}
        compared = golden if static else {key: value for key, value in golden.items() if key != GREEDY}
        if found := parting(compared, ours, name):
            return differing(found)
    return documented(BESIDE) if beside else EQUAL


def group_of(row: Row) -> str:
    """The group a row belongs to."""
    return f"blocked_{row['block_mode']}" if row["block_mode"] else f"{STATIC}_level{row['refinement_level']}"


def _run(row: Row, episode: Episode) -> Run:
    said = as_recorded(row, episode)
    greedy = row["greedy"]
    return Run(said=said, greedy=tuple(greedy["path"]), greedy_cost=greedy["cost"])


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """What the reference says of a group."""
    open_ended = [run.said for run in runs if not run.said["gt_unblocked"]]
    valid = [run.said for run in runs if run.said["is_valid"] and not run.said["gt_incomplete"]]
    talked = [one for one in valid if one["conversation_length"] > SHORT_TALK]
    reached = [one for one in talked if not one["no_goal_state"]]
    hits = sum(one["final_answer_correct"] for one in talked)
    known = sum(one["previous_gt_answer_correct"] for one in talked)
    matches = sum(one["tool_path_exact_match"] for one in talked)
    return {
        "total_queries": len(runs),
        "valid_num": len(valid),
        "block_invalid_num": sum(not one["is_block_valid"] for one in open_ended),
        "no_answer_num": sum(not one["has_answer"] for one in open_ended),
        "no_goal_state_num": sum(one["no_goal_state"] for one in open_ended),
        "accuracy_metrics": {
            "final_answer_accuracy": hits / len(talked),
            "final_answer_correct_count": hits,
            "previous_gt_answer_accuracy": known / len(talked),
            "previous_gt_answer_correct_count": known,
        },
        "cost_metrics": {
            **_costs([(one["agent_cost"], one["gt_cost"]) for one in reached]),
            "stimulation_cost_ratio": _mean([one["cost_ratio"] for one in reached if one["cost_ratio"] is not None]),
        },
        "tool_path_metrics": {
            "avg_edit_distance": _mean([one["edit_distance"] for one in talked]),
            "avg_normalized_edit_distance": _mean([one["normalized_edit_distance_single"] for one in talked]),
            "tool_path_exact_match_count": matches,
            "tool_path_exact_match_ratio": matches / len(talked),
        },
        "tool_usage_metrics": _usage(valid),
    }


def greedy_figures(runs: Sequence[Run]) -> dict[str, Any]:
    """The greedy baseline of a static group: each run's query counts as often as it was played."""
    truths = [run.said["gt_tool_path"] for run in runs]
    matches = sum(run.greedy == tuple(truth) for run, truth in zip(runs, truths, strict=True))
    pairs = list(zip([run.greedy for run in runs], truths, strict=True))
    apart = [(tuple(run.said["agent_tool_path"]), run.greedy) for run in runs]
    return {
        "participating_num": len(runs),
        "cost_metrics": _costs([(run.greedy_cost, run.said["gt_cost"]) for run in runs]),
        "tool_path_metrics": {
            **_distances(pairs),
            "tool_path_exact_match_count": matches,
            "tool_path_exact_match_ratio": matches / len(runs),
        },
        "agent_vs_stimulation_path_metrics": _distances(apart),
    }


def _usage(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    calls, valid, atomic = (
        sum(one[name] for one in said) for name in ("total_tool_calls", "valid_tool_calls", "atomic_tool_calls")
    )
    return {
        "total_tool_calls": calls,
        "valid_tool_calls": valid,
        "atomic_tool_calls": atomic,
        "valid_search_ratio": valid / calls,
        "atomic_tool_ratio": atomic / calls,
    }


def _costs(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Of (agent's cost, truth's cost)."""
    agent, truth = _sum([one for one, _ in pairs]), _sum([other for _, other in pairs])
    below = sum(one < other for one, other in pairs)
    return {
        "total_agent_cost": agent,
        "total_gt_cost": truth,
        "avg_agent_cost": agent / len(pairs),
        "avg_gt_cost": truth / len(pairs),
        "cost_ratio": (agent / len(pairs)) / (truth / len(pairs)),
        "avg_delta_atomic": _mean([(one - other) / MEAN_ATOMIC_COST for one, other in pairs]),
        "mean_per_query_ratio": _mean([one / other for one, other in pairs]),
        "agent_cost_below_gt_count": below,
        "agent_cost_below_gt_ratio": below / len(pairs),
    }


def _distances(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> dict[str, float]:
    return {
        "avg_edit_distance": _mean([edit_distance(one, other) for one, other in pairs]),
        "avg_normalized_edit_distance": _mean([normalised(one, other) for one, other in pairs]),
    }


def _mean(values: Sequence[float]) -> float:
    return _sum(values) / len(values)


def _sum(values: Sequence[float]) -> float:
    """From the left, in floats, as the reference adds."""
    total = 0.0
    for value in values:
        total += value
    return total
