"""A task for each suite, and the scorer that they share."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState
from inspect_ai.util import registry_info

from evalkit.api.environments import Instance, env, suite
from evalkit.doors.inspect.solver import ENDING, FACTS, instance_of, metadata_of, play_episode
from evalkit.errors import UsageError
from evalkit.shipped import folders
from evalkit.spec.suites import suite_folders, suites_in


@scorer(metrics={"score": [mean(), stderr()], "solved": [mean(), stderr()]})
def exact_score() -> Scorer:
    """The environment's score of the facts: 1 is the optimum. An episode without an end is scored as far as it got."""

    async def score(state: TaskState, _: Target) -> Score:
        instance = instance_of(state.metadata)
        environment, facts = env(instance.environment), state.store.get(FACTS, [])
        result = environment.score(environment.load(instance.line), facts)
        return Score(
            value={"score": result.value, "solved": float(result.solved)},
            metadata={"ending": state.store.get(ENDING, ""), "steps": len(facts), "metrics": dict(result.metrics)},
        )

    return score


_PACKAGE = "" if "/" in registry_info(exact_score).name else "evalkit/"
"""Inspect itself puts the package before a name if the package is in site-packages, but not if it is installed editable
and its distribution has another name, as evalkit's has."""


def suite_task(
    name: str,
    /,
    *,
    prompts: str = "standard",
    notes: bool = True,
    instances: str | Sequence[str] = (),
    **parameters: Any,
) -> Task:
    """A suite as a task.

    Args:
        name: a suite's name, or the path of a file that ends in `.jsonl`.
        prompts: a prompt pack, by name or path.
        notes: whether the agent has the tools to write and read notes, if the environment has them.
        instances: the ids to use (default: all).
        parameters: parameters of the environment; of a list of values, each gives samples of its own.

    The environment's sampling is the task's configuration: options of the command line go before it. Raises UsageError.
    """
    ids = [instances] if isinstance(instances, str) else list(map(str, instances))
    vary = {key: value if isinstance(value, list) else [value] for key, value in parameters.items()}
    chosen = suite(name, instances=ids, vary=vary)
    asked = env(chosen[0].environment).defaults
    many = len({one.suite for one in chosen}) > 1
    return Task(
        dataset=MemoryDataset([_sample(one, many) for one in chosen], name=name),
        solver=play_episode(prompts=prompts, notes=notes),
        scorer=exact_score(),
        config=GenerateConfig(
            temperature=asked.temperature, max_tokens=asked.max_tokens, parallel_tool_calls=asked.parallel_calls
        ),
    )


def _sample(instance: Instance, many: bool) -> Sample:
    """`many`: whether the values of parameters tell apart samples of one instance."""
    values = instance.suite.partition("?")[2] if many else ""
    name = f"{instance.id}?{values}" if values else instance.id
    return Sample(id=name, input=f"{instance.suite} {instance.id}", metadata=metadata_of(instance))


def _suites() -> Iterator[str]:
    """The names of all suites that can be found: those in folders, then those of packages."""
    for folder in folders("instances"):
        yield from suites_in(folder)
    brought = suite_folders()
    for name in brought:
        if name not in brought.built_in:
            with suppress(UsageError):  # whoever plays it is told; the other suites are not at fault
                yield from (f"{name}/{one}" for one in suites_in(brought[name]))


def _task_of(name: str) -> Callable[..., Task]:
    def make(
        prompts: str = "standard", notes: bool = True, instances: str | Sequence[str] = (), **parameters: Any
    ) -> Task:
        return suite_task(name, prompts=prompts, notes=notes, instances=instances, **parameters)

    make.__doc__ = f"The suite {name}."
    made: Callable[..., Task] = task(name=_PACKAGE + re.sub(r"\W", "_", name))(make)
    return made


@task(name=f"{_PACKAGE}suite")
def _any_suite(
    file: str, prompts: str = "standard", notes: bool = True, instances: str | Sequence[str] = (), **parameters: Any
) -> Task:
    """A suite that `-T file=` names: `inspect eval evalkit/suite -T file=mine.jsonl`."""
    return suite_task(file, prompts=prompts, notes=notes, instances=instances, **parameters)


TASKS = {name: _task_of(name) for name in dict.fromkeys(_suites())}
"""Each suite's task, by the suite's name."""
