"""One question in, one answer out: what the engine knows of whoever answers, a model behind HTTP or a policy.

The engine hands messages over once, when they join the chat, and keeps what `encode` made of them; so the cost of a
turn does not grow with the chat.

Both are made for every request: as msgspec's records, which are frozen from the outset, they cost a fifth of what
frozen dataclasses do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolChoice
from evalkit.money import PicoUsd


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one episode, its parts encoded already."""

    episode: str
    step: int
    seed: int
    tools: Any
    messages: Sequence[Any]
    choice: ToolChoice | None = None
    """Whether the reply must hold a call, or none; None: as the agent is asked anyway."""

    def asked(self, sampling: Sampling) -> Sampling:
        """An agent's sampling as this question is asked with it."""
        return sampling if self.choice is None else replace(sampling, tool_choice=self.choice)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A reply with what it took to get it."""

    reply: Reply
    cost: PicoUsd
    latency_s: float
    queue_s: float
    attempts: str
    """Outcomes of all attempts in order, joined by commas; `ok` alone in the good case."""
    started_at: float
    raw: bytes | None = None
    """The body as it came, only where strict JSON refused it."""


class Encoder(Protocol):
    """Whoever puts messages and tools in the form that questions carry."""

    def join(self, parts: list[Any], messages: Sequence[Message]) -> None:
        """Have messages join those that questions of their chat carry, in place; `parts` is empty before the first."""

    def encode_tools(self, tools: tuple[Tool, ...]) -> Any:
        """A tool list in the form questions carry; called once for each list."""


class Asker(Encoder, Protocol):
    """Whoever answers for one agent."""

    @property
    def free(self) -> bool:
        """Whether asking again gives the same reply and costs nothing: then nobody waits for the log."""

    async def ask(self, question: Question) -> Answer:
        """The answer. Raises BudgetReached, EpisodeUnavailable, EpisodeRefused or LaneClosed."""
