"""What a suite of CostBench holds, in numbers, as Tables 2 and 3 of the paper have it: wishes, queries, tools."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from evalkit.envs.costbench.events import world_of
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.suite import load
from evalkit.envs.environment import Described, GroupCount, InstanceSize, Quantity

Line = Mapping[str, Any]


def possible_wishes(lines: Sequence[Line]) -> int:
    """Combinations of the values of all dimensions, over the tasks of these lines, each once."""
    tasks: dict[bytes, Line] = {}
    for line in lines:
        # A catalogue is a name, or stands in the line as a whole.
        identity = [line.get(key) for key in ("catalogue", "task", "split")]
        tasks.setdefault(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS), line)
    return sum(map(_combinations, tasks.values()))


def _combinations(line: Line) -> int:
    instance = load(line)
    task = instance.catalogue.tasks[instance.task]
    return math.prod(len(values) for values in (task.train if instance.split == "train" else task.test).values())


def _atomic(instance: PlanningProblem) -> int:
    return sum(tool.size == 1 for tool in world_of(instance).tools)


DESCRIBED = Described(
    quantities=(Quantity(title="Cheapest plan", unit="cost units", of=lambda line: line["optimum"] / 100),),
    tallies=(
        GroupCount(
            key="combinations",
            title="Possible wishes",
            of=possible_wishes,
            about="possible wishes: combinations of the values of all dimensions, in the split that is asked",
        ),
        GroupCount(key="queries", title="Queries", of=lambda lines: len({line["query"]["id"] for line in lines})),
    ),
    sizes=(
        InstanceSize(
            key="sequence",
            title="Task sequence",
            unit="atomic tools to the goal",
            of=lambda instance: world_of(instance).length,
        ),
        InstanceSize(key="atomic", title="Atomic tools", of=_atomic),
        InstanceSize(
            key="composite",
            title="Composite tools",
            of=lambda instance: len(world_of(instance).tools) - _atomic(instance),
        ),
    ),
)
