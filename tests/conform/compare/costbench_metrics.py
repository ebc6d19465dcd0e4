"""Golden episodes of CostBench: played through the real environment, then judged as the reference's evaluation judges.

A row holds what the assistant said, what became of each call, and the evaluation's figures for the episode; a document
holds the figures of whole groups of rows (`costbench_aggregates.py`). Not compared: `block_count_gt`, which counts what
the reference has planned by the time an agent stops, and the greedy baseline under blocks, which it replays by other
rules than the episode's (specification, section 6.3): there, the recorded one enters the ratio that needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.costbench.domain.catalogue import title
from evalkit.envs.costbench.domain.ids import show_id
from evalkit.envs.costbench.events import course_of, terms_of, world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import CHARGED
from evalkit.envs.costbench.score import score, units, walked
from evalkit.envs.costbench.step import TEXTS
from evalkit.envs.environment import Facts, Kit, Pack
from evalkit.tasks.costbench.queries import read_queries, suite_lines
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, documented, out_of_scope, parting
from tests.support.greedy_paths import greedy_path

QUERIES = Path("costbench", "test", "queries.json")
"""Below the folder with the reference's data set."""

MODES = {None: "none", "steplen_change": "remove_tools"}
"""The reference's names of blocks, where they are not ours."""

OUTCOMES: Mapping[str, frozenset[str]] = {
    "bad_json": frozenset({"not_json", "not_object"}),
    "missing_param": frozenset({"missing"}),
    "bad_enum": frozenset({"bad_value"}),
    "unknown_location": frozenset({"unknown_context"}),
    # What went wrong inside a composite the reference does not say.
    "composite_inner_error": frozenset({"bad_value", "bad_id", "unknown_context", "missing"}),
}
"""The reference's outcomes of a call and ours, where the names are not the same."""

MALFORMED_KINDS = frozenset({"ok", "bad_id", "composite_inner_error"})
"""What a golden row may call a composite's call with a malformed id, which the reference charges."""

BESIDE = "call-beside-answer"
AGAIN = "banned-name-of-no-tool"
MALFORMED = "malformed-id-to-a-composite"
LEAST_LENGTH = 3
SEED = 42
"""The global seed, where a row names none."""

MOST_BLOCKS = 5
"""Of one episode: so many alternatives are drawn."""

_KIT = Kit(pack=Pack(name="bare", digest="", texts=dict.fromkeys(TEXTS, "")))
"""No text reaches the facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An episode that was played."""

    instance: PlanningProblem
    facts: tuple[Facts, ...]
    evaluation: Mapping[str, Any]
    """What the reference's evaluation says of it, made from our facts."""
    beside: bool
    """Whether a reply held a call beside its answer: those of the evaluation's figures differ from ours."""


def metrics(row: Row, data: Path | None) -> GoldenVerdict:
    """One episode: every call's outcome and cost, how it ended, its course, and its evaluation."""
    if data is None or not (data / QUERIES).is_file():
        return out_of_scope("needs the reference's queries: --data")
    episode = played(row, data)
    again = _banned_again(row, episode)
    found = _calls_part(row, episode.facts, again) or parting(_compared(row), _ours(row, episode))
    if found:
        return differing(found)
    if any(call.get("malformed") for one in episode.facts for call in one["calls"]):
        return documented(MALFORMED)
    if again:
        return documented(AGAIN)
    return documented(BESIDE) if episode.beside else EQUAL


def instance_of(row: Row, data: Path) -> PlanningProblem:
    """What a row was played on: the query as it is imported, with the row's length and blocks."""
    block = MODES.get(row["block_mode"], row["block_mode"])
    settings = {"length": row["refinement_level"] + LEAST_LENGTH, "block": block, "blocks": row["block_num"]}
    settings["malformed_ids"] = CHARGED
    return _load(data, row.get("global_seed", SEED), row["query_id"], tuple(settings.items()))


@lru_cache(maxsize=256)
def _load(data: Path, seed: int, query_id: str, settings: tuple[tuple[str, Any], ...]) -> PlanningProblem:
    return COSTBENCH.load({**_lines(data, seed)[query_id], **dict(settings)})


@lru_cache(maxsize=4)
def _lines(data: Path, seed: int) -> Mapping[str, Mapping[str, Any]]:
    """Lines of a suite by the reference's query id."""
    lines = suite_lines([read_queries(data / QUERIES)], seed=seed, alternatives=MOST_BLOCKS)
    return {line["query"]["id"]: line for line in lines}


def played(row: Row, data: Path) -> Episode:
    """Answer with the row's assistant messages, one by one, to their end or the episode's."""
    instance = instance_of(row, data)
    state = COSTBENCH.start(instance, _KIT)
    facts: list[Facts] = []
    for message in row["trajectory"]:
        if message["role"] != "assistant" or COSTBENCH.ended(state):
            continue
        calls = tuple(
            ToolCall(id=f"call{i}", name=call["name"], arguments=call["arguments"])
            for i, call in enumerate(message["tool_calls"])
        )
        state, observation = COSTBENCH.step(state, Reply(text=message["content"] or "", calls=calls))
        facts.append(observation.facts)
    beside = any(call["outcome"] == "not_executed" for one in facts for call in one["calls"])
    evaluation = evaluated(instance, facts, row)
    return Episode(instance=instance, facts=tuple(facts), evaluation=evaluation, beside=beside)


def as_reference(facts: Sequence[Facts]) -> list[Facts]:
    """The facts by the reference's rule for a call beside an answer: carried out for nothing, and no message behind it.

    Its evaluation finds no tool message for the call, and so no error and no cost.
    """
    found: list[Facts] = []
    for one in facts:
        calls = [
            {"tool": call["tool"], "outcome": "ok"} if call["outcome"] == "not_executed" else call
            for call in one["calls"][: 1 if one.get("ended") == "answered" else None]
        ]
        found.append({**one, "calls": calls})
    return found


def evaluated(instance: PlanningProblem, facts: Sequence[Facts], row: Row) -> dict[str, Any]:
    """The figures of the reference's evaluation for one episode, from its facts.

    Of an episode whose blocks do not count there are fewer. Of the row only the recorded greedy cost is read.
    """
    course, own = course_of(instance), score(instance, facts).metrics
    view = score(instance, as_reference(facts))
    figures = view.metrics
    answer = next((one["answer"] for one in reversed(facts) if "answer" in one), None) if own["answered"] else None
    told = {
        "is_valid": figures["blocks_met"] == instance.blocks,
        "query_id": instance.query.id,
        "expected_block_count": instance.blocks,
        "actual_block_count": int(figures["blocks_met"]),
        "is_block_valid": figures["blocks_met"] == instance.blocks,
        "has_answer": bool(figures["answered"]),
        "no_goal_state": not figures["goal"],
        "agent_final_answer": answer,
        "has_null_block_step": False,
        "gt_unblocked": not course.complete,
        "gt_incomplete": not course.complete,
        "conversation_length": int(own["messages"]),
    }
    if not told["is_block_valid"]:
        return told
    agent, truth, greedy = figures["cost"], units(course.costs), row["greedy"]["cost"]
    calls, accepted, atomic = (int(figures[name]) for name in ("calls", "valid_calls", "atomic_calls"))
    return {
        **told,
        "final_answer_correct": bool(figures["intent"]),
        "previous_gt_answer_correct": bool(figures["previous_intent"]),
        "agent_tool_path": view.path,
        "agent_cost": agent,
        "gt_tool_path": course.path,
        "gt_cost": truth,
        "edit_distance": int(figures["edit_distance"]),
        "normalized_edit_distance_single": figures["ned"],
        "tool_path_exact_match": bool(figures["exact"]),
        "cost_ratio": (greedy - agent) / (greedy - truth) if greedy is not None and greedy != truth else None,
        "valid_search_ratio": accepted / calls if calls else 0.0,
        "atomic_tool_ratio": atomic / calls if calls else 0.0,
        "total_tool_calls": calls,
        "valid_tool_calls": accepted,
        "atomic_tool_calls": atomic,
    }


def _banned_again(row: Row, episode: Episode) -> frozenset[int]:
    """Turns whose call names no tool, and a banned one at that, where the reference took its own failure for success.

    It looks up the tool's cost for its sentence, which raises; the text of that is neither an error nor a sentence of a
    ban, so its evaluation counts a valid call without a cost. Ours is the ban's sentence, valid and without a cost too.
    """
    world = world_of(episode.instance)
    return frozenset(
        one["turn"]
        for said, one in zip(_answers(row), episode.facts, strict=False)
        for golden, call in zip(said[:1], one["calls"][:1], strict=False)
        if golden["kind"] == "ok" and call["outcome"] == "banned" and call["tool"] not in world.place
    )


def _answers(row: Row) -> list[list[Mapping[str, Any]]]:
    """The tool messages behind each assistant message."""
    turns: list[list[Mapping[str, Any]]] = []
    for message in row["trajectory"]:
        if message["role"] == "assistant":
            turns.append([])
        elif message["role"] == "tool":
            turns[-1].append(message)
    return turns


def _calls_part(row: Row, facts: Sequence[Facts], again: frozenset[int]) -> str:
    """Where outcomes or costs of calls part; a cost that is not charged is part of a text only."""
    turns = _answers(row)
    if len(turns) != len(facts):
        return f"trajectory: golden has {len(turns)} assistant messages, ours takes {len(facts)}"
    for i, (golden, one) in enumerate(zip(turns, facts, strict=True)):
        calls = [call for call in one["calls"] if call["outcome"] != "not_executed"]
        if len(golden) != len(calls):
            return f"turn {i + 1}: golden answers {len(golden)} calls, ours {len(calls)}"
        for said, call in zip(golden, calls, strict=True):
            known = OUTCOMES.get(said["kind"], {said["kind"]})
            # Whoever recorded it may have gone by the message, which names an error, or by what came of it.
            malformed = call.get("malformed", False) and said["kind"] in MALFORMED_KINDS
            if one["turn"] not in again and not malformed and call["outcome"] not in known:
                return f"turn {i + 1}: golden {said['kind']}, ours {call['outcome']}"
            charged = (malformed or said["kind"] in ("ok", "banned")) and said["cost_text"] is not None
            cost = round(100 * float(said["cost_text"])) if charged else None
            if call.get("cost") != cost:
                return f"turn {i + 1}: cost: golden {cost} cents, ours {call.get('cost')}"
    return ""


def _ours(row: Row, episode: Episode) -> dict[str, Any]:
    """What we say of everything in a row that is compared."""
    instance, facts = episode.instance, episode.facts
    course, walk = course_of(instance), walked(instance, facts)
    label, digits = f"{title(instance.task)}Preference", instance.catalogue.digits[instance.split]
    scenarios = [
        {
            "gt_id": show_id(label, scenario.query.number, digits),
            "tools": [[name, cents / 100] for name, cents in zip(scenario.path, scenario.costs, strict=True)],
            "total_cost": units(scenario.costs),
        }
        for scenario in course.scenarios
    ]
    blocks = None
    if instance.blocks:
        fired = episode.evaluation["actual_block_count"]
        kinds = [row["block_mode"]] * len(course.events)
        steps = [event.at for event in course.events]
        blocks = {
            "expected_block_count": instance.blocks,
            "block_step": steps,
            "block_type": kinds,
            "block_count_agent": fired,
        }
    return {
        **_compared(row),
        "total_steps": len(facts),
        "status": "completed" if len(facts) < instance.steps else "max_steps_reached",
        "is_goal_state": walk.goal,
        "gt_id": show_id(label, instance.query.number, digits),
        "block_stats": blocks,
        # The reference stops planning where the agent stopped, if that was before the blocks.
        "scenarios": scenarios[: len(row["scenarios"])],
        "duplicate_banned_tool_reused": walk.banned_again,
        "greedy": row["greedy"] if instance.blocks else _greedy(instance),
        "eval": as_recorded(row, episode),
    }


def as_recorded(row: Row, episode: Episode) -> dict[str, Any]:
    """The evaluation, with what the reference does not know of an episode that ended before its blocks.

    It plans the truth while the agent plays, and so never learns there whether it is complete.
    """
    said = dict(episode.evaluation)
    if not said["is_block_valid"]:
        said |= {key: row["eval"][key] for key in ("gt_unblocked", "gt_incomplete", "has_null_block_step")}
    return said


def _greedy(instance: PlanningProblem) -> dict[str, Any]:
    world, terms = world_of(instance), terms_of(instance)
    path = greedy_path(world, terms, world.start, None, instance.steps)
    return {
        "path": [world.tools[place].name for place in path],
        "cost": units([terms.costs[place] for place in path]),
        "error": None,
    }


def _compared(row: Row) -> dict[str, Any]:
    stats = row["block_stats"]
    kept = {key: value for key, value in stats.items() if key != "block_count_gt"} if stats else None
    return {**{key: value for key, value in row.items() if key != "trajectory"}, "block_stats": kept}
