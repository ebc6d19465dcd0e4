"""What a worker's process is given before it says hello, and how it makes the sweep of it again: the manifest and the
instances of its suites it reads from the run."""

import inspect
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import structs

from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.machines.messages import WorkerSetup
from evalkit.engine.session import Session
from evalkit.envs.table import ENVIRONMENTS
from evalkit.frozen.manifest import Manifest
from evalkit.money import PicoUsd
from evalkit.policy.table import find_policy
from evalkit.spec.model import AgentSpec, Sweep


def setup_of(session: Session, *, after: str, urls: dict[str, str], deadline_s: float | None) -> WorkerSetup:
    """What a worker of a session is given."""
    resolved, sweep = session.resolved, session.resolved.sweep
    return WorkerSetup(
        agents=tuple(resolved.manifest.agents),
        suites=tuple(resolved.manifest.suites),
        replicates=resolved.manifest.replicates,
        endpoints=resolved.endpoints,
        choice=session.options.choice,
        retry=session.options.retry,
        asks=sweep.decide is not None,
        width=sweep.width,
        budget=sweep.budget,
        agent_budgets={agent.name: agent.budget for agent in sweep.agents if agent.budget is not None},
        limits=sweep.limits,
        workers=sweep.workers,
        after=after,
        urls=urls,
        deadline_s=deadline_s,
    )


def resolved_from(setup: WorkerSetup, run: Manifest) -> Resolved:
    """The sweep as a worker plays it: its part of the run's manifest, with what the setup says."""
    manifest = structs.replace(
        run,
        replicates=setup.replicates,
        agents={name: run.agents[name] for name in setup.agents},
        suites={name: run.suites[name] for name in setup.suites},
    )
    budgets = setup.agent_budgets
    sweep = Sweep(
        name=run.name,
        source="the coordinator's sweep",
        agents=tuple(
            AgentSpec(name=name, budget=PicoUsd(budgets[name]) if name in budgets else None) for name in setup.agents
        ),
        suites=(),
        replicates=setup.replicates,
        width=setup.width,
        budget=None if setup.budget is None else PicoUsd(setup.budget),
        deadline_s=setup.deadline_s,
        limits=setup.limits,
    )
    return Resolved(sweep=sweep, manifest=manifest, endpoints=setup.endpoints)


def code_digests(manifest: Manifest) -> dict[str, str]:
    """By environment and policy that the agents of a manifest use: a digest of the source that decides what they do. Of
    an environment, all modules of its folder count."""
    digests = {}
    for agent in manifest.agents.values():
        for name in agent.packs:
            step = _file(ENVIRONMENTS[name].step)
            if step is not None and f"environment {name}" not in digests:
                digests[f"environment {name}"] = _digest(sorted(step.parent.glob("*.py")))
            policy = find_policy(agent.policy, name) if agent.policy else None
            made = None if policy is None else policy.reply or policy.oracle or policy.script
            file = None if made is None else _file(made)
            if file is not None:
                digests[f"policy {agent.policy} of {name}"] = _digest([file])
    return digests


def _file(function: Callable[..., Any]) -> Path | None:
    while isinstance(function, partial):
        function = function.func
    try:
        name = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # compiled, or an object that can be called
        name = None
    return None if name is None else Path(name)


def _digest(files: list[Path]) -> str:
    whole = sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + sha256(file.read_bytes()).digest())
    return whole.hexdigest()[:16]
