"""Start, resume or extend a run: `evalkit run` for programs; and `play`, which is a run of one episode."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson

from evalkit.api.games import Instance, checked_instance
from evalkit.api.runs import Episode, Run, episode_of, run_at
from evalkit.engine.loop import drained, finish
from evalkit.engine.options import Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import Choice
from evalkit.errors import CorruptLogError, RunError, UsageError, nearest
from evalkit.money import usd
from evalkit.playing.call import Call, call_of
from evalkit.playing.specs import Spec, changed, sweep_of
from evalkit.seats import AgentFn, code_of
from evalkit.spec.sweep import sweep_from

if TYPE_CHECKING:  # it comes with all that plays
    from evalkit.engine.view import View

# What a running run reports to the program that waits for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run: `run(on_progress=...)` is called with it about four times per second and at the end.

    name          the planned episodes of this call, including those that earlier calls have ended
    ended         of them, those that have ended
    playing       episodes in flight
    steps         replies in this call
    steps_per_s   over the last seconds
    spent_usd     Decimal: the total over all calls of this run
    reserved_usd  Decimal: the worst case of the requests in flight
    budget_usd    Decimal, or None: no budget
    elapsed_s     seconds since this call started to play
    eta_s         seconds to the end at the current rate, or None: not known yet
    stopping      why the run drains (`budget`, `deadline`, `interrupt`, ...); empty while it continues
    lanes         by `provider/model` (or `policy`): the fields of a progress line of `evalkit run --json`

    >>> from evalkit import Progress
    >>> def show(now: Progress) -> None:
    ...     print(f"{now.ended}/{now.planned}, {now.spent_usd} USD")
    """

    name: str
    planned: int
    ended: int
    playing: int
    steps: int
    steps_per_s: float
    spent_usd: Decimal
    reserved_usd: Decimal
    budget_usd: Decimal | None
    elapsed_s: float
    eta_s: float | None
    stopping: str
    lanes: Mapping[str, Mapping[str, Any]] = field(repr=False)


def progress_of(view: "View") -> Progress:
    """A view of the run as the public record."""
    lanes = view.lanes
    return Progress(
        name=view.name,
        planned=sum(lane.episodes for lane in lanes),
        ended=sum(lane.done for lane in lanes),
        playing=sum(lane.playing for lane in lanes),
        steps=sum(lane.steps for lane in lanes),
        steps_per_s=sum(lane.rate for lane in lanes),
        spent_usd=usd(view.spent),
        reserved_usd=usd(view.reserved),
        budget_usd=None if view.budget is None else usd(view.budget),
        elapsed_s=view.elapsed_s,
        eta_s=view.eta_s,
        stopping=view.stopping,
        lanes={lane.name: lane.to_json() for lane in lanes},
    )


def run(
    spec: Spec,
    *,
    name: str = "",
    directory: str | PathLike[str] | None = None,
    only: Mapping[str, Sequence[str]] = {},
    limit: int | None = None,
    width: int | None = None,
    retry: Collection[str] = (),
    agents: Mapping[str, AgentFn] = {},
    on_progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Start, resume or extend a run, and wait for its end, like `evalkit run`.

    A spec is a desired state. Called again with the same spec, `run` requests only what is missing. Called with a
    longer spec, it adds the new episodes.

    Args:
        spec: the path of a sweep's TOML file, the name of a shipped one (`quickstart`), or a mapping with the contents
            of such a file (docs/sweeps.md). A mapping needs `name`.
        name: the run's name instead of the spec's.
        directory: the run's directory (default: `runs/NAME` in the current directory).
        only: part of the sweep: `{"agent": ["knuth"], "suite": ["pricing/basic"]}`; an absent key means all.
        limit: the most episodes per lane to end in this call.
        width: episodes in flight per lane (default: the spec's).
        retry: episodes with these endings are played again, such as `["context_length"]`.
        agents: functions declared with `agent`, by the name that `agent = "NAME"` has in the spec.
        on_progress: called with a `Progress` about four times per second, and at the end, in the playing thread. Its
            exceptions are logged and do not affect the run.

    Returns:
        The `Run`. A reached budget or deadline, or a failed provider, is an outcome and not an error: `Run.reason`
        names it, and `Run.messages` says what to do.

    Raises:
        UsageError, RunError: the spec, an argument or the directory cannot be used; nothing was written.
        CorruptLogError: rows of the log are changed or missing.
        StorageError: the disk refused a write.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP in the main thread. The first signal drains the run: it waits for
            replies in flight, keeps them, and sends nothing new. A second one stops at once. The next call resumes it.

    It works in any thread, in a notebook, several times at once in one process, and inside a running event loop
    (which it blocks; `run_async` does not). Signals are handled only in the main thread.

    >>> import evalkit
    >>> spec = {
    ...     "name": "first",
    ...     "agents": [{"policy": "knuth"}, {"policy": "random"}],
    ...     "suites": [{"name": "scheduling/basic", "instances": ["seed-0"]}],
    ... }
    >>> evalkit.run(spec)
    Run(first: complete, 2 of 2 episodes, 0 USD)
    >>> evalkit.run(spec | {"replicates": 2}, only={"agent": ["knuth"]})
    Run(first: complete, 3 of 4 episodes, 0 USD)
    """
    sweep = changed(sweep_of(spec, name, agents), width=width)
    call = call_of(sweep, directory=directory, only=only, limit=limit, retry=retry)
    _check_listener(on_progress)
    outcome = finish(lambda stop: _told(call, stop, on_progress))
    if outcome.reason == "interrupt":
        raise KeyboardInterrupt
    return _run(outcome)


async def run_async(
    spec: Spec,
    *,
    name: str = "",
    directory: str | PathLike[str] | None = None,
    only: Mapping[str, Sequence[str]] = {},
    limit: int | None = None,
    width: int | None = None,
    retry: Collection[str] = (),
    agents: Mapping[str, AgentFn] = {},
    on_progress: Callable[[Progress], None] | None = None,
) -> Run:
    """`run` as a coroutine: it plays on the caller's event loop, concurrently with other tasks.

    Arguments, result and errors are those of `run`, except that signals are not handled. If the task is cancelled,
    the run drains as on Ctrl-C, and then raises CancelledError; if cancelled again, it stops at once. `on_progress`
    is called on the same loop.

    >>> import asyncio, evalkit
    >>> def spec(name, policy):
    ...     suites = [{"name": "scheduling/basic", "instances": ["seed-0"]}]
    ...     return {"name": name, "agents": [{"policy": policy}], "suites": suites}
    >>> async def both():
    ...     runs = evalkit.run_async(spec("a", "knuth")), evalkit.run_async(spec("b", "random"))
    ...     return await asyncio.gather(*runs)
    >>> asyncio.run(both())
    [Run(a: complete, 1 of 1 episodes, 0 USD), Run(b: complete, 1 of 1 episodes, 0 USD)]
    """
    sweep = changed(sweep_of(spec, name, agents), width=width)
    call = call_of(sweep, directory=directory, only=only, limit=limit, retry=retry)
    _check_listener(on_progress)
    return _run(await drained(lambda stop: _told(call, stop, on_progress)))


async def _told(call: Call, stop: Stop | None, on_progress: Callable[[Progress], None] | None) -> RunOutcome:
    """Play and report progress from the loop itself, so that exceptions of the listener stay separate."""
    loop = asyncio.get_running_loop()

    def show(view: "View") -> None:
        if on_progress is not None:
            loop.call_soon(on_progress, progress_of(view))

    outcome = await call.play(stop, show)
    await asyncio.sleep(0)  # report the final state before returning
    return outcome


def _check_listener(on_progress: object) -> None:
    if on_progress is not None and not callable(on_progress):
        raise UsageError(f"on_progress: expected a function, got {type(on_progress).__name__}.")


def _run(outcome: RunOutcome) -> Run:
    if outcome.reason == "corrupt":
        raise CorruptLogError(" ".join(outcome.messages))
    return run_at(outcome.place, reason=outcome.reason, messages=outcome.messages)


# Play one episode: for a first try of an agent, a test or a notebook.

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
        outcome = finish(lambda stop: _told(call, stop, None))
        if outcome.reason == "interrupt":
            raise KeyboardInterrupt
        return _episode(instance, outcome)


def _agent(agent: str | AgentFn, models: Mapping[str, str], params: Mapping[str, Any], prompts: str) -> dict[str, Any]:
    """The agent as a sweep's table has it. Raises UsageError."""
    from evalkit.policy.table import is_policy, policy_names

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
        call = call_of(sweep_from(spec, "play", "play", given), directory=Path(folder) / "run")
        yield replace(call, options=replace(call.options, choice=Choice(replicate=replicate)))


def _episode(instance: Instance, outcome: RunOutcome) -> Episode:
    """The episode that was played. Raises RunError if it did not end."""
    from evalkit.results.show import open_episode
    from evalkit.store.events import read_events
    from evalkit.store.reading.index import read_index

    run = outcome.directory
    if outcome.remaining:
        flaws = [str(event.get("detail", "")) for event in read_events(run, "deferred")]
        words = " ".join(dict.fromkeys((*outcome.messages, *flaws))) or "The reason is unknown."
        raise RunError(f"The episode did not end ({outcome.reason}): {words}")
    (name,) = read_index(run).episodes
    return episode_of(open_episode(run, name), suite=instance.suite)
