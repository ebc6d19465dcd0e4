"""Predict what a sweep costs: `evalkit plan` for programs."""

from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalkit.engine.forecast import alone
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.loop import inside_loop, run_loop
from evalkit.engine.planning.plan import Begun, PriorKnowledge, plan_sweep
from evalkit.engine.planning.planned import Plan
from evalkit.frozen.manifests import is_run, manifest_if_run
from evalkit.playing.specs import Spec, chosen, sweep_of
from evalkit.seats import AgentFn
from evalkit.spec.model import Sweep


def plan(
    spec: Spec,
    *,
    only: Mapping[str, Sequence[str]] = {},
    agents: Mapping[str, AgentFn] = {},
) -> Plan:
    """Predict what a sweep costs and how long it takes, without sending requests or writing files.

    Policies are played instead of models: each cell (agent x suite) is played in this process, about 1,000 requests
    in all, and the figures are scaled to the sweep. If `runs/NAME` has begun, only the remaining episodes are planned,
    by what its episodes took and at the rate of its requests, as `evalkit status` predicts them. An agent that is code
    is run, with a policy in place of each of its models.

    Args:
        spec: as for `run`.
        only: as for `run`.
        agents: as for `run`.

    Returns:
        The `Plan`: `plan.to_json()` is what `evalkit plan --json` prints.

    Raises UsageError, RunError as `run` does.

    >>> import evalkit
    >>> spec = {"name": "first", "agents": [{"policy": "knuth"}], "suites": [{"name": "scheduling/basic"}]}
    >>> found = evalkit.plan(spec).to_json()
    >>> found["episodes"], found["requests"], found["usd"]["expected"]
    (12, 0, 0.0)
    """
    return planned(sweep_of(spec, agents=agents), only=only)


def planned(
    sweep: Sweep, *, only: Mapping[str, Sequence[str]] = {}, directory: Path | None = None, mark: str = ""
) -> Plan:
    """A sweep's plan; `directory`: the run's, if it is another than its name says. Raises UsageError."""
    own = Path("runs") / sweep.name if directory is None else directory
    resolved = _as_frozen(resolve(sweep, manifest_if_run(own)), own)
    choice = chosen(only, resolved.manifest, f"{mark}only")
    planning = plan_sweep(resolved, choice, known=_known(resolved, own))
    return _waited(planning) if any(spec.code is not None for spec in sweep.agents) else alone(planning)


def _waited(planning: Coroutine[Any, Any, Plan]) -> Plan:
    """Run what may wait, as an agent's code does; also where a loop is running."""
    if not inside_loop():
        return run_loop(planning)
    with ThreadPoolExecutor(1, thread_name_prefix="evalkit") as pool:
        return pool.submit(run_loop, planning).result()


def _as_frozen(resolved: ResolvedSweep, own: Path) -> ResolvedSweep:
    """The sweep as frozen by the run that it would resume."""
    if not is_run(own):
        return resolved
    from evalkit.engine.freezing.keeping import kept
    from evalkit.frozen.manifests import read_manifest

    return replace(resolved, manifest=kept(read_manifest(own), resolved.manifest))


def _known(resolved: ResolvedSweep, own: Path) -> PriorKnowledge:
    """The contents of the run that the spec would resume, and its figures."""
    reply_s = _simulated_reply_s(resolved)
    if not is_run(own):
        return PriorKnowledge(reply_s=reply_s)
    from evalkit.engine.status import forecast_of, lane_rates, logged_cells
    from evalkit.store.reading.index import read_index

    index, begun = read_index(own), None
    if index.episodes:
        logged = logged_cells(resolved.manifest, index.cells)
        begun = Begun(
            name=own.name,
            forecast=forecast_of(own, resolved.manifest, logged),
            logged={cell.place: cell for cell in logged},
            rates=lane_rates(logged, resolved.manifest),
        )
    return PriorKnowledge(
        held=dict(index.episodes),
        begun=begun,
        spent=index.spent,
        tiers=index.tiers,
        reply_s=reply_s,
        spread=_spread(own) if resolved.sweep.decide is not None else None,
    )


def _spread(own: Path) -> float | None:
    """How far the differences of the pairs vary that a run asks about."""
    from evalkit.engine.planning.answerable import LEAST_SEEN
    from evalkit.results.asked import read_question
    from evalkit.results.derived import read_run

    manifest, _, results = read_run(own)
    asked = read_question(own, manifest, results)
    return None if asked is None else asked.spread(LEAST_SEEN)


def _simulated_reply_s(resolved: ResolvedSweep) -> Mapping[str, float]:
    """Average seconds per reply of simulated providers, by lane."""
    known = {}
    for endpoint in resolved.endpoints.values():
        if endpoint.provider.simulate is not None:
            from evalkit.serve.options import options_of

            known[endpoint.lane] = options_of(endpoint.provider).latency.mean_s
    return known
