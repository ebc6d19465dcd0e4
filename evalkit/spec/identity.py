"""What makes an instance, an agent and an episode the same: digests of what the agent reads and how it samples.

Limits, prices, tiers, keys, URLs, width, budget, deadline and streaming are not part of it: they may change between
resumes.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from evalkit.dialogue import Sampling
from evalkit.envs.lines import canonical
from evalkit.spec.model import AgentSpec

REASONING = "reasoning"
"""The tag that chooses the prompt pack's variant for reasoning models."""


def suite_digest(instances: Iterable[tuple[str, str]]) -> str:
    """Hex digest of a suite: of its instances' (id, digest), in any order."""
    return hashlib.sha256(canonical(sorted(instances))).hexdigest()


def variant(tags: Collection[str]) -> str:
    """The variant of the prompt pack an agent reads: `reasoning` for agents tagged so, else empty."""
    return REASONING if REASONING in tags else ""


def agent_identity(agent: AgentSpec) -> str:
    """Hex digest of what the spec says an agent is, environment defaults and pack texts aside."""
    fields = {
        "provider": agent.provider,
        "model": agent.model,
        "policy": agent.policy,
        "script": agent.script,
        "overrides": dict(agent.overrides),
        "notes": agent.notes,
        "variant": variant(agent.tags),
    }
    if agent.agent:
        fields |= {"agent": agent.agent, "version": agent.version}
        fields |= {"models": dict(agent.models), "params": dict(agent.params)}
    return hashlib.sha256(canonical(fields)).hexdigest()[:32]


def episode_key(identity: str, sampling: Mapping[str, Any], pack_digest: str, environment: str, version: int) -> str:
    """Hex digest of everything that two episodes of one agent in one environment share; computed once for both."""
    return hashlib.sha256(canonical([identity, dict(sampling), pack_digest, environment, version])).hexdigest()


def episode_id(key: str, instance: str, replicate: int) -> str:
    """An episode's id: 24 hex digits of a digest of agent, instance and replicate."""
    return hashlib.sha256(f"{key}/{instance}/{replicate}".encode()).hexdigest()[:24]


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """A sampling as plain values; `seed` only where an agent chose one, so that no other's episodes get other ids."""
    return {name: value for name, value in asdict(sampling).items() if name != "seed" or value is not None}
