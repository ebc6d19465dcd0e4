"""One CostBench episode's score and figures, from the facts of its steps and the instance's course alone.

The agent's path is its charged calls in order: those that succeeded, and those that failed because their tool was just
banned or failed once. A call that was refused for any other reason costs nothing and is not a step of the path.

Source: sections 3.3 and B.3 of the paper; specification, sections 5.5 and 7.
Chosen: `value`, `solved` and every metric that accepts any optimal path; the reference compares with one path only,
although up to 7 % of its instances have several.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from evalkit.envs.costbench.domain.world import Terms, World, registry, tool_name
from evalkit.envs.costbench.events import (
    Course,
    agent_blocks,
    course_of,
    oracle_eligible,
    query_after,
    terms_after,
    world_of,
)
from evalkit.envs.costbench.instances import parameters
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.parameters import KINDS
from evalkit.envs.costbench.planning.solve import call_is_optimal, optimal_paths
from evalkit.envs.environment import Facts, Score

# How far two paths are apart: insertions, deletions and replacements of calls. Source: specification, section 7.1.


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The Levenshtein distance of two sequences of names."""
    if first == second:
        return 0
    from rapidfuzz.distance import Levenshtein

    letters: dict[str, str] = {}
    # One character a name: strings are what the library is quickest at.
    texts = ["".join([letters.setdefault(name, chr(len(letters) + 1)) for name in path]) for path in (first, second)]
    return Levenshtein.distance(*texts)


def normalised(first: Sequence[str], second: Sequence[str]) -> float:
    """The distance over the longer one's length, from 0 to 1; 0 if both are empty."""
    longer = max(len(first), len(second))
    return edit_distance(first, second) / longer if longer else 0.0


CHARGED = frozenset({"ok", "banned", "failed"})
"""Outcomes that put a call into the path."""

WRONG_PARAMETER = frozenset(
    {"unknown_tool", "not_json", "not_object", "missing", "bad_value", "bad_id", "unknown_context", "wrong_id"}
    | {"too_large", "too_deep"}
)
"""Outcomes of calls with a wrong name or wrong arguments."""

IGNORED = frozenset({"extra_parallel", "not_executed"})
"""Outcomes of calls that were not executed, because another call or an answer was in the same message."""

BAN, PREFERENCE = KINDS[:2]


@dataclass(slots=True)
class Walk:
    """The sums of a trajectory, before it is compared with a ground truth."""

    path: list[str] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    """Cents of each call of the path; 0 for a banned name that no tool has."""
    outcomes: Counter[str] = field(default_factory=Counter)
    atomic: int = 0
    """Calls that were looked at and name an atomic tool."""
    repeated: int = 0
    extra: int = 0
    messages: int = 2
    """Of the conversation: the system's and the user's first, then all that followed."""
    fired: list[tuple[int, str]] = field(default_factory=list)
    """(turn, kind) of events."""
    malformed: int = 0
    """Charged calls of composites that were given a malformed id."""
    banned_again: bool = False
    """Whether a ban fell on a name that was banned already."""
    optimal: bool = True
    """Whether every charged call began some optimal plan from where it was made, under the terms in force there."""
    goal: bool = False


def score(instance: PlanningProblem, trajectory: Sequence[Facts]) -> Score:
    """How close the agent's path is to an optimal one; `solved` if it is optimal.

    value: 1 - normalised edit distance to the nearest optimal path (with events: 1 where every call was optimal where
    it was made, else the distance to the segmented truth); 0 if the goal was not reached. Metrics, costs in cost
    units:

    goal              1 if the goal type was held at the end
    cost, optimal_cost, gap   of the agent's path, of the truth, and their difference (without events, goal reached)
    edit_distance, ned, exact   against the reference's one path, by its rule: the worst there is where the goal was not
                      reached, or, with several events, where a ban fell on a banned tool
    exact_any         1 if solved
    intent, previous_intent   1 if the answer is the wish's now in force; any wish's that was in force or was to be
    answered          1 if there was an answer that could be read
    messages          length of the conversation, instructions and request included
    calls, valid_calls, atomic_calls   calls looked at (one a turn), charged ones, ones that name an atomic tool
    repeated, extra   successful calls that do again what was done; that come after the goal
    wrong_parameter, unaccessible, banned_calls, failed_calls   calls by the outcome of them
    parallel_extra    further calls in one turn; not part of `calls`
    blocks_planned, blocks_met   events the course plans; that came early enough to matter (the reference's rule)
    eligible, eligible_any_agent   1 if the reference would count this run; if it would count the perfect agent's
    complete_truth    1 if the truth was planned to its end
    plan_paths, plan_valid   complete paths that the visible plan writes out, and those of them that would do
    paths_possible, paths_whole   ways to cut the chain that tools are offered for, and all 2^(N-1) there are
    malformed_charged  calls with a malformed id that were charged and gave their type, where the instance says so
    truth_change      normalised distance of the plan before any event and the truth
    """
    course = course_of(instance)
    walk = walked(instance, trajectory)
    static = is_static(instance)
    # The reference does not count the reply that it asks for once the goal is held.
    met = agent_blocks(walk.fired, sum(not facts.get("closing") for facts in trajectory))
    answer = answered(trajectory)
    metrics: dict[str, float] = {
        "goal": walk.goal,
        "cost": units(walk.costs),
        "optimal_cost": units(course.costs),
        "answered": answer is not None,
        "intent": answer == query_after(instance, met).number,
        "previous_intent": answer in [scenario.query.number for scenario in course.scenarios],
        "messages": walk.messages,
        **_counts(walk),
        "blocks_planned": course.planned,
        "blocks_met": met,
        "eligible": met >= course.planned and course.complete,
        "eligible_any_agent": oracle_eligible(instance),
        "complete_truth": course.complete,
        **_paths_possible(world_of(instance)),
        **_plan(trajectory),
    }
    if static and walk.goal:
        metrics["gap"] = (sum(walk.costs) - sum(course.costs)) / 100
    if instance.malformed_ids == parameters.CHARGED:
        metrics["malformed_charged"] = walk.malformed
    if not static:
        metrics["truth_change"] = normalised(course.scenarios[0].path, course.path)
    solved = walk.optimal and walk.goal
    metrics |= {**_against(course, walk), "exact_any": solved}
    return Score(
        value=_value(instance, course, walk),
        solved=solved,
        metrics={name: float(value) for name, value in metrics.items()},
        path=tuple(walk.path),
    )


def is_static(instance: PlanningProblem) -> bool:
    """Whether an episode has no events."""
    return not (instance.blocks or instance.schedule or instance.failures)


def units(cents: Sequence[int]) -> float:
    """Cents as cost units, added as the reference adds: from the left, in floats. Never compare two of them exactly."""
    total = 0.0
    for cost in cents:
        total += cost / 100
    return total


def answered(trajectory: Sequence[Facts]) -> int | None:
    """The number in the reply that decides: the last one that speaks of an answer, unless a silent one is after it."""
    for facts in reversed(trajectory):
        if "answer" in facts:
            return int(facts["answer"]) if facts["answer"] else None
        if facts.get("silent"):
            return None
    return None


def walked(instance: PlanningProblem, trajectory: Sequence[Facts]) -> Walk:
    """Follow the trajectory through the world."""
    position = Place(instance)
    walk = Walk()
    banned: set[str] = set()
    for facts in trajectory:
        calls: Sequence[Mapping[str, Any]] = facts.get("calls", ())
        walk.messages += 1 + sum(call["outcome"] != "not_executed" for call in calls)
        kinds = [event["kind"] for event in facts.get("events", ())]
        for call in calls:
            follow(walk, position, call)
        if BAN in kinds:
            walk.banned_again |= calls[0]["tool"] in banned
        for kind in kinds:
            walk.fired.append((facts["turn"], kind))
            walk.messages += kind == PREFERENCE
            position.change(kind)
        banned.update(call["tool"] for call in calls if call["outcome"] == "banned")
    walk.goal = bool(trajectory) and bool(trajectory[-1].get("goal"))
    return walk


class Place:
    """Where the agent stands: the types it holds, what was done since the wish last changed, and the terms."""

    def __init__(self, instance: PlanningProblem) -> None:
        self.world, self._instance = world_of(instance), instance
        self.state, self.reached = self.world.start, False
        self.done: set[str] = set()
        self._fired = 0
        self._banned: frozenset[int] = frozenset()
        self.terms = terms_after(instance, 0)

    def place(self, name: str) -> int | None:
        """The offered tool of that name."""
        index = self.world.place.get(name)
        return None if index is None or index >= len(self.world.tools) else index

    def change(self, kind: str) -> None:
        """The next event happens. A ban's tool is known by the call."""
        self._fired += 1
        if kind == PREFERENCE:
            self.state, self.reached, self.done = self.world.start, False, set()
        self._set()

    def ban(self, index: int) -> None:
        """The tool cannot be used any more."""
        self._banned |= {index}
        self._set()

    def _set(self) -> None:
        terms = terms_after(self._instance, self._fired)
        self.terms = Terms(terms.costs, terms.off | self._banned) if self._banned else terms


def follow(walk: Walk, position: Place, call: Mapping[str, Any]) -> None:
    """One call, and what it changes."""
    name, outcome = call["tool"], call["outcome"]
    walk.outcomes[outcome] += 1
    if outcome in IGNORED:
        return
    index = position.place(name)
    tool = position.world.tools[index] if index is not None else None
    walk.atomic += name in _atomic_names(position.world)
    if outcome not in CHARGED:
        return
    walk.path.append(name)
    walk.costs.append(call.get("cost", 0))
    walk.malformed += bool(call.get("malformed"))
    if index is None or tool is None:
        walk.optimal = False
        return
    walk.optimal = walk.optimal and call_is_optimal(position.world, position.terms, position.state, index)
    if outcome == "ok":
        if position.reached:
            walk.extra += 1
        elif position.done.intersection(tool.components) or position.state & tool.gives:
            walk.repeated += 1
        position.done.update(tool.components)
        position.state |= tool.gives
        position.reached = bool(position.state & position.world.goal)
    elif outcome == "banned":
        position.ban(index)


@lru_cache(maxsize=256)
def _atomic_names(world: World) -> frozenset[str]:
    """Of all tasks: a name of another task's is a wrong call, and still an atomic one (the reference counts it so)."""
    chain = world.catalogue.chain
    if chain is None or not world.chain:
        return frozenset(world.sequence)
    spans = registry(world.catalogue, world.length)
    return frozenset(tool_name(chain, task, world.length, i, i) for task, i, _ in spans)


def _counts(walk: Walk) -> dict[str, float]:
    count = walk.outcomes
    return {
        "calls": count.total() - sum(count[name] for name in IGNORED),
        "valid_calls": len(walk.path),
        "atomic_calls": walk.atomic,
        "repeated": walk.repeated,
        "extra": walk.extra,
        "wrong_parameter": sum(count[name] for name in WRONG_PARAMETER),
        "unaccessible": count["inaccessible"],
        "parallel_extra": count["extra_parallel"],
        "banned_calls": count["banned"],
        "failed_calls": count["failed"],
    }


def _against(course: Course, walk: Walk) -> dict[str, float]:
    """The reference's comparison with its one path."""
    if not walk.goal or (walk.banned_again and course.planned > 1):
        return {"edit_distance": max(len(walk.path), len(course.path)), "ned": 1.0, "exact": False}
    distance = edit_distance(walk.path, course.path)
    ned = distance / (max(len(walk.path), len(course.path)) or 1)
    return {"edit_distance": distance, "ned": ned, "exact": not distance}


def _value(instance: PlanningProblem, course: Course, walk: Walk) -> float:
    if not walk.goal:
        return 0.0
    if walk.optimal:
        return 1.0
    if not is_static(instance):
        return 1 - normalised(walk.path, course.path)
    world = world_of(instance)
    names = [tool.name for tool in world.tools]
    ways = optimal_paths(world, terms_after(instance, 0), world.start)
    return 1 - min(normalised(walk.path, [names[index] for index in way]) for way in ways)


@lru_cache(maxsize=256)
def _paths_possible(world: World) -> Mapping[str, float]:
    if not world.chain:
        return {}
    sizes = {tool.size for tool in world.tools}
    ways = [1]
    for length in range(1, world.length + 1):
        ways.append(sum(ways[length - size] for size in sizes if size <= length))
    return {"paths_possible": ways[-1], "paths_whole": 2 ** (world.length - 1)}


def _plan(trajectory: Sequence[Facts]) -> dict[str, float]:
    plan = next((facts["plan"] for facts in trajectory if "plan" in facts), None)
    return {} if plan is None else {"plan_paths": plan["paths"], "plan_valid": plan["valid"]}
