"""What a worker is given when it is let in, and how it makes the sweep of it again: the manifest and the instances of
its suites it reads from the run."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import structs

from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.session import Session
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifest import Manifest
from evalkit.machines.messages import Welcome
from evalkit.policy.table import find_policy
from evalkit.spec.model import AgentSpec


def welcome(session: Session, *, widths: dict[str, int], urls: dict[str, str], deadline_s: float | None) -> Welcome:
    """What a worker of a session is given."""
    resolved, sweep, options = session.resolved, session.resolved.sweep, session.options
    budgets = {agent.name: agent.budget for agent in sweep.agents}
    return Welcome(
        widths=widths,
        sweep=replace(
            sweep,
            source="the coordinator's sweep",
            agents=tuple(AgentSpec(name=name, budget=budgets.get(name)) for name in resolved.manifest.agents),
            suites=(),
            replicates=resolved.manifest.replicates,
            deadline_s=deadline_s,
            written={},
        ),
        suites=tuple(resolved.manifest.suites),
        endpoints=resolved.endpoints,
        choice=options.choice,
        retry=options.retry,
        urls=urls,
    )


def resolved_from(welcome: Welcome, run: Manifest) -> ResolvedSweep:
    """The sweep as a worker plays it: its part of the run's manifest, with what it was told."""
    manifest = structs.replace(
        run,
        replicates=welcome.sweep.replicates,
        agents={agent.name: run.agents[agent.name] for agent in welcome.sweep.agents},
        suites={name: run.suites[name] for name in welcome.suites},
    )
    return ResolvedSweep(sweep=welcome.sweep, manifest=manifest, endpoints=welcome.endpoints)


def code_digests(manifest: Manifest) -> dict[str, str]:
    """By environment and policy that the agents of a manifest use: a digest of the source that decides what they do. Of
    an environment, all modules of its folder count."""
    files = dict[str, list[Path]]()
    for agent in manifest.agents.values():
        for name in agent.packs:
            for step in _file(ENVIRONMENTS[name].step):
                files[f"environment {name}"] = sorted(step.parent.glob("*.py"))
            policy = find_policy(agent.policy, name) if agent.policy else None
            if policy is not None:
                files[f"policy {agent.policy} of {name}"] = _file(policy.reply or policy.oracle or policy.script)
    return {name: _digest(found) for name, found in files.items() if found}


def _file(function: Callable[..., Any] | None) -> list[Path]:
    """Where a function is from, if that is known."""
    while isinstance(function, partial):
        function = function.func
    try:
        name = None if function is None else inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # compiled, or an object that can be called
        name = None
    return [] if name is None else [Path(name)]


def _digest(files: list[Path]) -> str:
    whole = sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:16]
