"""Is a manifest what was frozen? Its parts against the digests that it holds of them, and whether they can be played.

Replay finds a changed text or instance in the episodes that were played with it; this finds it in those to come too. Of
a large suite it does not load the lines.
What an agent samples with and the version of an environment have no digest but in the ids of episodes. They follow from
the agent's overrides and from the evalkit that began the run, so they are compared where that is this one.
"""

from collections.abc import Iterator
from typing import Any

from evalkit.envs.environment import Environment
from evalkit.envs.lines import instance_digest
from evalkit.envs.suite_rows import MOST_LINES
from evalkit.errors import CorruptLogError, EvalkitError
from evalkit.frozen.manifest import Manifest, ManifestAgent, ManifestCode, ManifestSuite, load_target
from evalkit.results.episodes import Environments
from evalkit.spec.identity import agent_identity, sampling_fields, suite_digest
from evalkit.spec.model import AgentSpec
from evalkit.spec.packs import texts_digest
from evalkit.version import __version__


def frozen_flaws(manifest: Manifest, environments: Environments) -> Iterator[str]:
    """What is not as it was frozen, one line a part."""
    packs: set[tuple[str, str]] = set()
    for agent in manifest.agents.values():
        if identity_of(agent) != agent.identity:
            yield f"agent {agent.name!r} is not what its digest says"
        elif manifest.evalkit == __version__:
            yield from _sampling_flaws(agent, environments)
        packs |= set(agent.packs.items())
        for name in agent.packs:
            try:
                manifest.kit_of(agent, name)
            except EvalkitError as flaw:
                yield str(flaw)
    for environment, digest in sorted(packs):
        if texts_digest(environment, manifest.packs[digest].texts) != digest:
            name = manifest.packs[digest].name
            yield f"the texts of the pack {name!r} for {environment} are not what their digest says"
    for suite in manifest.suites.values():
        if suite.environment not in environments:
            yield f"suite {suite.name!r} is of the environment {suite.environment!r}, which this evalkit does not have"
        else:
            played = environments[suite.environment]
            if manifest.evalkit == __version__ and suite.environment_version != played.version:
                yield (
                    f"suite {suite.name!r} is of version {suite.environment_version} of {suite.environment}, and the "
                    f"evalkit that began the run has version {played.version}"
                )
            try:
                yield from _suite_flaws(suite, played)
            except CorruptLogError as damage:  # of the file that holds its instances
                yield str(damage)


def identity_of(agent: ManifestAgent) -> str:
    """The digest of what an agent is, made again."""
    return agent_identity(
        AgentSpec(
            name=agent.name,
            provider=agent.provider,
            model=agent.model,
            policy=agent.policy,
            script=agent.script,
            overrides=agent.overrides,
            notes=agent.notes,
            tags=agent.tags,
            **({} if agent.code is None else _coded(agent.code)),
        )
    )


def _coded(code: ManifestCode) -> dict[str, Any]:
    """What makes an agent that is code what it is."""
    return {
        "agent": code.agent,
        "version": code.version,
        "models": {role: part.lane for role, part in code.roles.items()},
        "params": code.params,
    }


def _sampling_flaws(agent: ManifestAgent, environments: Environments) -> Iterator[str]:
    for name, sampling in agent.sampling.items():
        if name in environments:
            wanted = sampling_fields(environments[name].defaults.with_overrides(agent.overrides))
            if dict(sampling) != wanted:
                yield f"agent {agent.name!r} samples {name} otherwise than its overrides say"


def _suite_flaws(suite: ManifestSuite, environment: Environment[Any, Any]) -> Iterator[str]:
    if suite_digest((instance.id, instance.digest) for instance in suite.instances) != suite.digest:
        yield f"suite {suite.name!r} is not what its digest says"
    for target in suite.instances:
        if instance_digest(suite.environment, target.line) != target.digest:
            yield f"instance {target.id!r} of suite {suite.name!r} is not what its digest says"
        elif len(suite.instances) <= MOST_LINES:  # a million take minutes
            try:
                load_target(environment, target)
            except EvalkitError as flaw:
                yield f"suite {suite.name!r}: {flaw}"
