"""What an agent is must not change between versions of evalkit: runs on disk are resumed by these digests."""

from typing import Any

import pytest

from evalkit.dialogue import Sampling
from evalkit.spec.identity import agent_identity, episode_id, episode_key, sampling_fields
from evalkit.spec.model import AgentSpec

OVERRIDES: dict[str, object] = {"max_tokens": 100, "effort": "low"}
DEFAULTS = Sampling(temperature=1.0, tool_choice="required")


def ids(**further: object) -> tuple[str, str]:
    """(the agent's identity, the id of one of its episodes) with further overrides."""
    agent = AgentSpec(name="m", provider="openai", model="gpt-5-mini", overrides=OVERRIDES | further)
    fields = sampling_fields(DEFAULTS.with_overrides(agent.overrides))
    key = episode_key(agent_identity(agent), fields, "p", "scheduling", 1)
    return agent_identity(agent), episode_id(key, "seed-0", 0)


def test_identities_and_ids_are_what_they_were_before_agents_could_choose_a_seed() -> None:
    assert ids() == ("df1baa3e986d2e5a46df1a95e8d5ed5f", "ee149850b38afbfcd96302e3")


def test_a_seed_is_part_of_an_agent_where_it_is_given() -> None:
    choices: list[dict[str, Any]] = [{}, {"seed": False}, {"seed": 0}, {"seed": 7}]
    found = [ids(**one) for one in choices]
    assert len({identity for identity, _ in found}) == len({episode for _, episode in found}) == len(choices)


@pytest.mark.parametrize("seed", [False, 0, 7])
def test_a_sampling_survives_as_plain_values(seed: int) -> None:
    for sampling in (DEFAULTS, DEFAULTS.with_overrides({"seed": seed})):
        assert Sampling(**sampling_fields(sampling)) == sampling
    assert "seed" not in sampling_fields(DEFAULTS)
