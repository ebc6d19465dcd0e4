"""The pure core, under a `now` of the test's own."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Usage
from evalkit.seeds import derive
from evalkit.serve.options import SimulatorOptions, options_from
from evalkit.serve.outcome import FAULTS, Arrival, ServedOutcome
from evalkit.serve.provider import Simulator
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import input_tokens, output_tokens
from tests.serve.asking import arrival, body, submitting

OPENAI = DIALECTS["openai_chat"]


def ask(options: SimulatorOptions, *requests: Arrival, every_s: float = 0.0) -> list[ServedOutcome]:
    """What becomes of requests that arrive one after another at a fresh provider."""
    simulator = Simulator(options, 100.0)
    return [simulator.handle(one, 100.0 + i * every_s) for i, one in enumerate(requests)]


def error(outcome: ServedOutcome) -> str:
    return str(orjson.loads(outcome.body)["error"]["code"])


def test_a_policy_answers_in_the_dialect_with_its_usage_and_its_price() -> None:
    content = submitting()
    outcome = ask(options_from({"price": "1:4", "latency": "50ms"}), arrival("e/3/0", content))[0]
    reply = OPENAI.decode(outcome.body)
    assert [call.name for call in reply.calls] == ["submit_assignment"]
    assert reply.model == "knuth"
    assert reply.usage == Usage(input=input_tokens(len(content)), output=output_tokens(reply))
    assert (outcome.status, outcome.delay_s, outcome.ending) == (200, 0.05, "complete")
    line = outcome.line
    assert line is not None
    assert (line.request_id, line.status, line.outcome, line.seed, line.billed) == ("e/3/0", 200, "ok", 7, True)
    assert (line.tokens_in, line.tokens_out) == (reply.usage.input, reply.usage.output)
    assert line.cost == 10**6 * reply.usage.input + 4 * 10**6 * reply.usage.output
    assert (line.seen_s, line.answered_s) == (0.0, 0.05)


@pytest.mark.parametrize(
    ("options", "request_", "status", "code"),
    [
        ({"key": "sk-1"}, arrival(), 401, "invalid_api_key"),
        ({"key": "sk-1"}, arrival(authorization="Bearer sk-2"), 401, "invalid_api_key"),
        ({}, arrival(content=b"{"), 400, "invalid_body"),
        ({}, arrival(content=b"[]"), 400, "invalid_body"),
        ({}, arrival(content=body(model="knut")), 404, "model_not_found"),
        ({}, arrival(content=body(model="oracle")), 404, "model_not_found"),
        ({"models": ["random"]}, arrival(), 404, "model_not_found"),
        ({}, replace(arrival(), path="/v2/chat/completions"), 404, "unknown_url"),
        ({}, replace(arrival(), path="/v1/messages"), 404, "unknown_url"),
        ({}, replace(arrival(), method="GET"), 405, "method_not_allowed"),
    ],
)
def test_what_is_wrong_is_refused_at_once_and_not_billed(
    options: dict[str, object], request_: Arrival, status: int, code: str
) -> None:
    outcome = ask(options_from({"latency": "1s", **options}), request_)[0]
    assert (outcome.status, error(outcome), outcome.delay_s) == (status, code, 0.0)
    assert outcome.line is None or (outcome.line.cost, outcome.line.billed) == (0, False)


def test_the_right_key_is_let_in() -> None:
    assert ask(options_from({"key": "sk-1"}), arrival(authorization="Bearer sk-1"))[0].status == 200


def test_the_same_request_gets_the_same_bytes_whatever_came_before() -> None:
    options = options_from({"latency": "lognormal:200ms:0.5", "seed": 3})
    alone = ask(options, arrival("e/1/0"))[0]
    later = ask(options, arrival("e/0/0"), arrival("f/0/0", body(seed=8)), arrival("e/1/0"))[2]
    assert (alone.body, alone.delay_s) == (later.body, later.delay_s)


def seeds(*requests: tuple[str, str]) -> list[int | None]:
    """The seeds taken for requests (id, user) whose bodies have none."""
    bodies = [(request_id, body("random", seed=None, user=user)) for request_id, user in requests]
    outcomes = ask(SimulatorOptions(), *(arrival(request_id, content) for request_id, content in bodies))
    return [one.line.seed for one in outcomes if one.line]


def test_without_a_seed_the_requests_id_gives_it_so_that_replicates_differ_and_a_retry_repeats() -> None:
    one, retry, next_step, replicate = seeds(("e/3/0", "a"), ("e/3/1", "b"), ("e/4/0", "a"), ("f/3/0", "a"))
    assert one == retry == derive("e", 3)
    assert len({one, next_step, replicate}) == 3


@pytest.mark.parametrize("request_id", ["", "mine", "e/3", "e/"])
def test_without_a_seed_and_an_id_of_three_parts_the_body_stands_for_it(request_id: str) -> None:
    one, same, other = seeds((request_id, "a"), (request_id, "a"), (request_id, "b"))
    assert one == same != other


@pytest.mark.parametrize("max_tokens", [1, 5, 12, 30, 100])
def test_a_reply_is_never_longer_than_max_tokens_and_says_that_it_was_cut(max_tokens: int) -> None:
    whole, cut = ask(
        SimulatorOptions(), arrival(content=submitting()), arrival(content=submitting(max_tokens=max_tokens))
    )
    assert OPENAI.decode(whole.body).usage.output > 100
    reply = OPENAI.decode(cut.body)
    assert reply.usage.output <= max_tokens
    assert reply.finish == "length"


def test_requests_beyond_the_limit_are_told_when_to_come_back() -> None:
    options = options_from({"rpm": 60, "burst": "2s"})
    simulator = Simulator(options, 0.0)
    first, second, third = (simulator.handle(arrival(f"e/{i}/0"), 0.0) for i in range(3))
    assert [first.status, second.status, third.status] == [200, 200, 429]
    assert first.headers["x-ratelimit-limit-requests"] == "60"
    assert [one.headers["x-ratelimit-remaining-requests"] for one in (first, second, third)] == ["1", "0", "0"]
    assert [one.headers["x-ratelimit-reset-requests"] for one in (first, second)] == ["1s", "2s"]
    assert (third.headers["retry-after"], third.headers["retry-after-ms"]) == ("1", "1000")
    assert error(third) == "rate_limit_exceeded"
    assert simulator.handle(arrival("e/2/1"), 0.999).status == 429
    assert simulator.handle(arrival("e/2/2"), 1.0).status == 200


def test_tokens_are_limited_apart_from_requests_and_each_model_for_itself() -> None:
    content = submitting()
    simulator = Simulator(options_from({"tpm": 60 * input_tokens(len(content)), "burst": "1s"}), 0.0)
    first = simulator.handle(arrival(content=content), 0.0)
    assert first.status == 200
    assert first.headers["x-ratelimit-remaining-tokens"] == "0"
    assert "x-ratelimit-limit-requests" not in first.headers
    refused = simulator.handle(arrival(content=content), 0.5)
    wait_s = int(refused.headers["retry-after-ms"]) / 1000
    # The reply's own tokens are paid back first, so the bucket is not there after the request's second alone.
    assert (refused.status, wait_s > 0.5) == (429, True)
    assert simulator.handle(arrival(content=submitting(model="random")), 0.5).status == 200
    assert simulator.handle(arrival(content=content), 0.5 + wait_s).status == 200


@given(st.floats(30, 6000), st.lists(st.floats(0, 2), min_size=1, max_size=80))
def test_no_minute_lets_through_more_than_its_limit_and_what_was_saved(rpm: float, gaps: list[float]) -> None:
    simulator = Simulator(SimulatorOptions(rpm=rpm, burst_s=1.0), 0.0)
    now_s, accepted = 0.0, []
    for i, gap in enumerate(gaps):
        now_s += gap * 60 / rpm
        if simulator.handle(arrival(f"e/{i}/0"), now_s).status == 200:
            accepted.append(now_s)
    saved = max(1.0, rpm / 60)
    for i, start in enumerate(accepted):
        within = sum(start <= one < start + 60 for one in accepted[i:])
        assert within <= rpm + saved + 1e-6
    assert accepted


@pytest.mark.exhaustive
def test_faults_come_as_often_as_asked_and_the_same_in_every_run() -> None:
    options = options_from({"faults": {"429": 0.1, "500": 0.05, "reset": 0.05}, "seed": 11})
    requests = [arrival(f"episode{i}/{i % 7}/0") for i in range(2000)]
    outcomes = [one.line.outcome for one in ask(options, *requests) if one.line]
    again = [one.line.outcome for one in reversed(ask(options, *reversed(requests))) if one.line]
    assert outcomes == again
    for word, share in (("429", 0.1), ("500", 0.05), ("reset", 0.05), ("ok", 0.8)):
        # Five standard deviations of a binomial.
        assert abs(outcomes.count(word) - 2000 * share) < 5 * (2000 * share * (1 - share)) ** 0.5
    retried = [
        one.line.outcome for one in ask(options, *(arrival(f"episode{i}/{i % 7}/1") for i in range(2000))) if one.line
    ]
    assert retried != outcomes
    other = ask(replace(options, seed=12), *requests)
    assert [one.line.outcome for one in other if one.line] != outcomes


def test_the_bill_numbers_its_lines_and_prices_what_is_billed() -> None:
    options = options_from({"faults": "500=0.2,truncated=0.2", "price": "2:8"})
    contents = [[body(), body("noisy"), body("none"), submitting()][i % 4] for i in range(60)]
    outcomes = ask(options, *(arrival(f"e/{i}/0", content) for i, content in enumerate(contents)))
    lines = [outcome.line for outcome in outcomes if outcome.line]
    assert [line.n for line in lines] == list(range(1, 61))
    assert {line.outcome for line in lines} == {"ok", "500", "truncated", "model_not_found"}
    for line in lines:
        assert line.billed == (line.outcome in ("ok", "truncated")) == (line.cost > 0)
        assert line.cost == 2 * 10**6 * line.tokens_in + 8 * 10**6 * line.tokens_out


# Status, ending, billed, delay in seconds where every reply takes 0.02.
FAULTY = {
    "429": (429, "complete", False, 0.0),
    "500": (500, "complete", False, 0.02),
    "reset": (0, "reset", True, 0.02),
    "stall": (0, "stall", True, 0.02),
    "truncated": (200, "truncated", True, 0.02),
    "invalid_json": (200, "complete", True, 0.02),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_does_what_it_is_named_for(fault: str, stream: bool) -> None:
    asked = arrival(content=submitting(stream=stream or None))
    good, outcome = (ask(options_from({"faults": {fault: share}, "latency": "20ms"}), asked)[0] for share in (0, 1))
    line = outcome.line
    assert line is not None
    status, ending, billed, took_s = FAULTY[fault]
    assert (line.outcome, outcome.status, outcome.ending, line.billed) == (fault, status, ending, billed)
    assert outcome.done_s <= took_s
    assert outcome.delay_s == (took_s / 2 if outcome.streamed else took_s)
    assert ((line.cost > 0), line.limit) == (billed, "")
    assert (line.answered_s is None) == (fault == "stall")
    assert ("retry-after" in outcome.headers) == (fault == "429")
    if fault in ("truncated", "invalid_json"):
        assert outcome.body[: outcome.sent] == good.body[: len(good.body) // 2]


@pytest.mark.parametrize(("tier", "served", "times"), [("", "", 1), ("auto", "default", 1), ("flex", "flex", 0.5)])
def test_a_tier_has_its_price_and_its_pace_and_the_reply_names_it(tier: str, served: str, times: float) -> None:
    plain, named = submitting(), orjson.dumps({"service_tier": tier})[:-1] + b"," + submitting()[1:]
    contents = (plain, named if tier else plain)
    outcomes = [ask(options_from({"latency": "100ms"}), arrival("e/3/0", content))[0] for content in contents]
    before, after = (outcome.line for outcome in outcomes)
    assert before is not None
    assert after is not None
    assert (after.tier, after.tokens_in) == (served, before.tokens_in)
    assert after.cost == before.cost * times
    assert outcomes[1].done_s == pytest.approx(0.3 if tier == "flex" else 0.1)
    assert orjson.loads(outcomes[1].body).get("service_tier", "") == served


def test_a_tier_that_is_not_sold_is_refused() -> None:
    outcome = ask(SimulatorOptions(), arrival(content=body(service_tier="turbo")))[0]
    assert outcome.status == 400
    assert b"'turbo' must be auto, default, flex, priority" in outcome.body
