"""A suite's lines: each read as an instance, checked, written back, and made afresh.

Loading a line is cheap: costs are drawn and the optimum is found when an episode starts or the line is written. A
stored optimum and digest are then compared with what was found.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.catalogue_files import only_task, parse_catalogue, shipped
from evalkit.envs.costbench.domain.ids import combinations, has_context
from evalkit.envs.costbench.domain.queries import native_query
from evalkit.envs.costbench.domain.world import MOST_LENGTH, Terms, World, make_world
from evalkit.envs.costbench.instances.blocks import planned_blocks
from evalkit.envs.costbench.instances.costs import costs_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.line import (
    PARAMETERS,
    PlanningLine,
    read_costs,
    read_query,
    read_schedule,
    show_costs,
    show_query,
    show_schedule,
)
from evalkit.envs.costbench.instances.parameters import (
    MOST_EXAMPLE,
    NAME,
    Settings,
    example_by_rule,
    steps_by_rule,
)
from evalkit.envs.costbench.planning.search import check_size
from evalkit.envs.costbench.planning.solve import optimum
from evalkit.envs.parameters import check_digest, check_names, checked, read_line, written
from evalkit.errors import UsageError, nearest
from evalkit.seeds import Stream
from evalkit.text import many

# Whether an instance's events can be played: they have the queries they need, and leave a way to the goal.

# How many tools may break before no way to the goal is left, whatever the agent does.
#
# A state only grows, so every way that leads from the start stays open until its tools are broken: the bound at the
# start holds all along. In a chain a tool is an edge between positions, and the fewest edges that cut start from goal
# are as many as there are ways that share none (Menger): a maximum flow. With all spans but the whole that is N - 1,
# as the paper proves (B.5); with one size hidden it is less. In a graph, one tool of every way must break: a search
# that takes any way and breaks each of its tools in turn.


@lru_cache(maxsize=1024)
def fewest_breaks(world: World, hidden: int, most: int) -> int:
    """The fewest tools whose loss leaves no way from start to goal, where composites of size `hidden` are gone (0:
    none); `most + 1` where that is more than `most`.
    """
    tools = [index for index, tool in enumerate(world.tools) if not tool.size == hidden > 1]
    if world.chain:
        return min(most + 1, _chain_cut(world, tools))
    for count in range(most + 1):
        if _breakable(world, frozenset(tools), count, set()):
            return count
    return most + 1


def _chain_cut(world: World, tools: Collection[int]) -> int:
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(world.length + 1))
    graph.add_edges_from((world.tools[index].first, world.tools[index].last + 1, {"capacity": 1}) for index in tools)
    return int(nx.maximum_flow_value(graph, 0, world.length))


def _breakable(world: World, tools: frozenset[int], count: int, seen: set[frozenset[int]]) -> bool:
    """Whether the loss of `count` of a graph's tools leaves no way. `seen`: sets of tools known to stand it."""
    way = _way(world, tools)
    if way is None:
        return True
    if not count or tools in seen:
        return False
    if any(_breakable(world, tools - {index}, count - 1, seen) for index in way):
        return True
    seen.add(tools)
    return False


def _way(world: World, tools: Collection[int]) -> list[int] | None:
    """Tools of one way to the goal, each needed in it; None: there is none."""
    state, giver_of, grown = world.start, dict[int, int](), True
    while grown and not state & world.goal:
        grown = False
        for index in tools:
            tool = world.tools[index]
            if not tool.need & ~state and not tool.gives & state:
                state, giver_of[tool.gives], grown = state | tool.gives, index, True
    if not state & world.goal:
        return None
    way, wanted = list[int](), [world.goal]
    while wanted:
        kind = wanted.pop()
        if kind in giver_of:
            way.append(giver_of.pop(kind))
            wanted += [world.bit[name] for name in world.tools[way[-1]].inputs]
    return way


def check_events(instance: PlanningProblem, world: World) -> None:
    """Raises UsageError naming the field that asks for what cannot be played."""
    if instance.schedule and instance.block != "none":
        raise UsageError("block: a schedule says all that happens; leave `block` and `blocks` out beside it.")
    if instance.block in ("preference_change", "mixed"):
        _check_seed(instance)
    _check_way(instance, world)


def _check_seed(instance: PlanningProblem) -> None:
    drawn_for = instance.alternatives_seed
    if instance.generator == "reference" and drawn_for != instance.seed:
        raise UsageError(
            f"alternatives_seed: the reference draws alternatives by seed, and these were drawn for "
            f"{'no seed that the line says' if drawn_for is None else drawn_for}, not for {instance.seed}. "
            "Import or generate the suite again with that seed."
        )


def _check_way(instance: PlanningProblem, world: World) -> None:
    """Whether a way to the goal is left whichever tools an agent's calls ban (B.5 of the paper)."""
    blocks = planned_blocks(instance, world)
    bans = sum(block.kind == "ban_tool" for block in blocks)
    where = "schedule" if instance.schedule else "blocks"
    for size in sorted({0, *(block.size for block in blocks)}) if bans or not world.chain else ():
        stands = fewest_breaks(world, size, bans) - 1
        hidden = f"once those of {size} components are removed" if size else ""
        if stands < 0:
            raise UsageError(
                f"{where}: no way to the goal is left among the tools of task {instance.task!r}, {hidden}."
            )
        if stands < bans:
            raise UsageError(
                f"{where}: {many(bans, 'ban')} may leave no way to the goal; the tools of task {instance.task!r} "
                f"stand {stands or 'none'}{f', {hidden}' if hidden else ''} (appendix B.5 of the paper). Ask for fewer"
                f"{', or for a longer chain' if world.chain else ''}."
            )


ALTERNATIVES = 3
"""Made for each generated instance, for its preference changes: as many as the paper's most blocks."""

_TRIES = 100  # draws of an alternative that wants the same as an earlier query before it is taken as it comes

_SPARSE = (  # written where not the default
    *("noise_power", "distribution", "listed", "whole", "failures", "strict", "composites", "sequence"),
    *("malformed_ids", "require_goal_state", "control_tool_length", "max_tool_length"),
)


def load(line: Mapping[str, Any]) -> PlanningProblem:
    """A suite's line as an instance. Raises UsageError naming the field that is wrong."""
    said = read_line(line, PlanningLine, NAME)
    catalogue, catalogue_name = _catalogue(said.catalogue)
    task = _check_task(catalogue, said.task, said.split)
    _check_fit(catalogue, task, line, said)
    calm = said.block == "none" or said.blocks == 0
    longest = said.max_tool_length if said.control_tool_length else MOST_LENGTH
    world = make_world(catalogue, task, said.length, said.whole, longest)
    check_size(world)
    settled = {name: getattr(said, name) for name in Settings.__struct_fields__} | {
        "task": task,
        "length": world.length,
        "steps": said.steps or steps_by_rule(world.length),
        "example": example_by_rule(world.length) if said.example is None else said.example,
        "block": "none" if calm else said.block,
        "blocks": 0 if calm else 1 if said.blocks is None else said.blocks,
    }
    instance = PlanningProblem(
        **settled,
        id=said.id,
        digest=said.digest,
        catalogue=catalogue,
        catalogue_name=catalogue_name,
        query=read_query(said.query, catalogue, task, said.split, "query"),
        alternatives=tuple(
            read_query(query, catalogue, task, said.split, f"alternatives[{i}]")
            for i, query in enumerate(said.alternatives)
        ),
        alternatives_seed=said.alternatives_seed,
        costs=read_costs(said.costs, world, "costs"),
        schedule=read_schedule(said.schedule, world, len(said.alternatives)),
        source=said.source,
        optimum=said.optimum,
    )
    check_events(instance, world)
    return instance


def describe(instance: PlanningProblem) -> dict[str, Any]:
    """An instance as a suite's line, with the digest of its costs and the least cost of a plan in cents.

    What follows from the length is left out, so that a sweep that varies the length varies it too.
    """
    world = _world(instance)
    line: dict[str, Any] = {"id": instance.id, "environment": NAME, "generator": instance.generator}
    line |= {"seed": instance.seed, "task": instance.task, "split": instance.split}
    line["catalogue"] = instance.catalogue_name or only_task(instance.catalogue, instance.task)
    if world.chain:
        line["length"] = instance.length
    line |= written(instance, ("low", "high", "noise", *_SPARSE), _SPARSE)
    if instance.block != "none":
        line |= {"block": instance.block, "blocks": instance.blocks}
    if instance.steps != steps_by_rule(world.length):
        line["steps"] = instance.steps
    if instance.example != example_by_rule(world.length):
        line["example"] = instance.example
    line["query"] = show_query(instance.query)
    if instance.alternatives:
        line["alternatives"] = [show_query(query) for query in instance.alternatives]
    if instance.alternatives_seed is not None:
        line["alternatives_seed"] = instance.alternatives_seed
    if instance.costs:
        line["costs"] = show_costs(instance.costs)
    if instance.schedule:
        line["schedule"] = show_schedule(instance.schedule)
    if instance.source is not None:
        line["source"] = msgspec.to_builtins(instance.source)
    least, digest = instance.optimum, instance.digest
    if least is None or not digest:
        least, digest = found_optimum(instance)
    return {**line, "digest": digest, "optimum": least}


def found_optimum(instance: PlanningProblem) -> tuple[int, str]:
    """The least cost of a plan before any event, in cents, and the digest of the costs.

    Raises UsageError if no plan reaches the goal.
    """
    world = _world(instance)
    costs = costs_of(instance, world)
    least = optimum(world, Terms(costs), world.start)
    if least is None:
        raise UsageError(
            f"{instance.id}: no sequence of the tools of task {instance.task!r} reaches {world.goal_type}."
        )
    named_costs = [[tool.name, cents] for tool, cents in zip(world.tools, costs, strict=False)]
    return least, hashlib.sha256(orjson.dumps(named_costs)).hexdigest()[:32]


def check_optimum(instance: PlanningProblem) -> None:
    """Raises UsageError if the line's digest or optimum is not that of the costs drawn."""
    if instance.optimum is None and not instance.digest:
        return
    least, digest = found_optimum(instance)
    check_digest(instance.id, instance.digest, digest, of="the costs drawn from this line have")
    if instance.optimum is not None and instance.optimum != least:
        raise UsageError(
            f"{instance.id}: optimum: the cheapest plan costs {least} cents, the line says {instance.optimum}."
        )


def stratum(instance: PlanningProblem) -> str:
    """The task."""
    return instance.task


def offers(instance: PlanningProblem) -> int:
    """How many tools a request offers at most."""
    return len(_world(instance).tools)


def generate(parameters: Mapping[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Lines of fresh instances, lazily: seeds keyed by place, tasks in turn unless one is asked for.

    `parameters["catalogue"]` may be a catalogue as plain values; lines then hold what their task needs of it.
    Raises UsageError for parameters that `load` refuses.
    """
    check_names(NAME, PARAMETERS, parameters)
    given = {name: value for name, value in parameters.items() if value is not None}
    catalogue, catalogue_name = _catalogue(given.get("catalogue", PARAMETERS["catalogue"].default))
    split = checked(PARAMETERS, "split", given.get("split", PARAMETERS["split"].default))
    tasks = [given["task"]] if "task" in given else list(catalogue.tasks)
    for task in tasks:
        _check_task(catalogue, task, split)
    if "task" in given:
        # Among all tasks in turn, those without a use for them do without; one that was asked for does not.
        _check_shape(catalogue, given["task"], given)
    catalogues = {task: catalogue_name or only_task(catalogue, task) for task in tasks}
    return (
        _line({**given, "catalogue": catalogues[task], "task": task, "split": split}, catalogue, index, seed)
        for index, task in ((index, tasks[index % len(tasks)]) for index in range(count))
    )


def _line(given: Mapping[str, Any], catalogue: Catalogue, index: int, seed: int) -> dict[str, Any]:
    """One fresh instance; `given` holds catalogue, task and split, and what was asked for."""
    task, split = given["task"], given["split"]
    own = Stream(seed, NAME, "instance", index).word() >> 1
    query = native_query(catalogue, task, split, seed, index)
    queries = [query]
    for number in range(max(ALTERNATIVES, checked(PARAMETERS, "blocks", given.get("blocks")) or 0)):
        for attempt in range(_TRIES):
            alternative = native_query(catalogue, task, split, own, number * _TRIES + attempt)
            if all(alternative.preferences != other.preferences for other in queries):
                break
        queries.append(alternative)
    line = {name: value for name, value in given.items() if name not in _of_chain(catalogue, task)}
    line |= {"id": f"{task}-{index:04d}", "seed": own, "query": show_query(query)}
    line |= {"alternatives": [show_query(alternative) for alternative in queries[1:]], "alternatives_seed": own}
    return describe(load(line))


def _of_chain(catalogue: Catalogue, task: str) -> tuple[str, ...]:
    """Parameters that a task has no use for: a graph has the tools its catalogue says."""
    none: tuple[str, ...] = ()
    return none if catalogue.tasks[task].graph is None else ("length", "whole", "control_tool_length")


def _world(instance: PlanningProblem) -> World:
    return make_world(instance.catalogue, instance.task, instance.length, instance.whole, instance.longest)


def _catalogue(value: object) -> tuple[Catalogue, str]:
    """(catalogue, its name if it is a shipped one). Raises UsageError."""
    if isinstance(value, str):
        return shipped(value), value
    if not isinstance(value, Mapping):
        raise UsageError(f"catalogue: expected a catalogue's name, or a catalogue as an object, got {value!r}.")
    try:
        return _parsed(orjson.dumps(dict(value))), ""
    except orjson.JSONEncodeError as flaw:
        raise UsageError(f"catalogue: {flaw}.") from flaw


@lru_cache(maxsize=64)
def _parsed(content: bytes) -> Catalogue:
    # By content, so that all lines of a suite share one catalogue, and with it their worlds.
    return parse_catalogue(orjson.loads(content), "catalogue")


def _check_task(catalogue: Catalogue, task: object, split: str) -> str:
    """The task, which the catalogue has. Raises UsageError."""
    if task is None:
        raise UsageError(f"task: is missing.{nearest('', catalogue.tasks)}")
    if not isinstance(task, str) or task not in catalogue.tasks:
        raise UsageError(f"task: there is no {task!r}.{nearest(str(task), catalogue.tasks)}")
    for name in (task, *([catalogue.context] if has_context(catalogue, task) else [])):
        if not combinations(catalogue, name, split):
            raise UsageError(f"split: task {name!r} of this catalogue has no values in the {split} split.")
    return task


def _check_shape(catalogue: Catalogue, task: str, given: Mapping[str, Any]) -> None:
    for name in _of_chain(catalogue, task):
        if given.get(name) is not None:
            raise UsageError(
                f"{name}: task {task!r} is no chain; its tools are those its catalogue lists. Leave {name} out, or in "
                "a sweep choose the other instances by `instances`."
            )


def _check_fit(catalogue: Catalogue, task: str, line: Mapping[str, Any], said: PlanningLine) -> None:
    """What no field says alone."""
    if said.low > said.high:
        raise UsageError(f"low: {said.low} is above high ({said.high}).")
    if said.listed is not None and (said.generator == "reference" or said.distribution != "uniform"):
        raise UsageError("listed: draws costs by itself: leave `distribution` out, and use the generator 'native'.")
    if said.distribution == "lognormal" and said.low <= 0:
        raise UsageError("low: must be above 0, where distribution is 'lognormal'.")
    graph = catalogue.tasks[task].graph is not None
    if graph and said.generator == "reference":
        raise UsageError(f"generator: the reference has no tools like those of task {task!r}; use 'native'.")
    _check_shape(catalogue, task, line)
    if said.generator == "reference" and said.distribution != "uniform":
        raise UsageError(f"distribution: the reference draws no {said.distribution!r} costs; use 'native'.")
    if said.example and not graph and said.length > MOST_EXAMPLE:
        raise UsageError(
            f"example: it lists every way through the tools, 2^{said.length - 1} of them; at most {MOST_EXAMPLE} "
            "tools have one."
        )
    # One is what holds where nothing is said, and so asks for nothing.
    if (said.blocks or 0) > 1 and line.get("block") is None and not said.schedule:
        raise UsageError(f"blocks: {said.blocks} of what? `block` says which kind of event.")
