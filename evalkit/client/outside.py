"""Replies from outside: of a person, or of a program that calls tools. Each is awaited, for as long as it takes.

An episode waits in `ask` until somebody gives its next reply. `give` returns once the engine has made the reply durable
and asks on, or has ended the episode: nothing that depends on a reply is shown before the reply is on disk.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Reply, Request, Sampling, Tool
from evalkit.errors import QUIT, EpisodeRefused, LaneClosed
from evalkit.money import PicoUsd
from evalkit.policy.conversation import PolicyFn, answer


@dataclass(slots=True)
class _OutsideTurn:
    """One episode's."""

    reply: "asyncio.Future[Reply] | None" = None
    """What its engine waits for; None: nothing."""
    messages: tuple[Message, ...] = ()
    """Of the request that waits."""
    over: bool = False
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever it waits or is over."""


class _PlainAsker:
    """Reads messages and tools as they are, and asks for no money."""

    def join(self, parts: list[Message], messages: Sequence[Message]) -> None:
        """The messages as they are."""
        parts.extend(messages)

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """The tools themselves."""
        return tools

    def _answered(self, reply: Reply, started_at: float, began: float) -> Answer:
        latency_s = time.perf_counter() - began
        return Answer(
            reply=reply, cost=PicoUsd(0), latency_s=latency_s, queue_s=0.0, attempts="ok", started_at=started_at
        )


class OutsideAsker(_PlainAsker):
    """Asks whoever plays from outside; satisfies `Asker`."""

    free = False

    def __init__(self) -> None:
        self._turns: defaultdict[str, _OutsideTurn] = defaultdict(_OutsideTurn)
        self._closed = False

    async def ask(self, question: Question) -> Answer:
        """The reply, once somebody gives it. Raises LaneClosed once nobody will."""
        if self._closed:
            raise LaneClosed(_NOBODY)
        turn, started_at, began = self._turns[question.episode], time.time(), time.perf_counter()
        turn.reply = asyncio.get_running_loop().create_future()
        turn.messages = tuple(question.messages)
        turn.moved.set()
        try:
            reply = await turn.reply
        finally:
            turn.reply = None
        return self._answered(reply, started_at, began)

    async def opened(self, episode: str) -> tuple[Message, ...]:
        """What an episode's next request reads, once it waits; empty if the episode is over."""
        turn = self._turns[episode]
        await turn.moved.wait()
        return turn.messages

    async def give(self, episode: str, reply: Reply) -> None:
        """Give an episode's next reply, and wait until it is durable. Raises LaneClosed if nobody waits for it."""
        await self._settle(episode, lambda waiting: waiting.set_result(reply))

    async def quit(self, episode: str, why: str) -> None:
        """End an episode without a reply, as `quit`, and wait until that is durable. Raises LaneClosed if it does not
        wait for a reply."""
        await self._settle(episode, lambda waiting: waiting.set_exception(EpisodeRefused(QUIT, why)))

    def left(self, episode: str) -> None:
        """Told by the engine: the episode is played no more."""
        turn = self._turns[episode]
        turn.over, turn.messages = True, ()
        turn.moved.set()

    async def _settle(self, episode: str, settle: Callable[["asyncio.Future[Reply]"], None]) -> None:
        """Let an episode's request go on, and wait until what came of it is durable."""
        turn = self._turns[episode]
        if turn.reply is None or turn.reply.done():
            raise LaneClosed(_NOBODY)
        turn.moved.clear()
        settle(turn.reply)
        await turn.moved.wait()
        if turn.over and self._closed:
            raise LaneClosed(_NOBODY)

    def close(self) -> None:
        """Nobody gives replies any more: what waits ends, and remains to be played."""
        self._closed = True
        for turn in self._turns.values():
            if turn.reply is not None and not turn.reply.done():
                turn.reply.set_exception(LaneClosed(_NOBODY))


_NOBODY = "Nobody plays from outside any more."


# Answers with a policy in this process: no request, no money, the same reply whenever asked again.


class PolicyAsker(_PlainAsker):
    """Plays one policy; satisfies `Asker`. A question brings the same reply as from a simulated provider."""

    free = True

    def __init__(self, name: str, play: PolicyFn, sampling: Sampling) -> None:
        self._name, self._play, self._sampling = name, play, sampling

    async def ask(self, question: Question) -> Answer:
        """The answer, without waiting. A policy's own exceptions are bugs and pass through."""
        started_at, began = time.time(), time.perf_counter()
        request = Request(
            messages=tuple(question.messages),
            tools=question.tools,
            sampling=question.asked(self._sampling),
            seed=question.seed,
        )
        return self._answered(answer(self._name, self._play, request), started_at, began)
