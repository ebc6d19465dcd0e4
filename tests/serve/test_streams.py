"""A streamed reply is the reply that comes whole, whatever way it is cut."""

from dataclasses import replace
from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall, Usage
from evalkit.integrations.gateway.server import FORMATS
from evalkit.seeds import Stream
from evalkit.serve.formats import Cutter, StreamWish
from evalkit.serve.outcome import Arrival, ServedOutcome
from evalkit.serve.streams import PIECES, framed, streamed
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.serve.asking import arrival, body, spoken
from tests.serve.streamed_bodies import assembled, events, wanting_stream
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


def cut(dialect: str, reply: Reply, *, seed: int = 0) -> bytes:
    """The reply as a stream."""
    served = FORMATS[dialect]
    return streamed(served, served.encode_reply(reply), StreamWish(usage=True), Stream(seed, "test")).body


def answered(asked: Arrival, **options: object) -> ServedOutcome:
    """What becomes of a request."""
    return Double(options_from(options), 0.0).handle(asked, 0.0)


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_stream_holds_the_body_that_would_come_whole(dialect: str) -> None:
    replies = {
        "whole": REPLY,
        "no thoughts": replace(REPLY, reasoning=""),
        "no text": replace(REPLY, text=""),
        "cut off": replace(REPLY, calls=(), finish="length"),
        "empty": replace(REPLY, calls=(), reasoning="", text="", finish="stop"),
        "refusal": replace(REPLY, calls=(), text="I cannot.", finish="refusal"),
    }

    def hold(reply: Reply) -> None:
        whole = orjson.loads(FORMATS[dialect].encode_reply(reply))
        for seed in range(3):
            assert assembled(dialect, cut(dialect, reply, seed=seed)) == whole

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
    for dialect in FORMATS:
        served = FORMATS[dialect]
        whole = orjson.loads(served.encode_reply(reply))
        said = list(served.stream.events(whole, StreamWish(usage=True), Cutter(Stream(seed, "test"), tokens)))
        assert assembled(dialect, b"".join(framed(served.stream, said))) == whole


def test_deltas_have_as_many_tokens_on_average_as_is_asked_for_and_cut_no_character() -> None:
    text = "🧺é€x" * 20_000
    for tokens in (1, 8, 100):
        pieces = Cutter(Stream(1, "test"), tokens)(text)
        assert "".join(pieces) == text
        assert all(pieces)
        assert len(text) / len(pieces) == pytest.approx(4 * tokens, rel=0.1)
    assert Cutter(Stream(1, "test"), 1)("") == []


@pytest.mark.parametrize("dialect", FORMATS)
def test_the_same_request_is_cut_at_the_same_places_and_another_at_others(dialect: str) -> None:
    def bodies(**options: object) -> list[bytes]:
        simulator = Double(options_from({"reasoning": 200, **options}), 0.0)
        asked = [wanting_stream(spoken(dialect, request_id=f"e/{i}/0")) for i in (0, 1, 0)]
        return [simulator.handle(one, float(i)).body for i, one in enumerate(asked)]

    first, other, again = bodies()
    assert first == again
    assert first != other
    assert bodies(seed=1)[0] != first


@pytest.mark.parametrize("reasoning", [0, 50])
@pytest.mark.parametrize("dialect", FORMATS)
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


@pytest.mark.parametrize("dialect", FORMATS)
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


@pytest.mark.parametrize("dialect", FORMATS)
def test_what_fails_before_the_first_byte_is_as_for_any_request(dialect: str) -> None:
    whole = spoken(dialect)
    stream = wanting_stream(whole)
    cases: tuple[dict[str, object], ...] = ({"key": "k"}, {"models": ["noisy"]}, {"fault_429": 1}, {"fault_500": 1})
    for options in cases:
        plain, failed = answered(whole, **options), answered(stream, **options)
        assert (plain.status >= 400, plain.streamed, failed.streamed) == (True, False, False)
        assert failed == plain


def test_the_first_byte_comes_after_half_of_the_latency_and_the_last_at_its_end() -> None:
    outcome = answered(wanting_stream(spoken("openai_chat")), latency="10s", reasoning=500)
    assert (outcome.delay_s, outcome.over_s, outcome.done_s) == (5, 5, 10)
    assert len(outcome.pieces) == PIECES
    shares = [share for share, _ in outcome.pieces]
    assert (shares[0], shares[-1], shares == sorted(shares)) == (0, 1, True)
    assert max(late - early for early, late in pairwise(shares)) < 0.1, "a gateway would take it for silent"
    assert outcome.sent == len(outcome.body)
    for _, end in outcome.pieces:
        assert outcome.body[:end].endswith(b"\n\n")
