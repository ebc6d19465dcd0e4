"""Limits on tokens and on requests in flight."""

import pytest

from evalkit.serve.options import options_from
from evalkit.serve.outcome import ServedOutcome
from evalkit.serve.provider import Simulator
from evalkit.wire.tokens import input_tokens
from tests.serve.asking import arrival, body, submitting

CONTENT = submitting()
TOKENS_IN = input_tokens(len(CONTENT))


def opened(**options: object) -> Simulator:
    return Simulator(options_from(options), 0.0)


def ask(simulator: Simulator, model: str = "knuth", now_s: float = 0.0) -> ServedOutcome:
    return simulator.handle(arrival(content=submitting(model=model)), now_s)


def refused_by(outcome: ServedOutcome) -> str:
    """The limit that refused it; empty where it was let in."""
    assert outcome.line is not None
    assert (outcome.status == 429) == bool(outcome.line.limit)
    return outcome.line.limit


def test_one_more_in_flight_is_refused_until_one_has_left() -> None:
    simulator = opened(in_flight=2, latency="1s")
    first, second, third = (ask(simulator) for _ in range(3))
    assert [refused_by(one) for one in (first, second, third)] == ["", "", "in_flight"]
    assert "retry-after" not in third.headers
    assert refused_by(ask(simulator, "random")) == ""
    simulator.leave(third)
    assert refused_by(ask(simulator)) == "in_flight"
    simulator.leave(first)
    assert refused_by(ask(simulator)) == ""


@pytest.mark.parametrize("limit", [{"rpm": 1}, {"in_flight": 1}], ids=["rpm", "in_flight"])
def test_limits_are_each_models_own(limit: dict[str, object]) -> None:
    simulator = opened(**limit)
    assert refused_by(ask(simulator)) == refused_by(ask(simulator, "random")) == ""
    assert refused_by(ask(simulator)) == next(iter(limit)).replace("rpm", "requests")


def test_refusals_by_a_limit_are_counted_apart_from_injected_ones() -> None:
    simulator = opened(rpm=30, burst="60s", faults={"429": 0.5})
    lines = [simulator.handle(arrival(f"e/{i}/0"), 0.0).line for i in range(60)]
    refused = [(line.outcome, line.limit) for line in lines if line is not None and line.status == 429]
    assert refused.count(("rate_limit", "requests")) == 30
    assert 0 < refused.count(("429", "")) == len(refused) - 30


def test_what_is_refused_takes_no_place_and_no_tokens() -> None:
    simulator = opened(in_flight=1, tpm=60 * TOKENS_IN)
    for content in (b"{", body("nobody")):
        simulator.leave(simulator.handle(arrival(content=content), 0.0))
    assert refused_by(ask(simulator)) == ""
