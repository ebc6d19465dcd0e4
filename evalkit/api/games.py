"""An episode played by hand: no model, no event loop, no log."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from evalkit.api.environments import Instance, checked_instance
from evalkit.api.episodes import Episode, episode_of
from evalkit.api.running import Call, call_of
from evalkit.dialogue import Message, Reply, Tool, ToolCall, ToolChoice
from evalkit.engine.loop import finish
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import Choice
from evalkit.engine.view import View
from evalkit.envs.environment import Facts, Kit, Score
from evalkit.envs.replay import Turn, advance, begin
from evalkit.errors import RunError, UsageError, nearest
from evalkit.policy.table import is_policy, policy_names
from evalkit.replies import composed
from evalkit.results.show import open_episode
from evalkit.seats import AgentFn, OwnTools, code_of
from evalkit.spec.packs import read_pack
from evalkit.spec.sweep import sweep_from
from evalkit.store.events import read_events
from evalkit.store.reading.index import read_index


class Game:
    """One episode that you play yourself: read `messages` and `tools`, give a `reply`, until there is an `ending`.

    A game is pure and synchronous: it sends and writes nothing. The same replies lead to the same messages, facts
    and score as in a run. `game` makes one.

    >>> import evalkit
    >>> instance = evalkit.suite("scheduling/basic", instances=["seed-0"])[0]
    >>> game = evalkit.game(instance)
    >>> [tool.name for tool in game.tools][-1]
    'submit_assignment'
    >>> call = evalkit.ToolCall(id="1", name="submit_assignment", arguments='{"assignment": "none"}')
    >>> turn = game.reply([call])
    >>> turn.facts["calls"][0]["outcome"], game.step, game.ending
    ('unparseable', 1, '')
    """

    __slots__ = ("_env", "_facts", "_loaded", "_position", "_tools", "instance")

    def __init__(self, instance: Instance, *, prompts: str = "standard", notes: bool = True) -> None:
        """As `game` has it."""
        self._env = checked_instance(instance)
        if not isinstance(prompts, str):
            raise UsageError(f"prompts: expected a prompt pack's name or path, got {prompts!r}.")
        self._loaded: Any = self._env.load(instance.line)
        kit = Kit(pack=read_pack(prompts, self._env.name), notes=bool(notes))
        self._position = begin(self._env, self._loaded, kit)
        self._tools = OwnTools()
        self._facts: list[Facts] = []
        self.instance = instance

    @property
    def messages(self) -> tuple[Message, ...]:
        """The chat as the agent would read it now. In an environment with periods, each period starts a new chat."""
        return tuple(self._position.messages)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the next reply may call. In some environments they change during the episode."""
        return self._tools.of(self._position.tools)

    @property
    def tool_choice(self) -> ToolChoice:
        """What a model is told of the next reply: it must call a tool (`required`), it must not (`none`), or `auto`."""
        return self._position.choice or self._env.defaults.tool_choice

    @property
    def step(self) -> int:
        """Replies given so far."""
        return self._position.step

    @property
    def period(self) -> int:
        """The period that the next reply belongs to, from 0."""
        return self._position.period

    @property
    def turn(self) -> int:
        """The next reply's place in its chat, from 0."""
        return self._position.turn

    @property
    def ending(self) -> str:
        """Why the episode has ended (`complete`, `stable`, `unresponsive`, ...); empty while it continues."""
        return self._position.ending

    @property
    def facts(self) -> list[Facts]:
        """The environment's response to each reply so far, as JSON values. The score is computed from them."""
        return list(self._facts)

    def reply(self, reply: Reply | Sequence[ToolCall] | str) -> Turn:
        """Answer as the agent: with a string, with tool calls, or with a `Reply` (text and calls).

        No reply is an error: the environment answers a senseless reply as it would a model's, and the facts of the
        `Turn` show it. Raises ValueError if the episode has ended, or for text that is not valid Unicode; TypeError
        for other types.

        >>> import evalkit
        >>> game = evalkit.game(evalkit.suite("pricing/basic")[0])
        >>> game.reply("Let me think.").facts
        {'period': 0, 'turn': 0, 'calls': []}
        >>> game.messages[-1].role
        'user'
        """
        turn = advance(self._env, self._position, *composed(reply))
        self._facts.append(turn.facts)
        return turn

    def score(self) -> Score:
        """The score of the facts so far, as if the remaining periods had no action; 1 is the optimum.

        >>> import evalkit
        >>> evalkit.game(evalkit.suite("scheduling/basic")[0]).score().solved
        False
        """
        return self._env.score(self._loaded, self._facts)

    def __repr__(self) -> str:
        where = self.ending or f"period {self.period}, turn {self.turn}"
        return f"Game({self.instance.suite} {self.instance.id}: step {self.step}, {where})"


def game(instance: Instance, *, prompts: str = "standard", notes: bool = True) -> Game:
    """A `Game` on an instance, before the first reply.

    Args:
        instance: an instance from `suite`.
        prompts: a prompt pack, by name or path (docs/prompt-packs.md).
        notes: whether the agent has the tools to write and read notes, if the environment has them.

    Raises UsageError for an unknown pack, or an instance that its environment cannot load.

    >>> import evalkit
    >>> game = evalkit.game(evalkit.suite("scheduling/basic")[0])
    >>> game
    Game(scheduling/basic seed-0: step 0, period 0, turn 0)
    >>> [message.role for message in game.messages]
    ['system', 'user']
    """
    return Game(instance, prompts=prompts, notes=notes)


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
        call = call_of(sweep_from(spec, "play", "play", given), directory=Path(folder) / "run")
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
