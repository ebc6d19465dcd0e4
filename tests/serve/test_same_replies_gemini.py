"""A policy that is asked in Gemini's format gets the very requests that it gets in this process, and plays the very
episode, in every environment. The format carries arguments as an object: those in this process are written compactly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.environment import Environment
from evalkit.envs.errand.errand import ERRAND
from evalkit.envs.pricing.pricing import PRICING
from evalkit.envs.procurement.procurement import PROCUREMENT
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.serve.dialects.gemini import SERVED_GEMINI
from evalkit.serve.options import options_from
from evalkit.serve.outcome import Arrival
from evalkit.serve.provider import handle, open_simulator
from evalkit.tasks.errands import coverage_line
from evalkit.wire.dialect import Quirks
from evalkit.wire.gemini import GEMINI
from tests.support.episode_loop import Agent, play, policy

KEY = "key-1"


def body(name: str, request: Request) -> bytes:
    parts: list[bytes] = []
    GEMINI.join(parts, request.messages)
    head = GEMINI.head(name, request.sampling, Quirks())
    return GEMINI.body(head, GEMINI.encode_tools(request.tools), parts, request.seed)


def served(name: str) -> Agent:
    """The policy as a model of a simulated provider with a key; what it is asked is compared with what was meant."""
    simulator = open_simulator(options_from({"key": KEY}), 0.0)
    asked = 0

    def ask(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        content = body(name, request)
        assert SERVED_GEMINI.decode_request(content, name) == (name, request)
        headers = {"x-client-request-id": f"e/{asked}/0", **GEMINI.headers(KEY)}
        path = "/v1beta" + GEMINI.path_of(name)
        outcome = handle(simulator, Arrival(method="POST", path=path, headers=headers, body=content), float(asked))
        assert outcome.status == 200, outcome.body
        return GEMINI.decode(outcome.body)

    return ask


def here(name: str) -> Agent:
    agent = policy(name)

    def ask(request: Request) -> Reply:
        reply = agent(request)
        calls = [replace(call, arguments=_compact(call.arguments)) for call in reply.calls]
        return replace(reply, calls=tuple(calls))

    return ask


def _compact(arguments: str) -> str:
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    return orjson.dumps(value).decode()


def generated(env: Environment[Any, Any], **parameters: object) -> Callable[[], dict[str, Any]]:
    return lambda: dict(next(iter(env.generate(parameters, 1, 3))))


@pytest.mark.parametrize(
    ("env", "make", "name"),
    [
        pytest.param(SCHEDULING, generated(SCHEDULING, periods=8), "knuth", id="scheduling-knuth"),
        pytest.param(SCHEDULING, generated(SCHEDULING, periods=8), "random", id="scheduling-random"),
        pytest.param(PROCUREMENT, generated(PROCUREMENT, periods=8), "climber", id="procurement-climber"),
        pytest.param(PRICING, generated(PRICING, periods=8), "learner", id="pricing-learner"),
        pytest.param(
            COSTBENCH, generated(COSTBENCH, length=7, block="cost_change", blocks=2), "replanner", id="costbench"
        ),
        pytest.param(COSTBENCH, generated(COSTBENCH, length=7), "random", id="costbench-random"),
        pytest.param(ERRAND, lambda: dict(coverage_line("a", "Both are fine.")), "clerk", id="errand-clerk"),
    ],
)
def test_a_served_policy_is_asked_and_replies_as_it_is_in_this_process(
    env: Environment[Any, Any], make: Callable[[], dict[str, Any]], name: str
) -> None:
    ours, theirs = (play(env, make(), agent(name)) for agent in (here, served))
    assert [(one.text, one.calls, one.finish) for one in ours.replies] == [
        (one.text, one.calls, one.finish) for one in theirs.replies
    ]
    assert (ours.facts, ours.ending, ours.chats) == (theirs.facts, theirs.ending, theirs.chats)
    assert ours.ending
    assert all(one.usage.input > 0 and one.response_id and one.model == name for one in theirs.replies)
