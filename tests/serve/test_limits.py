"""Limits on tokens, on requests in flight, on all models together; and a server of limited capacity."""

import orjson
import pytest

from evalkit.serve.options import options_from
from evalkit.serve.outcome import Arrival, ServedOutcome
from evalkit.serve.provider import Simulator, handle, leave, open_simulator
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import input_tokens
from tests.serve.asking import arrival, body, submitting

CONTENT = submitting()
TOKENS_IN = input_tokens(len(CONTENT))


def opened(**options: object) -> Simulator:
    return open_simulator(options_from(options), 0.0)


def ask(simulator: Simulator, model: str = "knuth", now_s: float = 0.0) -> ServedOutcome:
    return handle(simulator, arrival(content=submitting(model=model)), now_s)


def refused_by(outcome: ServedOutcome) -> str:
    """The limit that refused it; empty where it was let in."""
    assert outcome.line is not None
    assert (outcome.status == 429) == bool(outcome.line.limit)
    return outcome.line.limit


def test_input_and_output_are_limited_apart() -> None:
    for_input = opened(itpm=60 * TOKENS_IN, burst="1s")
    assert refused_by(ask(for_input)) == ""
    assert refused_by(ask(for_input)) == "input_tokens"
    assert refused_by(ask(for_input, now_s=1.0)) == ""
    # A reply's own tokens are taken when they are known: the next request waits until they are paid back.
    for_output = opened(otpm=60, burst="1s")
    first = ask(for_output)
    spent = DIALECTS["openai_chat"].decode(first.body).usage.output
    refused = ask(for_output)
    assert refused_by(refused) == "output_tokens"
    assert refused.headers["retry-after"] == str(spent + 1)
    assert refused_by(ask(for_output, now_s=float(spent + 1))) == ""


def test_one_more_in_flight_is_refused_until_one_has_left() -> None:
    simulator = opened(in_flight=2, latency="1s")
    first, second, third = (ask(simulator) for _ in range(3))
    assert [refused_by(one) for one in (first, second, third)] == ["", "", "in_flight"]
    assert "retry-after" not in third.headers
    assert refused_by(ask(simulator, "random")) == ""
    leave(simulator, third)
    assert refused_by(ask(simulator)) == "in_flight"
    leave(simulator, first)
    assert refused_by(ask(simulator)) == ""


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("limit", [{"rpm": 1}, {"in_flight": 1}], ids=["rpm", "in_flight"])
def test_limits_are_each_models_own_or_shared_by_all(limit: dict[str, object], shared: bool) -> None:
    simulator = opened(shared_limits=shared, **limit)
    assert refused_by(ask(simulator)) == ""
    assert bool(refused_by(ask(simulator, "random"))) == shared


def test_refusals_by_a_limit_are_counted_apart_from_injected_ones() -> None:
    simulator = opened(rpm=30, burst="60s", fault_429=0.5)
    outcomes = [handle(simulator, arrival(f"e/{i}/0"), 0.0) for i in range(60)]
    stats = orjson.loads(handle(simulator, Arrival(method="GET", path="/stats", headers={}), 0.0).body)
    assert stats["over_limit"] == stats["by_limit"]["requests"] == stats["by_outcome"]["rate_limit"] == 30
    assert stats["by_status"]["429"] == 30 + stats["by_outcome"]["429"] > 30
    assert sum(refused.line.limit == "requests" for refused in outcomes if refused.line) == 30


def test_what_is_refused_takes_no_place_and_no_tokens() -> None:
    simulator = opened(in_flight=1, tpm=60 * TOKENS_IN)
    for content in (b"{", body("nobody")):
        leave(simulator, handle(simulator, arrival(content=content), 0.0))
    assert refused_by(ask(simulator)) == ""


def test_a_server_of_few_slots_refuses_nobody_and_makes_them_wait() -> None:
    simulator = opened(slots=2, latency="1s")
    assert [ask(simulator).delay_s for _ in range(5)] == [1.0, 1.0, 2.0, 2.0, 3.0]
    # At 2.5 the places are free at 3 and at 2 (since then); whose model it is does not matter.
    assert [ask(simulator, "random", 2.5).delay_s for _ in range(2)] == [1.0, 1.5]
    assert simulator.totals.by_outcome == {"ok": 7}


def test_what_is_refused_at_once_takes_no_slot() -> None:
    simulator = opened(slots=1, latency="1s")
    assert handle(simulator, arrival(content=b"{"), 0.0).delay_s == 0.0
    assert ask(simulator).delay_s == 1.0
