"""The sweeps of EconAgentBench's tables: what they play."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from evalkit.policy.table import find_policy
from evalkit.spec.model import Sweep
from evalkit.spec.sweep import find_sweep, read_sweep

LEVELS = ("basic", "medium", "hard")
THREE = ("procurement", "scheduling", "pricing")


def sweep(name: str) -> Sweep:
    return read_sweep(find_sweep(f"papers/{name}"))


def suites(environments: Sequence[str], levels: Sequence[str]) -> list[str]:
    return [f"{environment}/{level}" for environment in environments for level in levels]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("econ-main", suites(THREE, LEVELS)),
        ("econ-secondary", suites(THREE, LEVELS[-1:])),
        ("econ-prompts", suites(THREE[:1], LEVELS)),
        ("econ-heuristic", suites(THREE[1:2], LEVELS)),
    ],
)
def test_suites_are_those_of_the_table(name: str, wanted: list[str]) -> None:
    found = sweep(name)
    assert [suite.name for suite in found.suites] == wanted
    assert not any(suite.instances for suite in found.suites)
    # As the reference: what is no action is discarded, and the period begins again.
    assert all(
        {key: tuple(values) for key, values in suite.vary.items()} == {"no_action": ("restart",)}
        for suite in found.suites
    )
    # Every agent plays something, and something plays every suite.
    for environment in {suite.name.partition("/")[0] for suite in found.suites}:
        assert any(find_policy(agent.policy, environment) for agent in found.agents)
    for agent in found.agents:
        assert any(find_policy(agent.policy, suite.name.partition("/")[0]) for suite in found.suites)


def test_once_as_in_the_paper_but_for_the_heuristic() -> None:
    assert [sweep(name).replicates for name in ("econ-main", "econ-secondary", "econ-prompts")] == [1, 1, 1]
    assert sweep("econ-heuristic").replicates == 40


def test_agents_of_the_prompts_sweep_differ_in_prompts_alone() -> None:
    agents = sweep("econ-prompts").agents
    assert [agent.prompts for agent in agents] == ["standard", "known_horizon", "known_horizon_goal"]
    plain = [replace(agent, name="", prompts="") for agent in agents]
    assert plain[0] == plain[1] == plain[2]
