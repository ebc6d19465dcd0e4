"""The engine's view of an agent (a model at the other end of HTTP, or a policy): one question in, one answer out.

The engine passes each message once, when it joins the chat, and keeps its encoded form; so the cost of a turn does not
grow with the chat.

Both are made for every request. As msgspec structs they cost a fifth of frozen dataclasses.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolChoice
from evalkit.money import PicoUsd, Tier


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one episode, its parts encoded already."""

    episode: str
    step: int
    seed: int
    tools: Any
    messages: Sequence[Any]
    choice: ToolChoice | None = None
    """Whether the reply must contain a call, or must not; None: the agent's own setting."""

    cached_at: dict[str, int] = msgspec.field(default_factory=dict)
    """By lane that has several servers, the number of the one that has the episode's prompt in its cache. All questions
    of an episode share it, and who answers them keeps it up to date; it ends with the episode."""

    ask: str = ""
    """Which of a step's requests it is, if an agent's code makes several."""

    @property
    def address(self) -> str:
        """What tells it from all other requests of a run."""
        return f"{self.episode}.{self.ask}/{self.step}" if self.ask else f"{self.episode}/{self.step}"

    def asked(self, sampling: Sampling) -> Sampling:
        """An agent's sampling as this question is asked with it."""
        return sampling if self.choice is None else replace(sampling, tool_choice=self.choice)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A reply with the attempts and the cost that it took."""

    reply: Reply
    cost: PicoUsd
    latency_s: float
    queue_s: float
    attempts: str
    """Outcomes of all attempts in order, joined by commas; `ok` alone in the good case."""
    started_at: float
    tier: Tier = ""
    """The tier that it was served by; empty: none is named."""
    saved: int = 0
    """What it would have cost more by the standard tier, in pico-dollars."""
    raw: bytes | None = None
    """The body as received, only if a strict JSON parser refused it."""


class Encoder(Protocol):
    """Encodes messages and tools into the form that questions carry."""

    def join(self, parts: list[Any], messages: Sequence[Message]) -> None:
        """Append messages, in place, to those that questions of their chat carry; `parts` is empty before the first."""

    def encode_tools(self, tools: tuple[Tool, ...]) -> Any:
        """A tool list in the form questions carry; called once for each list."""


class Asker(Encoder, Protocol):
    """Answers for one agent."""

    @property
    def free(self) -> bool:
        """Whether asking again gives the same reply and costs nothing: then the log is not waited for."""

    async def ask(self, question: Question) -> Answer:
        """The answer. Raises BudgetReached, EpisodeUnavailable, EpisodeRefused or LaneClosed."""


# Who leads a run in a bucket sends only while no other process can have taken it over: a process that stood still
# asks first. The log is safe without; this keeps requests from being paid for twice.

AGAIN_S = 1.0
"""How often a store that does not answer is asked."""


class SendPermission(Protocol):
    """What says who leads (`store/lead.py`)."""

    @property
    def is_current(self) -> bool:
        """Whether nobody else can lead yet."""

    def check(self) -> None:
        """Ask the store, if need be. Raises FencedError if another process leads."""


async def renewed(permission: SendPermission) -> None:
    """Wait until the store has confirmed that this process leads. Raises FencedError if it does not."""
    while not permission.is_current:
        await asyncio.to_thread(permission.check)
        if not permission.is_current:
            await asyncio.sleep(AGAIN_S)
