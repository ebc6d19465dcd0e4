from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT as SERVED
from evalkit.wire.dialect import MalformedReplyError, Quirks
from evalkit.wire.http import HttpResponse
from evalkit.wire.openai_chat import OPENAI_CHAT as CHAT

LOOKUP = Tool(name="lookup", description="Look a key up.", parameters={"type": "object", "properties": {}})

MESSAGES = [
    (Message(role="system", text="Be brief."), b'{"role":"system","content":"Be brief."}'),
    (
        Message(role="user", text='Gr\u00fc\u00dfe "x"\n'),
        '{"role":"user","content":"Gr\u00fc\u00dfe \\"x\\"\\n"}'.encode(),
    ),
    (Message(role="assistant", text="No."), b'{"role":"assistant","content":"No."}'),
    (Message(role="assistant", text="(no content)"), b'{"role":"assistant","content":"(no content)"}'),
    (
        Message(role="assistant", calls=(ToolCall(id="c1", name="lookup", arguments='{"k":1}'),)),
        b'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",'
        b'"function":{"name":"lookup","arguments":"{\\"k\\":1}"}}]}',
    ),
    (
        Message(role="assistant", text="So:", calls=(ToolCall(id="a", name="f", arguments="{oops"),)),
        b'{"role":"assistant","content":"So:","tool_calls":[{"id":"a","type":"function",'
        b'"function":{"name":"f","arguments":"{oops"}}]}',
    ),
    (Message(role="tool", text="42", call_id="c1"), b'{"role":"tool","tool_call_id":"c1","content":"42"}'),
]
"""(value, bytes): what a message is on the wire, and what a server makes of those bytes."""


@pytest.mark.parametrize(("message", "data"), MESSAGES)
def test_a_message_has_its_bytes_and_is_read_back(message: Message, data: bytes) -> None:
    assert CHAT.encode_message(message) == data
    head = CHAT.head("m", Sampling(), Quirks())
    _, request = SERVED.decode_request(CHAT.body(head, b"", [data], None))
    assert request.messages == (message,)


REPLIES = [
    (
        Reply(
            text="The answer is 42.", usage=Usage(input=11, output=5), model="m-1", fingerprint="fp", response_id="r1"
        ),
        b'{"id":"r1","object":"chat.completion","created":0,"model":"m-1","system_fingerprint":"fp","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"The answer is 42."},"finish_reason":"stop"}],"usage":{'
        b'"prompt_tokens":11,"completion_tokens":5,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":0}}}',
    ),
    (
        Reply(
            calls=(
                ToolCall(id="c1", name="lookup", arguments='{"k":1}'),
                ToolCall(id="c2", name="lookup", arguments=""),
            ),
            finish="tool_calls",
            usage=Usage(input=100, output=30, cached_read=64, cached_write=30, reasoning=20),
        ),
        b'{"id":"","object":"chat.completion","created":0,"model":"","system_fingerprint":null,"choices":[{"index":0,'
        b'"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":'
        b'"lookup","arguments":"{\\"k\\":1}"}},{"id":"c2","type":"function","function":{"name":"lookup","arguments":""}}]},'
        b'"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":100,"completion_tokens":30,"total_tokens":130,'
        b'"prompt_tokens_details":{"cached_tokens":64,"cache_write_tokens":30},"completion_tokens_details":{"reasoning_tokens":20}}}',
    ),
    (
        Reply(text="I will not.", finish="refusal", usage=Usage(input=3, output=4), response_id="r3"),
        b'{"id":"r3","object":"chat.completion","created":0,"model":"","system_fingerprint":null,"choices":[{"index":0,'
        b'"message":{"role":"assistant","content":null,"refusal":"I will not."},"finish_reason":"stop"}],"usage":'
        b'{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":0}}}',
    ),
    (
        Reply(text="and so", finish="length", usage=Usage(input=1, output=2)),
        b'{"id":"","object":"chat.completion","created":0,"model":"","system_fingerprint":null,"choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"and so"},"finish_reason":"length"}],"usage":{"prompt_tokens":1,'
        b'"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":0}}}',
    ),
    (
        Reply(finish="content_filter", usage=Usage(input=3, output=1)),
        b'{"id":"","object":"chat.completion","created":0,"model":"","system_fingerprint":null,"choices":[{"index":0,'
        b'"message":{"role":"assistant","content":""},"finish_reason":"content_filter"}],"usage":{"prompt_tokens":3,'
        b'"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":0}}}',
    ),
]


@pytest.mark.parametrize(("reply", "body"), REPLIES)
def test_a_reply_has_its_bytes_in_both_directions(reply: Reply, body: bytes) -> None:
    assert SERVED.encode_reply(reply) == body
    assert CHAT.decode(body) == reply


HEADS: list[tuple[Sampling, Quirks, dict[str, object]]] = [
    (Sampling(), Quirks(), {"max_tokens": 4096, "tool_choice": "auto"}),
    (
        Sampling(temperature=1.0, max_tokens=99, tool_choice="required", top_p=0.9, effort="low", parallel_calls=False),
        Quirks(),
        {
            "temperature": 1.0,
            "max_tokens": 99,
            "top_p": 0.9,
            "reasoning_effort": "low",
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
    (
        Sampling(temperature=1.0, max_tokens=99, parallel_calls=True, effort="high"),
        Quirks(
            max_tokens_field="max_completion_tokens",
            refuses=frozenset({"temperature", "tool_choice", "parallel_calls", "effort"}),
        ),
        {"max_completion_tokens": 99},
    ),
    (Sampling(extra='{"top_k":40,"provider":{"order":["a"]}}'), Quirks(), {"max_tokens": 4096, "tool_choice": "auto"}),
]


@pytest.mark.parametrize(("sampling", "quirks", "fields"), HEADS)
def test_a_body_holds_what_was_asked_for_and_nothing_else(
    sampling: Sampling, quirks: Quirks, fields: Mapping[str, object]
) -> None:
    head, tools = CHAT.head("m", sampling, quirks), CHAT.encode_tools([LOOKUP])
    body = orjson.loads(CHAT.body(head, tools, [MESSAGES[0][1], MESSAGES[1][1]], 7))
    extra = orjson.loads(sampling.extra) if sampling.extra else {}
    said = orjson.loads(b"[%b,%b]" % (MESSAGES[0][1], MESSAGES[1][1]))
    assert body == {"model": "m", "messages": said, "tools": orjson.loads(tools), "seed": 7, **fields, **extra}


def test_without_tools_nothing_about_tools_is_sent() -> None:
    head = CHAT.head("m", Sampling(tool_choice="required", parallel_calls=False), Quirks())
    body = orjson.loads(CHAT.body(head, CHAT.encode_tools(()), [MESSAGES[0][1]], None))
    assert body.keys() == {"model", "max_tokens", "messages"}


def test_what_a_client_sends_is_what_a_server_reads() -> None:
    sampling = Sampling(
        temperature=0.5, max_tokens=12, tool_choice="required", parallel_calls=False, top_p=0.5, effort="x"
    )
    head = CHAT.head("m", sampling, Quirks())
    data = [one for _, one in MESSAGES]
    model, request = SERVED.decode_request(CHAT.body(head, CHAT.encode_tools([LOOKUP]), data, 5))
    assert (model, request.seed, request.sampling, request.tools) == ("m", 5, sampling, (LOOKUP,))
    assert request.messages == tuple(message for message, _ in MESSAGES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]}, "tool_calls"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\]"),
        ({"seed": "x"}, "seed"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_a_served_request_that_is_wrong_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | change
    with pytest.raises(ValueError, match=words):
        SERVED.decode_request(orjson.dumps(body))


def reply_of(message: object, **more: object) -> Reply:
    return CHAT.decode(orjson.dumps({"choices": [{"message": message}], **more}))


def test_missing_and_repeated_call_ids_become_places() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    reply = reply_of({"tool_calls": [call, call | {"id": "x"}, call | {"id": "x"}, call | {"id": 5}]})
    assert [one.id for one in reply.calls] == ["call_0", "x", "call_2", "call_3"]
    assert reply.finish == "tool_calls"


def test_arguments_that_come_as_an_object_become_text() -> None:
    call = {"id": "x", "function": {"name": "f", "arguments": {"k": [1, "\u00e9"]}}}
    assert reply_of({"tool_calls": [call]}).calls[0].arguments == '{"k":[1,"\u00e9"]}'
    nothing = {"id": "x", "function": {"name": "f", "arguments": None}}
    assert reply_of({"tool_calls": [nothing]}).calls[0].arguments == ""


def test_empty_arguments_are_sent_back_as_an_empty_object() -> None:
    sent = orjson.loads(
        CHAT.encode_message(Message(role="assistant", calls=(ToolCall(id="a", name="f", arguments=""),)))
    )
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


def test_text_in_parts_is_joined() -> None:
    reply = reply_of({"content": [{"type": "text", "text": "a"}, {"type": "image"}, 5, {"type": "text", "text": "b"}]})
    assert reply.text == "ab"


def test_what_providers_want_back_goes_back_and_the_rest_does_not() -> None:
    signed = {"id": "x", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {"sig": "abc"}}}
    details = [{"type": "reasoning.encrypted", "data": "zzz"}]
    message = {
        "content": "hm",
        "tool_calls": [signed],
        "reasoning_content": "think",
        "reasoning_details": details,
        "annotations": [1],
    }
    sent = orjson.loads(CHAT.encode_message(reply_of(message).message()))
    assert sent["reasoning_details"] == details
    assert sent["reasoning_content"] == "think"
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"sig": "abc"}}
    assert "annotations" not in sent
    answer = reply_of({"content": "done", "reasoning_content": "think"})
    assert orjson.loads(CHAT.encode_message(answer.message())) == {"role": "assistant", "content": "done"}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ([], Usage()),
        ({"prompt_tokens": -5, "completion_tokens": "many"}, Usage()),
        ({"prompt_tokens": 8.0, "completion_tokens": True}, Usage(input=8)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(input=14, output=2, cached_read=9),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(input=5),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
            Usage(input=9, output=1, cached_read=4),
        ),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 1,
                "cache_read_input_tokens": 8,
                "cache_creation_input_tokens": 2,
            },
            Usage(input=13, output=1, cached_read=8, cached_write=2),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 4}, Usage(input=9, output=1, cached_read=4)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "reasoning_tokens": 3}, Usage(input=5)),
        ({"prompt_tokens": 2**63, "completion_tokens": 1}, Usage(output=1)),
    ],
)
def test_usage_is_made_consistent(usage: object, expected: Usage) -> None:
    assert reply_of({"content": "x"}, usage=usage).usage == expected


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"5",
        b"null",
        b"{}",
        b'"choices"',
        b'{"choices":[]}',
        b'{"choices":{}}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":[]}]}',
        b'{"choices":[{"message":null}]}',
        b'{"error":{"message":"upstream"}}',
    ],
)
def test_a_body_without_a_message_is_no_reply(body: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        CHAT.decode(body)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "content": junk,
            "tool_calls": junk
            | st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "id": junk,
                        "extra_content": junk,
                        "function": junk | st.fixed_dictionaries({}, optional={"name": junk, "arguments": junk}),
                    },
                ),
                max_size=3,
            ),
            "refusal": junk,
            "reasoning_content": junk,
            "reasoning_details": junk,
        },
    ),
    junk,
    junk,
    junk,
)
def test_any_message_is_a_reply_that_can_be_sent_back(message: object, finish: Any, usage: Any, model: Any) -> None:
    reply = CHAT.read({"choices": [{"message": message, "finish_reason": finish}], "usage": usage, "model": model})
    assert reply.finish
    assert reply.usage.cached_read <= reply.usage.input
    assert reply.usage.reasoning <= reply.usage.output
    assert orjson.loads(CHAT.encode_message(reply.message()))["role"] == "assistant"


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(max_tokens=0), "max_tokens"),
        (Sampling(temperature=float("nan")), "temperature"),
        (Sampling(top_p=-1.0), "top_p"),
        (Sampling(extra="{"), "not JSON"),
        (Sampling(extra="[1]"), "JSON object"),
        (Sampling(extra='{"n":5}'), "may not set 'n'"),
        (Sampling(extra='{"max_completion_tokens":5}'), "max_completion_tokens"),
    ],
)
def test_what_cannot_be_expressed_is_objected_to_before_anything_is_sent(sampling: Sampling, words: str) -> None:
    assert any(words in one for one in CHAT.objections(sampling, ()))


def test_there_is_nothing_to_object_to_in_ordinary_requests() -> None:
    assert not CHAT.objections(Sampling(temperature=1.0, extra='{"top_k":40}'), [LOOKUP])
    strange = Tool(name="look up", description="", parameters={})
    assert any("look up" in one for one in CHAT.objections(Sampling(), [strange]))


def test_a_key_makes_a_header_and_no_key_makes_none() -> None:
    assert CHAT.headers("k") == {"Authorization": "Bearer k"}
    assert CHAT.headers("") == {}


def broken_off(error: object, **fields: object) -> dict[str, Any]:
    choice = {"finish_reason": "error", "message": {"role": "assistant", "content": "I was ab"}, "error": error}
    return {"id": "x", "choices": [choice | fields], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


@pytest.mark.parametrize(
    ("value", "action", "kind", "billable"),
    [
        ({"error": {"code": 429, "message": "busy"}}, "retry", "rate_limit", False),
        ({"error": {"code": 502, "message": "down"}}, "retry", "server_error", True),
        ({"error": {"code": 401, "message": "who?"}}, "end_lane", "bad_key", False),
        (
            {"error": {"code": 403, "message": "Your input was flagged."}, "choices": []},
            "end_episode",
            "content_filter",
            False,
        ),
        ({"error": {"code": "odd", "message": "Oh."}, "choices": None}, "retry", "server_error", True),
        ({"error": {"code": 200, "message": "Oh."}}, "retry", "server_error", True),
        (broken_off({"code": 503, "message": "gone"}), "retry", "overload", True),
        (broken_off(None), "retry", "server_error", True),
    ],
    ids=["busy", "down", "key", "filter", "word", "no-error-code", "choice", "choice-without-words"],
)
def test_an_error_in_a_body_of_status_200_is_that_error(value: object, action: str, kind: str, billable: bool) -> None:
    said = CHAT.judge(HttpResponse(status=200, headers={}, body=orjson.dumps(value)))
    assert (said.action, said.kind, said.billable) == (action, kind, billable)


@pytest.mark.parametrize(
    "value",
    [
        broken_off(None, finish_reason="stop"),
        broken_off(None, finish_reason="stop", message={"content": '"error"'}),
        {"error": None, "choices": []},
        ["error"],
        {"error": "text"},
    ],
    ids=["no-error", "word", "nothing", "list", "text"],
)
def test_what_is_no_such_error_is_left_to_who_reads_replies(value: object) -> None:
    assert CHAT.judge(HttpResponse(status=200, headers={}, body=orjson.dumps(value))).action == "accept"
