"""Scheduling's texts in a copy of the reference; executed in the child."""

from typing import Any

from evalkit.spec.importing.econ import Every, Field, ShownMapping, Source, importing, parted, use
from evalkit.spec.importing.executed import Copy, Texts


def _answers(_: Copy, run: Any, agent: Any) -> Texts:
    worker, other, task, wanted = (Field(f"{{{name}}}") for name in ("worker", "other", "task", "wanted"))
    proposed = Every(ShownMapping({worker: task, other: wanted}))
    attempt, problem = parted(
        lambda n: run.make_readable_previous_attempts_data(proposed, Every([(worker, wanted)] * n)), "{problems}"
    )
    ids = Field("{ids}")
    asked: dict[str, tuple[Any, list[str], list[str]]] = {
        "not_mapping": (5, [], []),
        "missing_workers": ({}, [ids], []),
        "missing_tasks": ({"w": "t"}, ["w"], [ids]),
        "unknown_workers": ({"w": "t", ids: "t"}, ["w"], ["t"]),
    }
    return {
        "results.history_attempt": attempt,
        "results.history_problem": problem,
        **{
            f"results.{key}": use(agent, "submit_assignment", {"assignment": given}, worker_ids=workers, task_ids=tasks)
            for key, (given, workers, tasks) in asked.items()
        },
    }


IMPORT = importing(
    "scheduling",
    Source(
        folder="scheduling",
        agent="SchedulingAgent",
        texts={
            "system": "SYSTEM_PROMPT_V1",
            "opening": "INITIAL_PROMPT_V1",
            "opening_last": "INITIAL_PROMPT_FINAL_ATTEMPT_V1",
            "reply": "PROMPT_V1",
        },
        variant="REASONING",
        twice=("get_previous_attempts_data",),
        results=_answers,
    ),
    10,
)
