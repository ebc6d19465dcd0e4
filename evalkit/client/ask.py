"""One question in, one answer out: what the engine knows of whoever answers, a model behind HTTP or a policy.

The engine hands messages over once, when they join the chat, and keeps what `encode` made of them; so the cost of a
turn does not grow with the chat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evalkit.dialogue import Message, Reply, Tool
from evalkit.money import PicoUsd


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request of one episode, its parts encoded already."""

    episode: str
    step: int
    seed: int
    tools: Any
    messages: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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


class Asker(Protocol):
    """Whoever answers for one agent."""

    @property
    def free(self) -> bool:
        """Whether asking again gives the same reply and costs nothing: then nobody waits for the log."""

    def encode(self, message: Message) -> Any:
        """A message as it joins the chat, in the form questions carry."""

    def encode_tools(self, tools: tuple[Tool, ...]) -> Any:
        """A tool list in the form questions carry; called once for each list."""

    async def ask(self, question: Question) -> Answer:
        """The answer. Raises BudgetReached, DeadlineReached, EpisodeUnavailable, EpisodeRefused or LaneClosed."""
