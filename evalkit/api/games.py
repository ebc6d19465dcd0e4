"""Environments and suites by name, and an episode of one played by hand: no model, no event loop, no log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.dialogue import Message, Reply, Tool, ToolCall, ToolChoice
from evalkit.envs.environment import Environment, Facts, Kit, Score
from evalkit.envs.replay import Turn, advance, begin
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.frozen.suite_file import from_rows
from evalkit.playing.specs import checked_names
from evalkit.replies import composed
from evalkit.seats import OwnTools
from evalkit.spec.model import SuiteInstance, SuiteUse
from evalkit.spec.packs import read_pack
from evalkit.spec.suites import Expanded, expand


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of a suite: one problem with its known optimum. Frozen, hashable and picklable.

    environment   name of the environment that plays it
    id            its name within the suite
    suite         the suite's name, with `?k=2` after it where parameters were varied
    digest        32 hexadecimal digits of its definition: equal problems have equal digests, whatever their names
    stratum       the group it belongs to (a difficulty, a kind), for balanced samples
    line          a mapping: the instance as in a suite's file, with its optimum

    >>> import evalkit
    >>> instance = evalkit.suite("pricing/basic")[0]
    >>> instance.environment, instance.id, instance.line["periods"]
    ('pricing', 'seed-0', 100)
    """

    environment: str
    id: str
    suite: str
    digest: str
    stratum: str
    line: Mapping[str, Any] = field(repr=False, hash=False)


def env(name: str) -> Environment[Any, Any]:
    """The environment of that name: a frozen record of pure functions, such as `start`, `step` and `score`.

    `costbench`, `errand`, `pricing`, `procurement` and `scheduling` come with evalkit. To play one by hand, use
    `game`. docs/add-an-environment.md explains each field.

    Raises UsageError with the nearest name.

    >>> import evalkit
    >>> pricing = evalkit.env("pricing")
    >>> pricing.name, pricing.score_range[1]
    ('pricing', 1.0)
    >>> sorted(pricing.parameters)[:3]
    ['alpha_high', 'alpha_low', 'cost_high']
    """
    if not isinstance(name, str) or name not in ENVIRONMENTS:
        raise UsageError(f"There is no environment {name!r}.{nearest(str(name), ENVIRONMENTS)}")
    return ENVIRONMENTS[name]


def suite(name: str, *, instances: Sequence[str] = (), vary: Mapping[str, Sequence[Any]] = {}) -> list[Instance]:
    """The instances of a suite. Each prefix of the order has all strata in proportion.

    Args:
        name: a suite's name, such as `scheduling/basic`, or the path of a file that ends in `.jsonl` or `.parquet`. A
            folder `instances/` in the current directory is searched before evalkit's suites.
        instances: the ids to use (default: all).
        vary: parameters to change, each with a list of values. Every combination of values gives all instances once,
            under a name such as `NAME?k=2`. Combinations with the same instances are given once.

    Raises UsageError for unknown names, ids and parameters, and for values out of range.

    >>> import evalkit
    >>> [one.id for one in evalkit.suite("scheduling/basic", instances=["seed-3", "seed-0"])]
    ['seed-0', 'seed-3']
    >>> [one.suite for one in evalkit.suite("scheduling/basic", instances=["seed-0"], vary={"k": [1, 2]})]
    ['scheduling/basic?k=1', 'scheduling/basic?k=2']
    """
    if not isinstance(name, str):
        raise UsageError(f"name: expected a suite's name or file, got {type(name).__name__}.")
    wanted = checked_names(instances, "instances")
    ids = tuple(instance_id for instance_id in dict.fromkeys(instances) if instance_id in wanted)
    use = SuiteUse(name=name, vary={key: _values(vary, key) for key in _mapping(vary)}, instances=ids)
    return [instance for base, _, expanded in expand(use) for instance in _instances(base, expanded)]


def _mapping(vary: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    if not isinstance(vary, Mapping) or not all(isinstance(key, str) for key in vary):
        raise UsageError(f"vary: expected a mapping from parameters to lists of values, got {vary!r}.")
    return vary


def _values(vary: Mapping[str, Sequence[Any]], key: str) -> tuple[Any, ...]:
    values = vary[key]
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(f"vary.{key}: expected a list of values, got {values!r}.")
    if not values:
        raise UsageError(f"vary.{key}: the list of values is empty.")
    return tuple(values)


def _instances(name: str, expanded: Expanded) -> Iterator[Instance]:
    if isinstance(expanded, list):
        yield from map(_listed, expanded)
        return
    for one in from_rows(expanded, spread=True):
        yield Instance(
            environment=one.line["environment"],
            id=one.id,
            suite=name,
            digest=one.digest,
            stratum=one.stratum,
            line=one.line,
        )


def _listed(instance: SuiteInstance) -> Instance:
    return Instance(
        environment=instance.environment,
        id=instance.id,
        suite=instance.suite,
        digest=instance.digest,
        stratum=instance.stratum,
        line=dict(ENVIRONMENTS[instance.environment].describe(instance.instance)),
    )


def checked_instance(instance: Instance) -> Environment[Any, Any]:
    """The environment that plays an instance. Raises UsageError for other values."""
    if not isinstance(instance, Instance):
        raise UsageError(f"instance: expected an instance from `evalkit.suite`, got {type(instance).__name__}.")
    return env(instance.environment)


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
