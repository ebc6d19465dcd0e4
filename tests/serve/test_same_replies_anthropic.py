"""A policy that is asked in Anthropic's format plays the very episode that it plays in this process.

That dialect carries no seed, so the simulated provider makes one from the request's id, and the policy in this process
is given that one. It also carries arguments as an object, so those in this process are written compactly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.environment import Environment
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.seeds import derive
from evalkit.serve.formats import BASE_PATH
from evalkit.serve.outcome import Arrival
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.support.episode_loop import Agent, play, policy

ANTHROPIC = DIALECTS["anthropic_messages"]
KEY = "sk-1"

SCHEDULING_LINE = {"id": "seed-5", "generator": "reference", "seed": 5, "n": 20, "k": 2, "periods": 60}


def body(name: str, request: Request) -> bytes:
    head = ANTHROPIC.head(name, request.sampling, Quirks())
    messages: list[bytes] = []
    ANTHROPIC.join(messages, request.messages)
    return ANTHROPIC.body(head, ANTHROPIC.encode_tools(request.tools), messages, request.seed)


def served(name: str) -> Agent:
    """The policy as a model of a simulated provider with a key."""
    simulator = Double(options_from({"key": KEY}), 0.0)
    asked = 0

    def ask(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        headers = {"x-client-request-id": f"e/{asked}/0", **ANTHROPIC.headers(KEY)}
        posted = Arrival(method="POST", path=BASE_PATH + ANTHROPIC.path, headers=headers, body=body(name, request))
        outcome = simulator.handle(posted, float(asked))
        assert outcome.status == 200, outcome.body
        return ANTHROPIC.decode(outcome.body)

    return ask


def here(name: str) -> Agent:
    """The policy in this process, with the provider's seeds."""
    agent, asked = policy(name), 0

    def ask(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        reply = agent(replace(request, seed=derive("e", asked)))
        calls = [replace(call, arguments=orjson.dumps(orjson.loads(call.arguments)).decode()) for call in reply.calls]
        return replace(reply, calls=tuple(calls))

    return ask


def costbench_line() -> dict[str, Any]:
    """Seven steps, and prices that change on the way."""
    return dict(next(iter(COSTBENCH.generate({"length": 7, "block": "cost_change", "blocks": 2}, 1, 3))))


@pytest.mark.parametrize(
    ("env", "make", "name"),
    [
        pytest.param(SCHEDULING, lambda: SCHEDULING_LINE, "knuth", id="scheduling-knuth"),
        pytest.param(SCHEDULING, lambda: SCHEDULING_LINE, "random", id="scheduling-random"),
        pytest.param(COSTBENCH, costbench_line, "replanner", id="costbench-replanner"),
        pytest.param(COSTBENCH, costbench_line, "random", id="costbench-random"),
    ],
)
def test_a_served_policy_replies_as_it_does_in_this_process(
    env: Environment[Any, Any], make: Callable[[], dict[str, Any]], name: str
) -> None:
    ours, theirs = (play(env, make(), agent(name)) for agent in (here, served))
    assert [(one.text, one.calls, one.finish) for one in ours.replies] == [
        (one.text, one.calls, one.finish) for one in theirs.replies
    ]
    assert (ours.facts, ours.ending) == (theirs.facts, theirs.ending)
    assert ours.ending
    assert sum(len(one.calls) for one in ours.replies) >= 3
    assert all(one.usage.input > 0 and one.response_id and one.model == name for one in theirs.replies)
