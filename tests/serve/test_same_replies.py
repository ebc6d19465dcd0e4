"""A served policy and the same one in this process give the same episode: the wire adds nothing and loses nothing."""

import pytest

from evalkit.dialogue import Reply, Request
from evalkit.env.scheduling.scheduling import SCHEDULING
from evalkit.serve.options import options_from
from evalkit.serve.provider import handle, open_simulator
from evalkit.wire.dialect import Quirks
from evalkit.wire.table import DIALECTS
from tests.play import Agent, play, policy
from tests.serve.asking import arrival

OPENAI = DIALECTS["openai_chat"]


def served(name: str) -> Agent:
    """The policy as a model of a simulated provider, asked in its dialect."""
    simulator = open_simulator(options_from({"latency": "exponential:1s"}), 0.0)
    asked = 0

    def ask(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        head = OPENAI.head(name, request.sampling, Quirks())
        messages = [OPENAI.encode_message(message) for message in request.messages]
        body = OPENAI.body(head, OPENAI.encode_tools(request.tools), messages, request.seed)
        outcome = handle(simulator, arrival(f"e/{asked}/0", body), float(asked))
        assert outcome.status == 200, outcome.body
        return OPENAI.decode(outcome.body)

    return ask


@pytest.mark.parametrize("name", ["random", "knuth", "noisy"])
def test_a_served_policy_replies_as_it_does_in_this_process(name: str) -> None:
    line = {"id": "seed-5", "generator": "reference", "seed": 5, "n": 20, "k": 2, "periods": 60}
    here, there = (play(SCHEDULING, line, agent, seed=3) for agent in (policy(name), served(name)))
    assert [(one.text, one.calls, one.finish) for one in here.replies] == [
        (one.text, one.calls, one.finish) for one in there.replies
    ]
    assert here.facts == there.facts
    assert all(one.usage.input > 0 and one.response_id for one in there.replies)
    assert len({one.response_id for one in there.replies}) == len(there.replies)
