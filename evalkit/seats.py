"""Agents as code: one coroutine an episode, which asks models and acts.

An agent's memory is its local variables. To resume an episode, evalkit runs the coroutine from its beginning and
answers what it asked before from the log. So between two asks nothing but replies, `messages`, `params` and `draws` may
decide what it does.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from evalkit.dialogue import Message, Reply, Tool, ToolCall
from evalkit.errors import UsageError
from evalkit.seeds import Stream

MAIN = "main"
"""The role that is asked where none is named."""


class Fork(Protocol):
    """What asks models: the seat itself, or a fork of it, whose requests may be in flight beside others.

    >>> import asyncio, evalkit
    >>> @evalkit.agent(version=1, parallel=2)
    ... async def first_of_two(seat: evalkit.Seat) -> None:
    ...     while not seat.ending:
    ...         drafts = await asyncio.gather(seat.fork("a").ask(), seat.fork("b").ask())
    ...         await seat.act(drafts[0])
    """

    async def ask(
        self,
        messages: Sequence[Message] | None = None,
        *,
        model: str = MAIN,
        tools: Sequence[Tool] | None = None,
        sampling: Mapping[str, Any] = {},
    ) -> Reply:
        """A model's reply, once it is on disk.

        messages  what the model reads; None: what the environment shows, as a model that plays alone would read it
        model     the role, one of those that the agent declares
        tools     what it may call; None: what the environment offers; empty: nothing
        sampling  settings of this request alone: `temperature`, `top_p`, `effort`, `max_tokens` (at most the agent's)

        Raises AskRefused if the provider refuses the request for its content, AgentError for a wrong use.
        """

    def fork(self, key: str) -> "Fork":
        """An asker for a request that may be in flight beside others. Its key names its requests in the log, so it is
        used once a step. Raises AgentError."""


class Seat(Fork, Protocol):
    """An agent's place in one episode.

    >>> import evalkit
    >>> @evalkit.agent(version=1)
    ... async def patient(seat: evalkit.Seat) -> None:
    ...     while not seat.ending and seat.step < seat.params.get("most", 100):
    ...         await seat.act(await seat.ask())
    """

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the environment shows: the present chat."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the next act may call."""

    @property
    def step(self) -> int:
        """How many acts there have been in the episode."""

    @property
    def period(self) -> int:
        """The environment's period, from 0."""

    @property
    def turn(self) -> int:
        """Acts so far in the present chat."""

    @property
    def ending(self) -> str:
        """Why the episode is over; empty while it continues."""

    @property
    def environment(self) -> str:
        """The environment's name."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The agent's settings, from the sweep."""

    @property
    def parallel(self) -> int:
        """Requests that may be in flight at once, as the agent declares."""

    def draws(self, *place: str | int) -> Stream:
        """Random draws of a place: the same whenever the episode is resumed, others in each replicate."""

    async def act(self, reply: Reply | Sequence[ToolCall] | str) -> None:
        """Answer the environment: with a reply, with calls, or with a text. Then `messages`, `tools`, `step` and
        `ending` are the next. Raises AgentError if the episode is over or a request is in flight."""


AgentFn = Callable[[Seat], Awaitable[None]]
_CODE = "__evalkit_agent__"
FnT = TypeVar("FnT", bound=AgentFn)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCode:
    """An agent's coroutine with what it declares."""

    play: AgentFn
    version: int
    models: tuple[str, ...]
    """Roles; episodes are admitted in the lane of the first one's model."""
    parallel: int
    """Requests that it may have in flight at once."""


def agent(*, version: int, models: Sequence[str] = (MAIN,), parallel: int = 1) -> Callable[[FnT], FnT]:
    """Declare a coroutine function to be an agent.

    Args:
        version: raise it with each change that makes the agent ask or act otherwise: episodes of another version are
            other episodes.
        models: the roles that it asks; a sweep gives each role a model.
        parallel: the most requests that it has in flight at once; a crash may cost so many.

    Raises UsageError for values that cannot be.

    >>> import evalkit
    >>> @evalkit.agent(version=1)
    ... async def plain(seat: evalkit.Seat) -> None:
    ...     while not seat.ending:
    ...         await seat.act(await seat.ask())
    """
    roles = tuple(models)
    if isinstance(models, str) or not roles or len(set(roles)) < len(roles):
        raise UsageError(f"agent: models: expected names of roles, each once, got {models!r}.")
    if not all(isinstance(role, str) and role.isidentifier() for role in roles):
        raise UsageError(f"agent: models: a role is a word of letters, digits and _, got {roles!r}.")
    for name, value in (("version", version), ("parallel", parallel)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < MOST:
            raise UsageError(f"agent: {name}: expected a whole number from 1 to {MOST - 1:,}, got {value!r}.")

    def declare(play: FnT) -> FnT:
        if not inspect.iscoroutinefunction(play):
            raise UsageError(f"agent: expected an `async def` function that takes a seat, got {play!r:.80}.")
        setattr(play, _CODE, AgentCode(play=play, version=version, models=roles, parallel=parallel))
        return play  # type: ignore[return-value]

    return declare


MOST = 1024
"""Above every version and every number of requests in flight."""


def code_of(value: object, where: str) -> AgentCode:
    """What an agent declares. Raises UsageError for what is no agent."""
    code = getattr(value, _CODE, None)
    if not isinstance(code, AgentCode):
        raise UsageError(
            f"{where}: {value!r:.80} is not an agent: declare the function with `@evalkit.agent(version=1)`."
        )
    return code


class OwnTools:
    """Tools as a caller's code may have them: what it changes in their schemas is seen by nobody else."""

    __slots__ = ("_copies", "_tools")

    def __init__(self) -> None:
        self._tools = self._copies = tuple[Tool, ...]()

    def of(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Copies of the tools: the same as long as these are the same object."""
        if tools is not self._tools:
            self._tools = tools
            self._copies = tuple([replace(tool, parameters=_own(tool.parameters)) for tool in tools])
        return self._copies


def _own(value: Any) -> Any:
    """A copy of a JSON value."""
    if isinstance(value, Mapping):
        return {key: _own(one) for key, one in value.items()}
    return [_own(one) for one in value] if isinstance(value, list | tuple) else value
