"""A served policy and the same one in this process give the same episode: the wire adds nothing and loses nothing."""

from dataclasses import replace
from typing import Any

import pytest

from evalkit.dialogue import Reply, Request
from evalkit.envs.costbench.costbench import COSTBENCH
from evalkit.envs.environment import Environment
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.integrations.gateway.server import FORMATS
from evalkit.seeds import derive
from evalkit.serve.formats import BASE_PATH
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.table import DIALECTS
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.serve.asking import arrival
from tests.support.episode_loop import Agent, play, policy

SCHEDULED = {"id": "seed-5", "generator": "reference", "seed": 5, "n": 20, "k": 2, "periods": 60}


def asked(name: str, request: Request, dialect: Dialect) -> bytes:
    """The body that asks for the request."""
    head = dialect.head(name, request.sampling, Quirks())
    messages: list[bytes] = []
    dialect.join(messages, request.messages)
    return dialect.body(head, dialect.encode_tools(request.tools), messages, request.seed)


def served(name: str, dialect: Dialect, bodies: list[bytes]) -> Agent:
    """The policy as a model of a simulated provider, asked in that dialect. `bodies` gets what was sent."""
    simulator = Double(options_from({"latency": "uniform:1s:9s"}), 0.0)

    def ask(request: Request) -> Reply:
        bodies.append(asked(name, request, dialect))
        coming = replace(arrival(f"e/{len(bodies)}/0", bodies[-1]), path=BASE_PATH + dialect.path)
        outcome = simulator.handle(coming, float(len(bodies)))
        assert outcome.status == 200, outcome.body
        return dialect.decode(outcome.body)

    return ask


def local(name: str, dialect: Dialect) -> Agent:
    """The policy in this process. Where the dialect has no seed, the request's id gives it, here as there."""
    agent, asked_before = policy(name), 0

    def ask(request: Request) -> Reply:
        nonlocal asked_before
        asked_before += 1
        seed = FORMATS[dialect.name].decode_request(asked(name, request, dialect))[1].seed
        return agent(replace(request, seed=seed or derive("e", asked_before)))

    return ask


@pytest.mark.exhaustive(but=4)
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize(
    ("env", "name"),
    [(SCHEDULING, name) for name in ("random", "knuth", "noisy")]
    + [(COSTBENCH, name) for name in ("random", "replanner", "noisy")],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_a_served_policy_replies_as_it_does_in_this_process(
    env: Environment[Any, Any], name: str, dialect: str
) -> None:
    line = SCHEDULED if env is SCHEDULING else dict(next(iter(env.generate({}, 1, 5))))
    spoken, bodies = DIALECTS[dialect], list[bytes]()
    here = play(env, line, local(name, spoken), seed=3)
    there = play(env, line, served(name, spoken, bodies), seed=3)
    assert [(one.text, one.calls, one.finish) for one in here.replies] == [
        (one.text, one.calls, one.finish) for one in there.replies
    ]
    assert here.facts == there.facts
    assert here.ending == there.ending != ""
    assert all(one.usage.input > 0 and one.response_id for one in there.replies)
    assert len({one.response_id for one in there.replies}) == len(bodies) > 1
