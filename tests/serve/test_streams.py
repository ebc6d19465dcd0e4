"""A streamed reply is the reply that comes whole, whatever way it is cut; and the faults of streams."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall, Usage
from evalkit.seeds import Stream
from evalkit.serve.dialects.streamed import Cutter, StreamWish
from evalkit.serve.dialects.table import SERVED_DIALECTS
from evalkit.serve.faults import PIECES, STREAM_FAULTS
from evalkit.serve.options import options_from
from evalkit.serve.outcome import Arrival, ServedOutcome
from evalkit.serve.provider import handle, open_simulator
from evalkit.serve.streams import streamed
from evalkit.wire.billed import counts_as_billed
from evalkit.wire.http import HttpResponse
from evalkit.wire.table import DIALECTS
from tests.serve.asking import arrival, body, spoken, submitting
from tests.serve.streamed_bodies import assembled, events, joined_chunks, wanting_stream
from tests.support.each_case import check_each
from tests.support.examples import examples

REPLY = Reply(
    text='Zoë sold 🧺🧺 at "5 €".\r\n\ndata: [DONE]\n',
    calls=(
        ToolCall(id="call_0", name="sell", arguments='{"what":"🧺 é\\n\\u00e9","at":[5,6.5,null],"data: ":{}}'),
        ToolCall(id="call_1", name="wait", arguments="{}"),
    ),
    finish="tool_calls",
    usage=Usage(input=70, output=40, reasoning=9, cached_read=8, cached_write=5),
    model="m",
    fingerprint="fp_1",
    response_id="r1",
    reasoning="I think 🧺, so\n\n: I am.",
)
STREAMED = [name for name, dialect in DIALECTS.items() if dialect.stream is not None]
SAME = ("", "stream_comments", "stream_joined", "stream_crlf", "drip")
"""What leaves a stream the same to whoever reads it."""


def cut(dialect: str, reply: Reply, *, seed: int = 0, tokens: int = 2, fault: str = "") -> bytes:
    """The reply as a stream."""
    served = SERVED_DIALECTS[dialect]
    wish = StreamWish(usage=True)
    return streamed(served, served.encode_reply(reply), wish, fault, Stream(seed, "test"), tokens).body


def answered(asked: Arrival, **options: object) -> ServedOutcome:
    """What becomes of a request."""
    return handle(open_simulator(options_from(options), 0.0), asked, 0.0)


@pytest.mark.parametrize("fault", SAME)
@pytest.mark.parametrize("dialect", STREAMED)
def test_a_stream_holds_the_body_that_would_come_whole(dialect: str, fault: str) -> None:
    replies = {
        "whole": REPLY,
        "no thoughts": replace(REPLY, reasoning=""),
        "no text": replace(REPLY, text=""),
        "cut off": replace(REPLY, calls=(), finish="length"),
        "empty": replace(REPLY, calls=(), reasoning="", text="", finish="stop"),
        "refusal": replace(REPLY, calls=(), text="I cannot.", finish="refusal"),
    }

    def hold(reply: Reply) -> None:
        whole = orjson.loads(SERVED_DIALECTS[dialect].encode_reply(reply))
        for seed in range(3):
            assert assembled(dialect, cut(dialect, reply, seed=seed, fault=fault)) == whole

    check_each(replies.items(), hold)


TEXTS = st.text(max_size=60)


@settings(max_examples=examples(60), deadline=None)
@given(
    text=TEXTS,
    reasoning=TEXTS,
    arguments=st.lists(st.dictionaries(TEXTS, TEXTS | st.integers(-(2**60), 2**60), max_size=3), max_size=3),
    seed=st.integers(0, 2**31),
    tokens=st.integers(1, 20),
)
def test_no_text_is_lost_wherever_it_is_cut(
    text: str, reasoning: str, arguments: list[dict[str, object]], seed: int, tokens: int
) -> None:
    calls = tuple(
        ToolCall(id=f"call_{i}", name="say", arguments=orjson.dumps(one).decode()) for i, one in enumerate(arguments)
    )
    reply = replace(REPLY, text=text, reasoning=reasoning, calls=calls, finish="tool_calls" if calls else "stop")
    for dialect in STREAMED:
        whole = orjson.loads(SERVED_DIALECTS[dialect].encode_reply(reply))
        assert assembled(dialect, cut(dialect, reply, seed=seed, tokens=tokens)) == whole


def test_deltas_have_as_many_tokens_on_average_as_is_asked_for_and_cut_no_character() -> None:
    text = "🧺é€x" * 20_000
    for tokens in (1, 8, 100):
        pieces = Cutter(Stream(1, "test"), tokens)(text)
        assert "".join(pieces) == text
        assert all(pieces)
        assert len(text) / len(pieces) == pytest.approx(4 * tokens, rel=0.1)
    assert Cutter(Stream(1, "test"), 1)("") == []


@pytest.mark.parametrize("dialect", STREAMED)
def test_the_same_request_is_cut_at_the_same_places_and_another_at_others(dialect: str) -> None:
    def bodies(**options: object) -> list[bytes]:
        simulator = open_simulator(options_from({"reasoning": 200, **options}), 0.0)
        asked = [wanting_stream(spoken(dialect, request_id=f"e/{i}/0")) for i in (0, 1, 0)]
        return [handle(simulator, one, float(i)).body for i, one in enumerate(asked)]

    first, other, again = bodies()
    assert first == again
    assert first != other
    assert bodies(seed=1)[0] != first
    assert bodies(stream_tokens=1)[0] != first


@pytest.mark.parametrize("reasoning", [0, 50])
@pytest.mark.parametrize("dialect", STREAMED)
def test_a_streamed_request_gets_the_reply_ids_usage_and_bill_of_the_same_request_unstreamed(
    dialect: str, reasoning: int
) -> None:
    # Without an id of its own, the request's body decides what some policies reply.
    whole = spoken(dialect, model="random", request_id="")
    plain, stream = (
        answered(one, reasoning=reasoning, rpm=60, latency="1s", cache="5m") for one in (whole, wanting_stream(whole))
    )
    assert assembled(dialect, stream.body) == orjson.loads(plain.body)
    assert stream.headers["content-type"].startswith("text/event-stream")
    for name in plain.headers.keys() - {"content-type"}:
        assert stream.headers[name] == plain.headers[name]
    assert stream.line == plain.line
    assert plain.line is not None
    assert plain.line.cost > 0


@pytest.mark.parametrize(
    "written",
    [
        b'{"stream":true,%b}',
        b'{%b, "stream": true}',
        b'{"stream": true, "stream_options": {"include_usage": true}, %b}',
        b'{"stream_options" : {"include_usage" : false}, %b,"stream" : true}',
    ],
)
def test_the_wish_for_a_stream_costs_nothing_however_it_is_written(written: bytes) -> None:
    members = body(tools=[{"type": "function", "function": {"name": "go", "parameters": {"stream": "true"}}}])[1:-1]
    plain, stream = (answered(arrival(content=one)) for one in (b"{%b}" % members, written % members))
    assert stream.streamed
    assert plain.line == stream.line
    said = next(data for _, data in events(stream.body))
    assert orjson.loads(said)["id"] == orjson.loads(plain.body)["id"]


def test_who_only_mentions_a_stream_gets_none() -> None:
    named = [{"type": "function", "function": {"name": "go", "parameters": {"stream": True}}}]
    quoted = [{"role": "user", "content": '{"stream":true}'}]
    for more in ({"tools": named}, {"messages": quoted}, {"stream": False}, {"stream": None}):
        outcome = answered(arrival(content=orjson.dumps({**orjson.loads(body()), **more})))
        assert (outcome.status, outcome.streamed) == (200, False)
    asked = answered(arrival(content=orjson.dumps({**orjson.loads(body()), "tools": named, "stream": True})))
    assert (asked.status, asked.streamed) == (200, True)


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_a_wish_that_is_none_is_refused(dialect: str) -> None:
    whole = spoken(dialect)
    for more in ({"stream": "yes"}, {"stream": 1}, {"stream_options": {"include_usage": True}}):
        outcome = answered(replace(whole, body=orjson.dumps(orjson.loads(whole.body) | more)))
        assert outcome.status == 400
        assert b"stream" in outcome.body


def test_chat_completions_states_usage_only_where_that_is_asked_for() -> None:
    whole = spoken("openai_chat")
    with_usage, without = (
        [
            orjson.loads(data)
            for _, data in events(answered(wanting_stream(whole, usage=usage)).body)
            if data != b"[DONE]"
        ]
        for usage in (True, False)
    )
    assert with_usage[-1]["choices"] == []
    assert with_usage[-1]["usage"]["completion_tokens"] > 0
    assert {chunk["usage"] for chunk in with_usage[:-1]} == {None}
    assert [chunk["choices"] for chunk in with_usage[:-1]] == [chunk["choices"] for chunk in without]
    assert not any("usage" in chunk for chunk in without)


def test_gemini_streams_a_json_list_to_who_does_not_ask_for_events() -> None:
    whole = spoken("gemini")
    stream = answered(wanting_stream(whole, query="key=1"), reasoning=50)
    assert stream.headers["content-type"] == "application/json"
    values = orjson.loads(stream.body)
    assert len(values) > 1
    assert joined_chunks(values) == orjson.loads(answered(whole, reasoning=50).body)


@pytest.mark.parametrize("dialect", STREAMED)
def test_what_fails_before_the_first_byte_is_as_for_any_request(dialect: str) -> None:
    whole = spoken(dialect)
    stream = wanting_stream(whole)
    cases: tuple[Mapping[str, object], ...] = ({"key": "k"}, {"context_tokens": 10}, {"models": ["noisy"]})
    for options in (*cases, *({f"fault_{kind}": 1} for kind in ("429", "500", "529", "html_502", "content_filter"))):
        plain, failed = answered(whole, **options), answered(stream, **options)
        assert (plain.status >= 400, plain.streamed, failed.streamed) == (True, False, False)
        assert failed == plain


def test_the_first_byte_comes_after_its_part_of_the_latency_and_the_last_at_its_end() -> None:
    asked = wanting_stream(spoken("openai_chat"))
    early, late, queued = (
        answered(asked, latency="10s", reasoning=500, **options)
        for options in ({"stream_first": 0.1}, {"stream_first": 1}, {"stream_first": 0.1, "slots": 1})
    )
    assert (early.delay_s, early.over_s, early.done_s) == pytest.approx((1, 9, 10))
    assert (late.delay_s, late.over_s, late.done_s) == (10, 0, 10)
    assert queued == early
    assert len(early.pieces) == PIECES
    shares = [share for share, _ in early.pieces]
    assert (shares[0], shares[-1], shares == sorted(shares)) == (0, 1, True)
    assert max(late - early for early, late in pairwise(shares)) < 0.1, "a gateway would take it for silent"
    assert early.sent == len(early.body)
    for _, end in early.pieces:
        assert early.body[:end].endswith(b"\n\n")
    kept = answered(asked, latency="10s", reasoning=500, fault_stream_comments=1)
    assert (kept.delay_s, kept.done_s) == (0, 10)
    simulator = open_simulator(options_from({"latency": "10s", "slots": 1, "stream_first": 0.1}), 0.0)
    first, second = (handle(simulator, asked, 0.0) for _ in range(2))
    assert second.delay_s == pytest.approx(10 + first.delay_s)


# How it ends, and what a client's attempt comes to; where it comes to a reply, an empty string.
ENDS: Mapping[str, tuple[str, str]] = {
    "stream_silent": ("stall", "timeout"),
    "stream_stall": ("stall", "timeout"),
    "stream_end": ("complete", "truncated"),
    "stream_reset": ("reset", "reset"),
    "stream_error": ("complete", "broken_off"),
    "stream_comments": ("complete", ""),
    "stream_joined": ("complete", ""),
    "stream_crlf": ("complete", ""),
}


@pytest.mark.parametrize("dialect", STREAMED)
@pytest.mark.parametrize("fault", STREAM_FAULTS)
def test_every_fault_of_streams_does_what_it_is_named_for(fault: str, dialect: str) -> None:
    asked = wanting_stream(spoken(dialect))
    options = {"reasoning": 50, "latency": "20ms"}
    good, met = answered(asked, **options), answered(asked, **options, **{f"fault_{fault}": 1})
    ending, comes_to = ENDS[fault]
    assert (met.status, met.streamed, met.ending) == (200, True, ending)
    assert good.line is not None
    assert met.line is not None
    assert met.line == replace(good.line, outcome=fault, answered_s=met.line.answered_s)
    assert (met.line.answered_s is None) == (ending == "stall")
    # The reply was made: what the client's table charges is on the bill.
    assert met.line.billed == (not comes_to or counts_as_billed(comes_to, {}))
    cut_short = fault in ("stream_silent", "stream_stall", "stream_end", "stream_reset")
    assert (good.body.startswith(met.body) and len(met.body) < len(good.body)) == cut_short
    assert met.sent == len(met.body)
    assert (len(met.body) == 0) == (fault == "stream_silent")
    if not comes_to:
        assert met.body != good.body or (fault, dialect[:6]) == ("stream_crlf", "gemini")


@pytest.mark.parametrize("dialect", STREAMED)
def test_cuts_fall_anywhere(dialect: str) -> None:
    asked = [wanting_stream(spoken(dialect, request_id=f"e/{i}/0")) for i in range(60)]
    cuts = [answered(one, fault_stream_end=1) for one in asked]
    ends = {len(outcome.body) * 4 // len(answered(one).body) for one, outcome in zip(asked, cuts, strict=True)}
    assert ends == {0, 1, 2, 3}
    inside = [outcome.body for outcome in cuts if not outcome.body.endswith(b"\n")]
    assert len(inside) > 40


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_error_in_a_stream_is_said_in_the_dialects_words(dialect: str) -> None:
    names, counts = set(), set()
    for number in range(20):
        asked = wanting_stream(spoken(dialect, request_id=f"e/{number}/0"))
        found = list(events(answered(asked, fault_stream_error=1, reasoning=50).body))
        counts.add(len(found))
        name, data = found[-1]
        names.add(name)
        value = orjson.loads(data)
        error = value["response"]["error"] if "response" in value else value["error"]
        assert error["message"] == "The server had an error while processing the request."
        assert not any(one == b"[DONE]" for _, one in found)
        if dialect == "openai_responses":
            assert (found[-2][0], orjson.loads(found[-2][1])["type"]) == ("error", "error")
            assert value["response"]["status"] == "failed"
            verdict = DIALECTS[dialect].judge(
                HttpResponse(status=200, headers={}, body=orjson.dumps(value["response"]))
            )
            assert verdict.outcome == "broken_off"
    assert names == {
        {"openai_responses": "response.failed", "anthropic_messages": "error", "anthropic_vertex": "error"}.get(
            dialect, ""
        )
    }
    assert len(counts) > 3


def test_comments_stand_before_the_first_event_and_between_the_others() -> None:
    bodies = [
        answered(wanting_stream(spoken(dialect)), reasoning=100, fault_stream_comments=1).body for dialect in STREAMED
    ]
    assert all(one.startswith(b": ") for one in bodies)
    lines = {line for one in bodies for line in one.splitlines() if line.startswith(b":")}
    assert len(lines) > 2
    assert b"event: keepalive\n" in bodies[1]
    assert bodies[2].count(b"event: ping\n") > 1


@pytest.mark.parametrize("dialect", STREAMED)
def test_faults_of_any_reply_come_in_streams_too(dialect: str) -> None:
    asked = wanting_stream(spoken(dialect))
    whole = answered(asked)
    met = {
        fault: answered(asked, drip="2s", latency="1s", **{f"fault_{fault}": 1})
        for fault in ("reset", "stall", "truncated", "html_200", "empty", "invalid_json", "huge", "drip", "unmetered")
    }
    assert (met["reset"].status, met["reset"].ending, met["stall"].ending) == (0, "reset", "stall")
    assert (met["truncated"].ending, met["truncated"].sent) == ("truncated", len(whole.body) // 2)
    assert (met["html_200"].streamed, met["html_200"].headers["content-type"][:9]) == (False, "text/html")
    assert (met["empty"].body, met["empty"].streamed) == (b"", True)
    assert met["invalid_json"].body == whole.body[: len(whole.body) // 2]
    assert (met["huge"].body.startswith(whole.body), len(met["huge"].body)) == (True, 10_000_000)
    assert (met["drip"].body, met["drip"].delay_s, met["drip"].done_s) == (whole.body, 1, 3)
    assert b'"completion_tokens"' not in met["unmetered"].body
    assert not any(name in met["unmetered"].body for name in (b"output_tokens", b"usageMetadata"))
    assert {outcome.line.billed for outcome in met.values() if outcome.line} == {True}


def test_a_reply_that_comes_whole_meets_no_fault_of_streams() -> None:
    asked = arrival(content=submitting())
    for fault in STREAM_FAULTS:
        assert answered(asked, **{f"fault_{fault}": 1}) == answered(asked)
