"""CostBench: reach a goal through priced tools at the lowest cost, while tools, prices and wishes may change.

Source: CostBench (arXiv 2511.02734); the state machine is `step.py`.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from evalkit.dialogue import Sampling
from evalkit.envs.costbench import score, step
from evalkit.envs.costbench.events import world_of
from evalkit.envs.costbench.instances import suite
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.line import PARAMETERS
from evalkit.envs.costbench.instances.parameters import NAME
from evalkit.envs.costbench.instances.suite import load
from evalkit.envs.costbench.prompt import TEXT_CHOICES
from evalkit.envs.environment import (
    Environment,
    GroupCount,
    InstanceSize,
    Presentation,
    Quantity,
    SuiteDescription,
    Texts,
)

Line = Mapping[str, Any]


def possible_wishes(lines: Sequence[Line]) -> int:
    """The number of combinations of the values of all dimensions, over the tasks of these lines, each once."""
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


def _identity(line: Line) -> tuple[str, str]:
    return line.get("split", "test"), line["query"]["id"]


def _of_split(split: str, lines: Sequence[Line]) -> int:
    return len({_identity(line) for line in lines if line.get("split", "test") == split})


DESCRIBED = SuiteDescription(
    quantities=(Quantity(title="Cheapest plan", unit="cost units", of=lambda line: line["optimum"] / 100),),
    tallies=(
        GroupCount(
            key="combinations",
            title="Possible wishes",
            of=possible_wishes,
            about="possible wishes: combinations of the values of all dimensions, in the split that is asked",
        ),
        GroupCount(key="queries", title="Queries", of=lambda lines: len(set(map(_identity, lines)))),
        *(GroupCount(key=split, title=split.capitalize(), of=partial(_of_split, split)) for split in ("train", "test")),
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


COSTBENCH: Environment[PlanningProblem, step.State] = Environment(
    name=NAME,
    version=1,
    defaults=Sampling(temperature=0.0, max_tokens=16384, tool_choice="auto", parallel_calls=False),
    parameters=PARAMETERS,
    texts=Texts(all=step.TEXTS, later=step.LATER_TEXTS, open=step.OPEN_TEXTS, choices=TEXT_CHOICES),
    load=suite.load,
    describe=suite.describe,
    start=step.start,
    opening=step.opening,
    tools=step.tools,
    tool_choice=step.tool_choice,
    step=step.step,
    period=step.period,
    ended=step.ended,
    score=score.score,
    generate=suite.generate,
    stratum=suite.stratum,
    offers=suite.offers,
    talk=True,
    score_range=(0.0, 1.0),
    presentation=Presentation(
        zero_means="no call in common with an optimal plan",
        one_chat=True,
        described=DESCRIBED,
        report="evalkit.report.environments.costbench:EXTRAS",
        tasks="evalkit.tasks.costbench.record:TASKS",
        prompt_import="evalkit.spec.importing.costbench:IMPORT",
        made_suites={
            "costbench/reference": "It is made from a copy of the reference's query file: evalkit tools queries import "
            "path/to/test/queries.json --out instances/costbench/reference.jsonl"
        },
    ),
    policies="evalkit.policy.costbench.policies:POLICIES",
    stand_in="replanner",
)
