"""An episode held through a provider's SDK, and the same one in this process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from evalkit.dialogue import Message, Reply, Request
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.environment import Environment
from evalkit.envs.procurement.procurement import PROCUREMENT
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.seeds import derive
from tests.support.episode_loop import play, policy

KEY = "sk-for-tests"
WHY = "the SDKs are not installed here: `make sdks` installs and tries them"

STREAM_FORMS = ("", "stream_comments", "stream_joined", "stream_crlf", "drip")
"""Forms of a stream in which a client reads the same; by fault."""


def fault_of(fault: str) -> dict[str, object]:
    """Options under which every request meets the fault, if there is one."""
    return {f"fault_{fault}": 1, "drip": "100ms"} if fault else {}


EPISODES = [
    pytest.param(SCHEDULING, {"n": 10, "k": 2, "periods": 6}, "knuth", id="scheduling"),
    pytest.param(PROCUREMENT, {"periods": 6}, "climber", id="procurement"),
    pytest.param(COSTBENCH, {"length": 7, "block": "cost_change", "blocks": 2}, "replanner", id="costbench"),
]


class Speaker(Protocol):
    """One chat, in an SDK's own objects."""

    def hear(self, messages: Sequence[Message]) -> None:
        """What the environment said joins the chat."""

    def ask(self, request: Request, headers: dict[str, str]) -> Reply:
        """Asks with the chat, keeps the SDK's reply in it, and says what it was."""


def through(open_chat: Callable[[], Speaker]) -> Callable[[Request], Reply]:
    """An agent that speaks through an SDK; every chat of the environment's is a new one there."""
    chat: Speaker | None = None
    before: tuple[Message, ...] = ()
    asked = 0

    def ask(request: Request) -> Reply:
        nonlocal chat, before, asked
        if chat is None or not before or request.messages[: len(before)] != before:
            chat, before = open_chat(), ()
        # The first of the new messages is the reply that the chat holds already.
        chat.hear(request.messages[len(before) + bool(before) :])
        before = request.messages
        asked += 1
        return chat.ask(request, {"X-Client-Request-Id": f"e/{asked}/0"})

    return ask


def here(name: str) -> Callable[[Request], Reply]:
    """The policy in this process, with the seeds that the provider makes from the requests' ids."""
    agent, asked = policy(name), 0

    def ask(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        return agent(replace(request, seed=derive("e", asked)))

    return ask


def hold(env: Environment[Any, Any], parameters: dict[str, Any], name: str, open_chat: Callable[[], Speaker]) -> None:
    """Hold a whole episode through the SDK, and compare it with the policy's own."""
    line = dict(next(iter(env.generate(parameters, 1, 3))))
    theirs, ours = play(env, line, through(open_chat)), play(env, line, here(name))
    assert theirs.ending == ours.ending != ""
    assert theirs.facts == ours.facts
    assert theirs.score == ours.score
    assert len(theirs.replies) > 3
    assert sum(len(one.calls) for one in theirs.replies) >= 3


def until_refused(send: Callable[[], object]) -> None:
    """Send again until it raises, at most 20 times: a request that comes late, on a busy machine, meets no limit."""
    for _ in range(20):
        send()
