"""An episode played by hand: no model, no event loop, no log."""

from collections.abc import Sequence
from typing import Any

from evalkit.api.environments import Instance, checked_instance
from evalkit.dialogue import Message, Reply, Tool, ToolCall, ToolChoice
from evalkit.envs.environment import Facts, Kit, Score
from evalkit.envs.replay import Turn, advance, begin
from evalkit.errors import UsageError
from evalkit.replies import composed
from evalkit.seats import OwnTools
from evalkit.spec.packs import read_pack


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
