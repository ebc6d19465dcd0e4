"""What models are asked about is an environment's own to say."""

from dataclasses import replace

import pytest

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.tasks.record import NOTHING, queries_of, tasks_of, with_queries


def test_an_environment_that_says_nothing_is_asked_nothing_about() -> None:
    assert tasks_of("pricing") is tasks_of("unheard_of") is NOTHING
    with pytest.raises(UsageError, match=r"instances/x.jsonl: pricing has no queries .* costbench has"):
        queries_of("pricing", "instances/x.jsonl")


def test_an_environment_that_has_queries_is_found_by_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, env = with_queries(), ENVIRONMENTS["costbench"]
    assert queries is tasks_of(env.name).queries
    far = {**ENVIRONMENTS, "far": replace(ENVIRONMENTS["pricing"], name="far", presentation=env.presentation)}
    monkeypatch.setattr(ENVIRONMENTS, "built_in", far)
    assert queries_of("far", "x") is queries
