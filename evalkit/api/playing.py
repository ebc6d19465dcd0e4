"""Play one episode: for a first try of an agent, a test or a notebook."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from evalkit.api.environments import Instance, checked_instance
from evalkit.api.episodes import Episode, episode_of
from evalkit.api.running import Call, call_of
from evalkit.engine.loop import finish
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import Choice
from evalkit.engine.view import View
from evalkit.errors import RunError, UsageError, nearest
from evalkit.policy.table import is_policy, policy_names
from evalkit.results.show import open_episode
from evalkit.seats import AgentFn, code_of
from evalkit.spec.sweep import sweep_from
from evalkit.store.events import read_events
from evalkit.store.reading.index import read_index

TAKEN = frozenset({"name", "provider", "model", "policy", "prompts", "budget_usd", "tags"})
"""Keys of an agent's table that `params` does not set."""

MOST_REPLICATES = 10**6


def play(
    agent: str | AgentFn,
    instance: Instance,
    *,
    models: Mapping[str, str] = {},
    budget_usd: str | None = None,
    params: Mapping[str, Any] = {},
    replicate: int = 0,
    prompts: str = "standard",
) -> Episode:
    """Play one episode and wait for its end. It is a run in a temporary directory, which is deleted afterwards.

    Args:
        agent: a policy (`evalkit suites describe SUITE` lists them), a model as `provider/model`, a name from
            `models`, or a function declared with `agent`.
        instance: one that `suite` gives.
        models: names for models: `{"main": "openai/gpt-5-mini"}`; for a function, a model for each of its roles.
        budget_usd: the most that the episode may cost, such as `"0.50"` (default: no limit). With a budget, the price
            of the model must be known.
        params: further settings of the agent, as in a sweep (docs/sweeps.md): `{"temperature": 0}`, `{"notes": False}`,
            or `{"replies": [...]}` of the policy `scripted`; for a function, what it reads as `seat.params`.
        replicate: the replicate of the episode, from 0; each replicate has different seeds.
        prompts: a prompt pack, by name or path.

    Returns:
        The `Episode`, with the same id, replies and score as in a sweep.

    Raises:
        UsageError: an argument is wrong; nothing was sent.
        RunError: the episode did not end: the budget was too small, or the provider failed.
        KeyboardInterrupt: as `run` does.

    >>> import evalkit
    >>> instance = evalkit.suite("scheduling/basic", instances=["seed-0"])[0]
    >>> evalkit.play("knuth", instance)
    Episode(knuth:scheduling/basic:seed-0:0: stable, 16 steps, score 1)
    """
    table = _agent(agent, models, params, prompts)
    with _room(instance, table, budget_usd, replicate, agent) as call:
        outcome = finish(lambda stop: call.play(stop, _unseen))
        if outcome.reason == "interrupt":
            raise KeyboardInterrupt
        return _episode(instance, outcome)


def _agent(agent: str | AgentFn, models: Mapping[str, str], params: Mapping[str, Any], prompts: str) -> dict[str, Any]:
    """The agent as a sweep's table has it. Raises UsageError."""
    if not isinstance(agent, str) and not callable(agent):
        raise UsageError(
            f"agent: expected a policy, `provider/model`, a name of `models` or a function, got {agent!r:.80}."
        )
    for name, value in (("models", models), ("params", params)):
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UsageError(f"{name}: expected a mapping from names, got {value!r}.")
    if not isinstance(prompts, str):
        raise UsageError(f"prompts: expected a prompt pack's name or path, got {prompts!r}.")
    if not isinstance(agent, str):
        code_of(agent, "agent")
        return {"agent": _name(agent), "models": dict(models), "params": dict(params), "prompts": prompts}
    for key in params:
        if key in TAKEN:
            raise UsageError(f"params: {key!r} cannot be set here; see the other arguments of `play`.")
    named = agent in models
    chosen = models[agent] if named else agent
    if models and not named:
        raise UsageError(f"models: nothing uses them; `agent` is {agent!r}.{nearest(agent, models)}")
    if not named and is_policy(agent):
        own = {"params": dict(params)} if agent == "scripted" else params
        return {**own, "policy": agent, "prompts": prompts}
    provider, slash, model = chosen.partition("/") if isinstance(chosen, str) else ("", "", "")
    if not (provider and slash and model):
        what = f"models: {agent}" if named else "agent"
        hint = "" if named else nearest(agent, policy_names())
        raise UsageError(f"{what}: {chosen!r} is neither `provider/model` nor a policy.{hint}")
    return {**params, "provider": provider, "model": model, "prompts": prompts, **({"name": agent} if named else {})}


def _name(agent: AgentFn) -> str:
    name = getattr(agent, "__name__", "agent")
    return name if name.isidentifier() and name.isascii() else "agent"


@contextmanager
def _room(
    instance: Instance, table: dict[str, Any], budget_usd: str | None, replicate: int, agent: str | AgentFn
) -> Iterator[Call]:
    """A call that plays one replicate, in a directory that is deleted afterwards. Raises UsageError."""
    env = checked_instance(instance)
    if not isinstance(replicate, int) or isinstance(replicate, bool) or not 0 <= replicate < MOST_REPLICATES:
        raise UsageError(f"replicate: must be 0 to {MOST_REPLICATES - 1:,}, not {replicate!r}.")
    with TemporaryDirectory(prefix="evalkit-") as folder:
        file = Path(folder) / "suite.jsonl"
        file.write_bytes(orjson.dumps({**instance.line, "environment": env.name, "id": instance.id}))
        spec = {
            "replicates": replicate + 1,
            "agents": [table],
            "suites": [{"name": str(file)}],
            **({} if budget_usd is None else {"budget_usd": budget_usd}),
        }
        given = {} if isinstance(agent, str) else {_name(agent): agent}
        call = call_of(sweep_from(spec, "play", "play", given), directory=Path(folder) / "run", lasting=False)
        yield replace(call, options=replace(call.options, choice=Choice(replicate=replicate)))


def _unseen(view: View) -> None:
    """Progress is not shown."""


def _episode(instance: Instance, outcome: RunOutcome) -> Episode:
    """The episode that was played. Raises RunError if it did not end."""
    run = outcome.directory
    if outcome.owed:
        flaws = [str(event.get("detail", "")) for event in read_events(run, "parked")]
        words = " ".join(dict.fromkeys((*outcome.messages, *flaws))) or "The reason is unknown."
        raise RunError(f"The episode did not end ({outcome.reason}): {words}")
    (name,) = read_index(run).episodes
    return episode_of(open_episode(run, name), suite=instance.suite)
