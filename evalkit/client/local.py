"""Answers with a policy in this process: no request, no money, the same reply whenever asked again."""

import time
from collections.abc import Sequence

from evalkit.client.ask import Answer, Question
from evalkit.dialogue import Message, Request, Sampling, Tool
from evalkit.money import PicoUsd
from evalkit.policy.conversation import PolicyFn, answer

_NOTHING = PicoUsd(0)


class PolicyAsker:
    """Plays one policy; satisfies `Asker`. A question brings the same reply as from a simulated provider."""

    free = True

    def __init__(self, name: str, play: PolicyFn, sampling: Sampling) -> None:
        self._name = name
        self._play = play
        self._sampling = sampling

    def join(self, parts: list[Message], messages: Sequence[Message]) -> None:
        """The messages as they are."""
        parts.extend(messages)

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """The tools themselves."""
        return tools

    async def ask(self, question: Question) -> Answer:
        """The answer, without waiting. A policy's own exceptions are bugs and pass through."""
        started_at, began = time.time(), time.perf_counter()
        request = Request(
            messages=tuple(question.messages),
            tools=question.tools,
            sampling=question.asked(self._sampling),
            seed=question.seed,
        )
        reply = answer(self._name, self._play, request)
        return Answer(
            reply=reply,
            cost=_NOTHING,
            latency_s=time.perf_counter() - began,
            queue_s=0.0,
            attempts="ok",
            started_at=started_at,
        )
