"""A streamed reply is the reply that would have come in one piece; a broken one is none, and may have been billed."""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, Sampling, ToolCall, Usage
from evalkit.wire import anthropic_stream, openai_chat_stream, openai_responses
from evalkit.wire.alike import Alike
from evalkit.wire.dialect import Quirks
from evalkit.wire.http import HttpResponse, Verdict, counts_as_billed
from evalkit.wire.openai_responses import ResponsesAssembler
from evalkit.wire.streams import RAW_CAP, EventParser, ReplyStream, is_stream, loads_event, next_event, stated_status
from evalkit.wire.table import DIALECTS
from tests.provider.dialects import SERVED_DIALECTS
from tests.support.each_case import check_each
from tests.support.growth import assert_linear
from tests.support.streaming import EVENTS, assembled, every, response_of, sse, streamed

NAMES = sorted(EVENTS)

THOUGHTFUL: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [
        {
            "id": "c1",
            "model": "m",
            "system_fingerprint": "fp",
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {
                        "content": "Let me look.",
                        "reasoning_content": "They want the price. \U0001f600",
                        "tool_calls": [
                            {
                                "id": "a",
                                "type": "function",
                                "function": {"name": "look", "arguments": '{"at": "caf\\u00e9"}'},
                                "extra_content": {"google": {"thought_signature": "c2ln"}},
                            },
                            {"id": "b", "type": "function", "function": {"name": "wait", "arguments": ""}},
                        ],
                    },
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 3}},
        },
        {
            "id": "c2",
            "model": "m",
            "choices": [
                {
                    "finish_reason": "stop",
                    "message": {
                        "content": "Done.",
                        "reasoning": "So it is.",
                        "reasoning_details": [
                            {"type": "reasoning.text", "text": "So it is.", "index": 0, "signature": "c2ln"},
                            {"type": "reasoning.encrypted", "data": "b3BhcXVl", "id": "r2", "index": 1},
                        ],
                    },
                }
            ],
        },
        {
            "id": "c3",
            "model": "m",
            "choices": [{"finish_reason": "stop", "message": {"content": None, "refusal": "I will not do it."}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 20},
        },
    ],
    "openai_responses": [
        {
            "id": "r1",
            "model": "m",
            "status": "completed",
            "output": [
                {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "Z2VoZWlt"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
                {"type": "function_call", "id": "fc", "call_id": "a", "name": "look", "arguments": '{"at":1}'},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 7}},
        },
        {
            "id": "r2",
            "model": "m",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let"}]}],
            "usage": {"input_tokens": 9, "output_tokens": 20},
        },
    ],
    "anthropic_messages": [
        {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [
                {"type": "thinking", "thinking": "They want the price.", "signature": "c2lnbmVk"},
                {"type": "redacted_thinking", "data": "Z2VoZWlt"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"at": [1, 2.5, "caf\u00e9"]}},
                {"type": "tool_use", "id": "b", "name": "wait", "input": {}},
            ],
            "stop_reason": "tool_use",
            "usage": {
                "input_tokens": 9,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 4,
                "output_tokens": 20,
                "output_tokens_details": {"thinking_tokens": 7},
            },
        },
        {"id": "msg", "model": "m", "content": [], "stop_reason": "refusal", "usage": {"output_tokens": 1}},
    ],
    "gemini": [
        {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"text": "They want the price.", "thought": True},
                            {"text": "Let me look."},
                            {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"},
                            {"functionCall": {"name": "wait", "args": {}}},
                        ],
                        "role": "model",
                    },
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 20, "totalTokenCount": 29},
            "modelVersion": "m",
            "responseId": "g1",
        },
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "It is 42."}, {"text": "", "thoughtSignature": "c2ln"}]},
                    "finishReason": "MAX_TOKENS",
                }
            ]
        },
    ],
}
"""Bodies with what a dialect sends back as it came."""
CASES = [(name, body) for name in NAMES for body in THOUGHTFUL[name]]
IDS = [f"{name}-{i}" for name in NAMES for i in range(len(THOUGHTFUL[name]))]


def understood(name: str, response: HttpResponse) -> tuple[Verdict, Reply | None]:
    verdict, reply, _ = DIALECTS[name].understand(response)
    return verdict, reply


def fields_of(reply: Reply | None) -> tuple[Any, ...]:
    """All of a reply, and what its usage does not know."""
    assert reply is not None
    return reply, reply.usage.unknown


def unstreamed(name: str, body: bytes) -> tuple[Any, ...]:
    return fields_of(understood(name, HttpResponse(status=200, headers={}, body=body))[1])


def read(name: str, pieces: Sequence[bytes], **end: Any) -> tuple[Any, ...]:
    return fields_of(understood(name, response_of(assembled(name, pieces, **end)))[1])


def cut_up(stream: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
REPLIES = st.builds(
    Reply,
    text=TEXTS,
    calls=st.lists(
        st.builds(
            ToolCall,
            id=st.text("ab1", max_size=3),
            name=st.sampled_from(["look", "wait"]),
            arguments=st.dictionaries(TEXTS, TEXTS, max_size=2).map(lambda value: orjson.dumps(value).decode()),
        ),
        max_size=3,
    ).map(tuple),
    finish=st.sampled_from(["stop", "length", "tool_calls"]),
    usage=st.builds(
        Usage,
        input=st.integers(10, 99),
        output=st.integers(10, 99),
        cached_read=st.integers(0, 3),
        cached_write=st.integers(0, 3),
        reasoning=st.integers(0, 9),
    ),
    model=st.just("m"),
    fingerprint=st.just("fp"),
    response_id=st.just("id"),
    reasoning=TEXTS,
)


@pytest.mark.parametrize("name", NAMES)
@given(
    reply=REPLIES,
    size=st.integers(1, 9),
    places=st.lists(st.integers(0, 10**6), max_size=12),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    comment=st.sampled_from([b"", b"keep-alive"]),
)
def test_a_streamed_reply_is_the_same_reply(
    name: str, reply: Reply, size: int, places: list[int], end: bytes, comment: bytes
) -> None:
    # A stream cannot tell two calls with one id from one that is repeated.
    assume(name != "openai_chat" or len({call.id for call in reply.calls}) == len(reply.calls))
    body = SERVED_DIALECTS[name].encode_reply(reply)
    stream = streamed(name, orjson.loads(body), every(size), end=end, comment=comment)
    assert read(name, cut_up(stream, places)) == unstreamed(name, body)


@pytest.mark.parametrize(("name", "body"), CASES, ids=IDS)
def test_thoughts_signatures_and_items_come_as_they_would_have(name: str, body: Any) -> None:
    expected = unstreamed(name, orjson.dumps(body))

    def come(way: tuple[int, int]) -> None:
        size, step = way
        stream = streamed(name, body, every(size))
        assert read(name, [stream[i : i + step] for i in range(0, len(stream), step)]) == expected

    check_each([(way, way) for way in product((1, 4, 1000), (1, 7, 10**6))], come)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_is_cut_is_never_a_reply_and_counts_as_billed(name: str) -> None:
    body = THOUGHTFUL[name][0]
    stream = streamed(name, body, every(8))
    expected = unstreamed(name, orjson.dumps(body))
    whole = 0
    for place in range(len(stream) + 1):
        for failure in ("", "reset", "truncated", "timeout"):
            came = assembled(name, [stream[:place]] if place else [], failure=failure, detail="why")
            verdict, reply = understood(name, response_of(came))
            if reply is not None:
                # Only the very end may be missing: the blank line after the mark, and what is in it beside the mark; or
                # the mark itself, if the connection was closed in good order.
                assert (reply, reply.usage.unknown) == expected
                mark = len(stream.rstrip().rsplit(b"\n\n", 1)[-1])
                assert len(stream) - place <= (mark + 2 if failure else mark + 4)
                whole += 1
            else:
                assert verdict.action == "retry"
                assert (verdict.outcome, verdict.billable) == (failure or "truncated", True)
    assert whole


@pytest.mark.parametrize("name", NAMES)
def test_usage_that_never_comes_is_unknown(name: str) -> None:
    body = {key: value for key, value in THOUGHTFUL[name][0].items() if key not in ("usage", "usageMetadata")}
    _, reply = understood(name, response_of(assembled(name, [streamed(name, body, every(3))])))
    assert reply is not None
    assert {"input", "output"} <= set(reply.usage.unknown)


def test_usage_before_the_end_is_not_that_of_the_reply() -> None:
    chat = sse(
        [
            (
                "",
                b'{"id":"c","model":"m","choices":[{"delta":{"content":"hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}',
            ),
            ("", b'{"choices":[{"delta":{"content":"!"},"finish_reason":"stop"}]}'),
            ("", b"[DONE]"),
        ]
    )
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 3}}}
    messages = sse([("message_start", orjson.dumps(start)), ("message_stop", b'{"type":"message_stop"}')])
    for name, stream in (("openai_chat", chat), ("anthropic_messages", messages)):
        _, reply = understood(name, response_of(assembled(name, [stream])))
        assert reply is not None
        assert "output" in reply.usage.unknown


BEGUN = {name: streamed(name, THOUGHTFUL[name][0], every(8)).split(b"\n\n") for name in NAMES}
ERRORS: list[tuple[str, bytes, int, str, str]] = [
    ("openai_chat", b'data: {"error":{"message":"Slow down","code":429}}', 429, "rate_limit", "Slow down"),
    ("openai_chat", b'data: {"error":{"message":"Lost it","type":"server_error"}}', 500, "server_error", "Lost it"),
    ("openai_chat", b'error: {"error":{"message":"Too long","code":400,"type":"exceed_context_size_error"}}',
     400, "context_length", "Too long"),
    ("openai_chat", b'error: {"message":"Lost it","code":500}', 500, "server_error", "Lost it"),
    ("openai_responses",
     b'event: error\ndata: {"type":"error","code":"rate_limit_exceeded","message":"Slow down","sequence_number":3}',
     429, "rate_limit", "Slow down"),
    ("openai_responses", b'event: error\ndata: {"type":"error","error":{"type":"server_error","message":"Lost it"}}',
     500, "server_error", "Lost it"),
    ("anthropic_messages",
     b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
     529, "overload", "Overloaded"),
    ("anthropic_messages", b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"Lost it"}}',
     500, "server_error", "Lost it"),
    ("gemini", b'data: {"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}', 503, "overload",
     "Overloaded"),
    ("gemini", b'data: {"error":{"code":500,"message":"Lost it","status":"INTERNAL"}}', 500, "server_error", "Lost it"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "event", "status", "kind", "words"), ERRORS)
def test_an_error_is_judged_by_its_status_before_the_model_began_and_breaks_the_reply_off_later(
    name: str, event: bytes, status: int, kind: str, words: str
) -> None:
    first = b'event: response.created\ndata: {"type":"response.created"}\n\n' if name == "openai_responses" else b""
    verdict, _ = understood(name, response_of(assembled(name, [first + b": hello\n\n" + event + b"\n\n"])))
    assert (verdict.kind, verdict.message, verdict.outcome) == (kind, words, str(status))
    verdict, _ = understood(name, response_of(assembled(name, [b"\n\n".join([*BEGUN[name][:4], event, b""])])))
    assert (verdict.kind, verdict.message, verdict.outcome) == (kind, words, "broken_off")
    assert verdict.billable


def test_a_response_that_failed_is_broken_off_with_its_words() -> None:
    body = {"status": "failed", "output": [], "error": {"code": "server_error", "message": "Lost it"}}
    verdict, _ = understood(
        "openai_responses", response_of(assembled("openai_responses", [streamed("openai_responses", body)]))
    )
    assert (verdict.kind, verdict.outcome, verdict.message) == ("server_error", "broken_off", "Lost it")


def test_a_choice_that_ends_with_an_error_is_broken_off() -> None:
    last = {"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"code": "server_error", "message": "Gone"}}
    verdict, _ = understood("openai_chat", response_of(assembled("openai_chat", [sse([("", orjson.dumps(last))])])))
    assert (verdict.kind, verdict.outcome, verdict.message) == ("server_error", "broken_off", "Gone")


def test_an_error_that_states_no_status_may_have_been_billed() -> None:
    verdict, _ = understood("openai_chat", response_of(assembled("openai_chat", [b'data: {"error":"Oh no"}\n\n'])))
    assert (verdict.kind, verdict.outcome, verdict.message) == ("server_error", "broken_off", "Oh no")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 429}, 429),
        ({"code": "503"}, 503),
        ({"code": 200, "type": "overloaded_error"}, 529),
        ({"status": "RESOURCE_EXHAUSTED"}, 429),
        ({"type": "invalid_request_error"}, 400),
        ({"code": ["rate_limit"]}, 0),
        ({"type": "strange"}, 0),
    ],
)
def test_an_error_states_its_status_as_a_number_or_a_word(error: dict[str, Any], status: int) -> None:
    assert stated_status(error) == status


LIES: list[tuple[str, bytes]] = [
    ("openai_chat", b"data: [DONE]\n\n"),
    ("openai_chat", b"data: <html>\n\n"),
    ("openai_chat", b'data: {"choices":[]}\n\ndata: [DONE]\n\n'),
    ("openai_responses", b'event: response.completed\ndata: {"type":"response.completed","response":7}\n\n'),
    ("openai_responses", b"event: response.completed\ndata: 7\n\n"),
    ("anthropic_messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
    ("anthropic_messages", b'data: {"type":"content_block_delta","index":0,"content":[]}\n\n'),
    ("anthropic_messages", b'data: {"type":"message_start"}\n\ndata: {"type":"message_start"}\n\n'),
    ("anthropic_messages", b'data: {"type":"message_start"}\n\ndata: {"type":"content_block_start","index":"0"}\n\n'),
    ("anthropic_messages", b'data: {"type":"message_delta"}\n\n'),
    ("gemini", b"data: nothing\n\n"),
]


@pytest.mark.parametrize(("name", "stream"), LIES)
def test_events_in_an_impossible_order_are_no_reply_and_count_as_billed(name: str, stream: bytes) -> None:
    verdict, reply = understood(name, response_of(assembled(name, [stream])))
    assert reply is None
    assert (verdict.kind, verdict.billable) == ("unreadable", True)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_whatever_comes_is_judged(name: str, data: st.DataObject) -> None:
    events = streamed(name, THOUGHTFUL[name][0], every(8)).split(b"\n\n")
    shuffled = data.draw(st.permutations(events))
    spoilt = b"\n\n".join(shuffled).replace(
        data.draw(st.sampled_from([b'"index"', b'"text"', b'"delta"', b"{}", b'"a"', b"0", b"data"])),
        data.draw(st.sampled_from([b'"index"', b"null", b"[]", b'{"type":[]}', b"\xff", b"-1", b'"\\ud800"', b""])),
    )
    for failure in ("", "reset"):
        verdict, reply = understood(name, response_of(assembled(name, [spoilt], failure=failure)))
        assert reply is not None or verdict.action != "accept"


def test_text_that_is_not_utf_8_becomes_replacement_characters() -> None:
    body = THOUGHTFUL["openai_chat"][2]
    body = {**body, "choices": [{"finish_reason": "stop", "message": {"content": "caf@"}}]}
    stream = streamed("openai_chat", body).replace(b"@", b"\xe9")
    _, reply = understood("openai_chat", response_of(assembled("openai_chat", [stream])))
    assert reply is not None
    assert reply.text == "caf\ufffd"


def test_a_character_that_was_cut_in_two_is_whole_again() -> None:
    halves = [b'{"choices":[{"delta":{"content":"\\ud83d"}}]}', b'{"choices":[{"delta":{"content":"\\ude00"}}]}']
    done = [("", b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'), ("", b"[DONE]")]
    stream = sse([*(("", half) for half in halves), *done])
    _, reply = understood("openai_chat", response_of(assembled("openai_chat", [stream])))
    assert reply is not None
    assert reply.text == "\U0001f600"


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[{"delta":{"content":"@"}}]}',
        b'{"choices":[{"delta":{"reasoning_content":"@"},"finish_reason":null}]}',
        b'{"choices": [{"delta": {"content": "@"}, "index": 0}], "more": {"content": "none"}}',
        b'{"more":{"content":"@"},"choices":[{"delta":{"content":"@"}}]}',
        b'{"choices":[{"delta":{"content":"@"}}],"usage":{"prompt_tokens":1}}',
        b'{"choices":[{"delta":{"content":"@","role":"assistant"}}]}',
    ],
)
def test_events_that_differ_in_a_piece_alone_are_read_as_they_would_be_one_by_one(event: bytes) -> None:
    pieces = ["a", 'say \\"hi\\"', "\\n", "caf\u00e9", "\\u00e9", "{}", "", "content", "x" * 50, '\\"', "b"]
    first = b'{"id":"c","model":"m","choices":[{"delta":{"role":"assistant"}}]}'
    last = b'{"choices":[{"delta":{},"finish_reason":"stop"}]}'
    texts = [event.replace(b"@", piece.encode()) for piece in pieces * 2]
    _, reply = understood(
        "openai_chat",
        response_of(assembled("openai_chat", [sse([("", one) for one in (first, *texts, last, b"[DONE]")])])),
    )
    assert reply is not None
    expected = "".join(orjson.loads(f'"{piece}"') for piece in pieces * 2)
    assert (reply.text or reply.reasoning) == expected


SHAPES: dict[str, list[bytes]] = {
    "openai_chat": [
        b'data: {"id":"c","model":"m","choices":[{"delta":{"content":"@"}}]}',
        b'data: {"id":"c","model":"m","choices":[{"delta":{"content":"@"}}],"obfuscation":"#"}',
        b'data: {"id":"c","model":"m","choices":[{"delta":{"reasoning":"@"},"finish_reason":null}]}',
        b'data: {"id":"c","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]}}]}',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"@"}}]}}]}',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"@"}}]}}]}',
        b'event: error\ndata: {"id":"c","model":"m","choices":[{"delta":{"content":"@"}}]}',
    ],
    "openai_responses": [
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"@","obfuscation":"#"}',
        b'data: {"type":"response.function_call_arguments.delta","delta":"@"}',
        b'data: {"type":"response.output_item.done","item":{"type":"message"}}',
        b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"@"}}',
    ],
    "anthropic_messages": [
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}}',
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"@"}}',
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}~}',
        b'event: ping\ndata: {"type":"ping"}',
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text"}}',
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":{}}}',
    ],
    "gemini": [b'data: {"candidates":[{"content":{"parts":[{"text":"@"}]}}]}'],
}
"""Events as they come in rows; @ stands for a piece, # and ~ for a padding."""
ODD = [
    b"a",
    b"word ",
    b"",
    b'\\"',
    b"\\n",
    b"\\\\",
    b"\\",
    b'"',
    b'","',
    b"\\u00e9",
    b"\\ud83d",
    b"\\ude00",
    b"\\u12",
    b"34",
]
ODD += [b"\\x", b"\xc3", b"\xa9", "\u00e9".encode(), b"\t", b"\0", b"\n", b"\n\n", b"{}", b"\r"]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_events_taken_at_once_are_as_if_each_had_been_read(name: str, data: st.DataObject) -> None:
    starts = {"anthropic_messages": [SHAPES["anthropic_messages"][place] for place in (4, 3)]}
    stream = b"".join(event + b"\n\n" for event in starts.get(name, []))
    for _ in range(data.draw(st.integers(1, 4))):
        shape = data.draw(st.sampled_from(SHAPES[name]))
        plain = data.draw(st.booleans())
        for piece in data.draw(st.lists(st.sampled_from(ODD[:5] if plain else ODD), max_size=9)):
            padded = shape.replace(b"#", b"x" * (len(stream) % 7)).replace(b"~", b" " * (len(stream) % 7))
            stream += padded.replace(b"@", piece) + b"\n\n"
    ends = {
        "openai_chat": b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
        "openai_responses": SHAPES["openai_responses"][3] + b"\n\n",
        "anthropic_messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
        "gemini": b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n',
    }
    stream += ends[name]
    cap = data.draw(st.sampled_from([200, 2**20]))
    found = assembled(name, [stream], cap=cap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alike, "skim", lambda _, block, __: (len(block), 0, 0))
        patch.setattr(ResponsesAssembler, "skim", lambda _, block, __: (len(block), 0))
        assert found == assembled(name, [stream], cap=cap)


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_most_events_of_a_reply_are_taken_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[bytes]()
    for module in (openai_chat_stream, openai_responses, anthropic_stream):
        monkeypatch.setattr(module, "loads_event", lambda event: read.append(event) or loads_event(event))
    message = {
        "content": "word " * 50,
        "reasoning": "word " * 50,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": "' + "1" * 300}}],
    }
    bodies: dict[str, Any] = {
        "openai_chat": {"id": "c", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}]},
        "openai_responses": {
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "word " * 100}]}]
        },
        "anthropic_messages": {
            "content": [
                {"type": "thinking", "thinking": "word " * 50, "signature": "x"},
                {"type": "text", "text": "word " * 50},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "1" * 300}},
            ]
        },
    }
    stream = streamed(name, bodies[name], every(5))
    events = stream.count(b"\n\n")
    for padded in (False, name == "openai_chat"):
        if padded:
            rows = stream.split(b"}\n\n")
            stream = (
                b"".join(row + b',"obfuscation":"%b"}\n\n' % (b"x" * (len(row) % 7)) for row in rows[:-1]) + rows[-1]
            )
        read.clear()
        assert assembled(name, [stream]).failure == ""
        assert 0 < len(read) < events / 5


@pytest.mark.parametrize("name", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_piece_that_holds_the_end_is_not_kept_waiting(name: str, padded: bool) -> None:
    dialect = DIALECTS[name]
    assert dialect.stream is not None
    events = streamed(name, THOUGHTFUL[name][0], every(2)).split(b"\n\n")[:-1]
    if padded:
        form = b'%b,"obfuscation":"%b"}' if name == "openai_chat" else b"%b%b}"
        fill = b"x" if name == "openai_chat" else b" "
        events = [
            form % (event[:-1], fill * (place % 5)) if event.endswith(b"}") else event
            for place, event in enumerate(events)
        ]
    for first in range(1, len(events)):
        stream = ReplyStream(dialect.stream, 2**20)
        for part in (events[:first], events[first:]):
            assert not stream.over
            stream.feed(b"\n\n".join(part) + b"\n\n")
        assert stream.done
        assert stream.end() == assembled(name, [b"\n\n".join(events) + b"\n\n"])


def call_stream(*pieces: dict[str, Any]) -> bytes:
    """Calls in pieces `{index, id, name, arguments}`, an event for each, then the end."""
    events: list[dict[str, Any]] = []
    for piece in pieces:
        function = {name: piece[name] for name in ("name", "arguments") if name in piece}
        call = {name: piece[name] for name in ("index", "id") if name in piece} | {"function": function}
        events.append({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    end: dict[str, Any] = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9},
    }
    return sse([("", orjson.dumps({"id": "c", "model": "m", **event})) for event in [*events, end]])


def piece(index: int | None, own: str, name: str = "", arguments: str = "") -> dict[str, Any]:
    given = {"index": index, "id": own, "name": name, "arguments": arguments}
    return {field: value for field, value in given.items() if value not in (None, "")}


A, B = '{"at": "café"}', '{"n": 1}'
CALL_STREAMS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = {
    "a new id in every piece": (
        [piece(0, "a", "look"), piece(0, "b", arguments=A[:5]), piece(0, "c", arguments=A[5:])],
        [("a", "look", A)],
    ),
    "a new id in every piece of two": (
        [
            *(piece(0, "a", "look"), piece(0, "b", arguments=A), piece(1, "c", "wait"), piece(1, "d", arguments=B[:3])),
            piece(1, "e", arguments=B[3:]),
        ],
        [("a", "look", A), ("c", "wait", B)],
    ),
    "the same place too": (
        [piece(0, "a", "look"), piece(0, "b", arguments=A), piece(0, "c", "look"), piece(0, "d", arguments=B)],
        [("a", "look", A), ("c", "look", B)],
    ),
    "its name in every piece too": (
        [piece(0, "a", "look", A[:4]), piece(0, "b", "look", A[4:])],
        [("a", "look", A)],
    ),
    "a new place in every piece": (
        [piece(0, "a", "look"), piece(1, "b", arguments=A[:5]), piece(2, "c", arguments=A[5:])],
        [("a", "look", A)],
    ),
    "one id, name and arguments apart": ([piece(0, "a", "look"), piece(1, "a", arguments=A)], [("a", "look", A)]),
    "one id, the rest without": (
        [piece(0, "a", "look"), piece(1, "a", arguments=A[:5]), piece(1, "", arguments=A[5:])],
        [("a", "look", A)],
    ),
    "one id, twice": ([piece(0, "a", "look", A), piece(1, "a", "look", A)], [("a", "look", A)]),
    "whole at the end": (
        [piece(0, "a", "look", A[:5]), piece(0, "", arguments=A[5:]), piece(0, "a", "look", A)],
        [("a", "look", A)],
    ),
    "whole at the end without an id": ([piece(0, "a", "look", A[:5]), piece(0, "", "look", A)], [("a", "look", A)]),
    "in each piece all that came so far": (
        [piece(0, "a", "look", A[:4]), piece(0, "a", "look", A[:9]), piece(0, "", arguments=A)],
        [("a", "look", A)],
    ),
    "both whole at the end": (
        [piece(0, "a", "look", A), piece(1, "b", "wait", B), piece(0, "a", "look", A), piece(1, "b", "wait", B)],
        [("a", "look", A), ("b", "wait", B)],
    ),
    "one place, no ids, twice the same": (
        [piece(None, "", "look", A), piece(None, "", "wait", B)],
        [("", "look", A), ("", "wait", B)],
    ),
    "two equal calls": (
        [piece(0, "a", "look", A), piece(1, "b", "look", A)],
        [("a", "look", A), ("b", "look", A)],
    ),
    "two without arguments": ([piece(0, "a", "look"), piece(0, "b", "look")], [("a", "look", ""), ("b", "look", "")]),
    "a name that comes late": ([piece(0, "a"), piece(0, "", "look", A)], [("a", "look", A)]),
}


def test_a_call_is_one_call_however_its_pieces_are_numbered() -> None:
    def check(case: tuple[list[dict[str, Any]], list[tuple[str, str, str]]]) -> None:
        pieces, expected = case
        for end in (b"", b"data: [DONE]\n\n"):
            came = assembled("openai_chat", [call_stream(*pieces) + end])
            (choice,) = orjson.loads(came.body)["choices"]
            calls = choice["message"]["tool_calls"]
            assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == expected

    check_each(CALL_STREAMS.items(), check)


def test_of_two_statements_of_usage_the_larger_counts() -> None:
    def chat(*statements: Any) -> bytes:
        chunks = [{"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "id": "c", "model": "m"}]
        chunks += [{"choices": [], "usage": usage} for usage in statements]
        return sse([("", orjson.dumps(chunk)) for chunk in chunks] + [("", b"[DONE]")])

    def messages(first: Any, second: Any) -> bytes:
        events = [
            {"type": "message_start", "message": {"content": [], "usage": first}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": second},
            {"type": "message_stop"},
        ]
        return sse([(event["type"], orjson.dumps(event)) for event in events])

    def gemini(*statements: Any) -> bytes:
        finished = {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}
        return sse([("", orjson.dumps(finished | {"usageMetadata": usage})) for usage in statements])

    small, great = {"prompt_tokens": 9, "completion_tokens": 4}, {"prompt_tokens": 9, "completion_tokens": 40}
    plain = {"input_tokens": 9, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    cached = {"input_tokens": 2, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0, "output_tokens": 40}
    few, many = ({"promptTokenCount": 9, "candidatesTokenCount": 4 * n, "thoughtsTokenCount": 0} for n in (1, 10))
    cases: dict[str, tuple[str, bytes]] = {
        "the first": ("openai_chat", chat(great, small)),
        "the second": ("openai_chat", chat(small, great)),
        "nothing after it": ("openai_chat", chat(great, {"prompt_tokens": 0, "completion_tokens": 0})),
        "a start": ("anthropic_messages", messages(plain, {"output_tokens": 40})),
        "a start, then nothing": ("anthropic_messages", messages(plain, {"input_tokens": 0, "output_tokens": 40})),
        "nothing, then an end": ("anthropic_messages", messages({"input_tokens": 0}, plain | {"output_tokens": 40})),
        "what was cached, later": ("anthropic_messages", messages(plain, cached)),
        "the first, of gemini": ("gemini", gemini(many, few)),
        "the second, of gemini": ("gemini", gemini(few, many)),
    }

    def check(case: tuple[str, bytes]) -> None:
        name, stream = case
        _, reply = understood(name, response_of(assembled(name, [stream])))
        assert reply is not None
        assert (reply.usage.input, reply.usage.output, "input" in reply.usage.unknown) == (9, 40, False)

    check_each(cases.items(), check)


def test_a_stream_without_its_mark_is_whole_if_finish_and_usage_came_and_it_was_closed_in_good_order() -> None:
    for name in ("openai_chat", "anthropic_messages"):
        body = THOUGHTFUL[name][0]
        stream = streamed(name, body, every(8)).rstrip().rsplit(b"\n\n", 1)[0]
        assert understood(name, response_of(assembled(name, [stream])))[1] == unstreamed(name, orjson.dumps(body))[0]
        bare = {field: value for field, value in body.items() if field != "usage"}
        for cut, failure in ((stream, "reset"), (stream.rsplit(b"\n\n", 1)[0], "")):
            assert assembled(name, [cut], failure=failure).failure == (failure or "truncated")
        if name == "openai_chat":
            cut = streamed(name, bare, every(8)).rstrip().rsplit(b"\n\n", 1)[0]
            assert assembled(name, [cut]).failure == "truncated"


def test_calls_with_one_place_and_different_ids_are_different_calls() -> None:
    def call(own: str | None, arguments: str, **place: int) -> tuple[str, bytes]:
        piece = {"id": own, "function": {"name": "f" if own else None, "arguments": arguments}, **place}
        return "", orjson.dumps({"choices": [{"delta": {"tool_calls": [piece]}}]})

    done = [("", b'{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}'), ("", b"[DONE]")]
    same_place = [call("a", "{}", index=0), call("b", '{"x":1}', index=0)]
    repeated = [
        call("a", "{", index=0),
        call("a", "}", index=0),
        call("b", '{"x":', index=1),
        call(None, "1}", index=1),
    ]
    no_place = [call("a", "{"), call(None, "}"), call("b", '{"x":1}')]
    for events in (same_place, repeated, no_place):
        _, reply = understood("openai_chat", response_of(assembled("openai_chat", [sse([*events, *done])])))
        assert reply is not None
        assert [(one.id, one.name, one.arguments) for one in reply.calls] == [("a", "f", "{}"), ("b", "f", '{"x":1}')]


def test_a_call_that_was_cut_keeps_its_text() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"x": [1,'}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        {"type": "message_stop"},
    ]
    stream = sse([(event["type"], orjson.dumps(event)) for event in events])
    _, reply = understood("anthropic_messages", response_of(assembled("anthropic_messages", [stream])))
    assert reply is not None
    assert (reply.finish, reply.calls[0].arguments) == ("length", '{"_raw":"{\\"x\\": [1,"}')


def test_items_of_a_response_without_output_are_those_that_ended() -> None:
    body = THOUGHTFUL["openai_responses"][0]
    events = list(EVENTS["openai_responses"](body, every(5)))
    bare = orjson.dumps({"type": "response.completed", "response": {**body, "output": []}})
    assert read("openai_responses", [sse([*events[:-1], ("response.completed", bare)])]) == unstreamed(
        "openai_responses", orjson.dumps(body)
    )
    # Some servers give no names.
    assert read("openai_responses", [sse([("", data) for _, data in events])]) == unstreamed(
        "openai_responses", orjson.dumps(body)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_bounded(name: str) -> None:
    cap = 20_000
    dialect = DIALECTS[name]
    assert dialect.stream is not None
    first = streamed(name, THOUGHTFUL[name][0], every(8))
    for endless in (
        b"x" * 1000,
        b": still there\n\n",
        b"data: \n",
        BEGUN[name][-3 if name == "openai_chat" else 3] + b"\n\n",
    ):
        stream, fed = ReplyStream(dialect.stream, cap), 0
        stream.feed(first[: len(first) // 4])
        while not stream.over:
            stream.feed(endless)
            fed += len(endless)
            assert fed <= (RAW_CAP + 1) * cap
        came = stream.end()
        verdict, reply = understood(name, response_of(came))
        assert reply is None
        assert verdict.outcome in ("oversize", "unreadable")
        assert verdict.billable


def test_an_assembled_body_has_the_bound_of_bodies() -> None:
    body = {**THOUGHTFUL["openai_chat"][1]}
    stream = streamed(
        "openai_chat", {**body, "choices": [{"finish_reason": "stop", "message": {"content": "\x01" * 4000}}]}
    )
    assert assembled("openai_chat", [stream], cap=30_000).failure == ""
    assert assembled("openai_chat", [stream], cap=20_000).failure == "oversize"


@pytest.mark.parametrize("name", NAMES)
def test_the_work_grows_with_the_stream_and_no_faster(name: str) -> None:
    def make(size: int) -> list[bytes]:
        body = orjson.loads(orjson.dumps(THOUGHTFUL[name][0]).replace(b"Let me look.", b"a" * (size // 50)))
        stream = streamed(name, body, every(4))
        return [stream[i : i + 100] for i in range(0, len(stream), 100)]

    assert_linear(make, lambda pieces: assembled(name, pieces, cap=2**26))


def events_of(block: bytes) -> list[tuple[bytes, bytes]]:
    """(name, data) of each event of a block."""
    found, at = [], 0
    while at < len(block):
        name, data, at = next_event(block, at)
        found += [(name, data)] if data is not None else []
    return found


def test_a_giant_event_is_not_searched_again_for_each_piece() -> None:
    def work(size: int) -> None:
        parser = EventParser()
        for _ in range(size // 8):
            assert not parser.feed(b"data: x" * 10)
        assert len(events_of(parser.feed(b"\n\n"))) == 1

    assert_linear(lambda size: size, work)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"data:a\r\n\r\ndata: b\r\rdata:  c\n\n", [(b"", b"a"), (b"", b"b"), (b"", b" c")]),
        (b"event: e\ndata: a\ndata: b\nid: 7\nretry: 1\n\n", [(b"e", b"a\nb")]),
        (b": comment\n\n\n\n:\ndata\n\n", [(b"", b"")]),
        (b"event: alone\n\nunknown: x\n\n", []),
        (b"error: {}\n\n", [(b"error", b"{}")]),
        (b"data: a", [(b"", b"a")]),
    ],
)
def test_events_are_those_of_the_standard(stream: bytes, events: list[tuple[bytes, bytes]]) -> None:
    for step in (1, 2, 3, len(stream)):
        parser = EventParser()
        found = [event for i in range(0, len(stream), step) for event in events_of(parser.feed(stream[i : i + step]))]
        assert found + events_of(parser.end()) == events


@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [
        ("text/event-stream; charset=utf-8", b"", True),
        ("text/event-stream", b"{", True),
        ("text/plain", b": hello\n\n", True),
        ("", b"\ndata: {}", True),
        ("application/json", b'\n{"data": 1}', False),
        ("", b"[]", False),
        ("text/html", b"<html>", False),
    ],
)
def test_a_stream_is_known_by_its_type_or_by_its_start(kind: str, start: bytes, expected: bool) -> None:
    assert is_stream(kind, start) is expected


@pytest.mark.parametrize(
    ("name", "path", "start"),
    [
        ("openai_chat", "/chat/completions", b'{"stream":true,"stream_options":{"include_usage":true},"model":'),
        ("openai_responses", "/responses", b'{"stream":true,"model":'),
        ("anthropic_messages", "/messages", b'{"stream":true,"model":'),
        ("gemini", "/models/m:streamGenerateContent?alt=sse", b'{"generationConfig":'),
    ],
)
def test_a_request_asks_for_a_stream_and_is_otherwise_the_same(name: str, path: str, start: bytes) -> None:
    dialect = DIALECTS[name]
    form = dialect.stream_form(Quirks())
    assert form is not None
    plain = dialect.body(dialect.head("m", Sampling(), Quirks()), b"", [], None)
    asked = form.body(plain)
    assert dialect.stream_path_of("m") == path
    assert asked.startswith(start)
    whole = orjson.loads(asked)
    assert {key: value for key, value in whole.items() if key not in ("stream", "stream_options")} == orjson.loads(
        plain
    )


def test_a_model_may_refuse_streams_or_their_options() -> None:
    chat = DIALECTS["openai_chat"]
    form = chat.stream_form(Quirks(refuses=frozenset({"stream_options"})))
    assert form is not None
    assert form.body(b'{"model":"m"}') == b'{"stream":true,"model":"m"}'
    assert chat.stream_form(Quirks(refuses=frozenset({"stream"}))) is None


def test_every_outcome_of_a_broken_stream_counts_as_billed_unless_a_provider_says_otherwise() -> None:
    for outcome in ("timeout", "reset", "truncated", "oversize", "unreadable", "broken_off", "cancelled"):
        assert counts_as_billed(outcome, {})
        assert not counts_as_billed(outcome, {outcome: False})
