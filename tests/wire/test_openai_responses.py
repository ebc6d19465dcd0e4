from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.integrations.gateway.openai_responses import SERVED_OPENAI_RESPONSES as SERVED
from evalkit.wire.dialect import MalformedReplyError, Quirks
from evalkit.wire.http import HttpResponse
from evalkit.wire.openai_responses import OPENAI_RESPONSES as RESPONSES

LOOKUP = Tool(name="lookup", description="Look a key up.", parameters={"type": "object", "properties": {}})
CALL = ToolCall(id="c1", name="lookup", arguments='{"k":1}')

CHAT = [
    (Message(role="system", text="Be brief."), b'{"type":"message","role":"system","content":"Be brief."}'),
    (
        Message(role="user", text='Gr\u00fc\u00dfe "x"\n'),
        '{"type":"message","role":"user","content":"Gr\u00fc\u00dfe \\"x\\"\\n"}'.encode(),
    ),
    (
        Message(role="assistant", text="(no content)"),
        b'{"type":"message","role":"assistant","content":"(no content)"}',
    ),
    (Message(role="user", text="Well?"), b'{"type":"message","role":"user","content":"Well?"}'),
    (
        Message(role="assistant", calls=(CALL,)),
        b'{"type":"function_call","call_id":"c1","name":"lookup","arguments":"{\\"k\\":1}"}',
    ),
    (Message(role="tool", text="42", call_id="c1"), b'{"type":"function_call_output","call_id":"c1","output":"42"}'),
    (
        Message(role="assistant", text="So:", calls=(ToolCall(id="a", name="f", arguments="{oops"), CALL)),
        b'{"type":"message","role":"assistant","content":"So:"},'
        b'{"type":"function_call","call_id":"a","name":"f","arguments":"{oops"},'
        b'{"type":"function_call","call_id":"c1","name":"lookup","arguments":"{\\"k\\":1}"}',
    ),
    (Message(role="tool", text="no", call_id="a"), b'{"type":"function_call_output","call_id":"a","output":"no"}'),
    (Message(role="tool", text="", call_id="c1"), b'{"type":"function_call_output","call_id":"c1","output":""}'),
    (Message(role="assistant", text="No."), b'{"type":"message","role":"assistant","content":"No."}'),
]
"""(value, bytes), a whole chat: what a message is on the wire, and what a server makes of those bytes."""


@pytest.mark.parametrize(("message", "data"), CHAT)
def test_a_message_has_its_bytes(message: Message, data: bytes) -> None:
    assert RESPONSES.encode_message(message) == data


def test_what_a_client_sends_is_what_a_server_reads() -> None:
    sampling = Sampling(
        temperature=0.5, max_tokens=16, tool_choice="required", parallel_calls=False, top_p=0.5, effort="low"
    )
    head = RESPONSES.head("m", sampling, Quirks())
    data = [one for _, one in CHAT]
    model, request = SERVED.decode_request(RESPONSES.body(head, RESPONSES.encode_tools([LOOKUP]), data, 5))
    assert (model, request.seed, request.sampling, request.tools) == ("m", 0, sampling, (LOOKUP,))
    assert request.messages == tuple(message for message, _ in CHAT)


def test_a_body_has_its_bytes() -> None:
    head = RESPONSES.head("m", Sampling(effort="low", parallel_calls=True), Quirks())
    assert RESPONSES.body(head, RESPONSES.encode_tools([LOOKUP]), [b"1", b"2,3"], 7) == (
        b'{"model":"m","max_output_tokens":4096,"store":false,"include":["reasoning.encrypted_content"],'
        b'"reasoning":{"effort":"low"}\n,"tool_choice":"auto","parallel_tool_calls":true,"tools":[{"type":"function",'
        b'"name":"lookup","description":"Look a key up.","parameters":{"type":"object","properties":{}},"strict":'
        b'false}],"input":[1,2,3]}'
    )


ALWAYS = {"store": False, "include": ["reasoning.encrypted_content"]}
HEADS: list[tuple[Sampling, Quirks, dict[str, object]]] = [
    (Sampling(), Quirks(), {"max_output_tokens": 4096, "tool_choice": "auto", **ALWAYS}),
    (
        Sampling(temperature=1.0, max_tokens=99, parallel_calls=True, effort="high", top_p=0.5),
        Quirks(
            max_tokens_field="max_completion_tokens",
            refuses=frozenset(
                {"temperature", "top_p", "tool_choice", "parallel_calls", "effort", "encrypted_reasoning"}
            ),
        ),
        {"max_output_tokens": 99, "store": False},
    ),
    (
        Sampling(effort="low", extra='{"reasoning":{"summary":"auto"},"truncation":"disabled"}'),
        Quirks(refuses=frozenset({"tool_choice"})),
        {
            "max_output_tokens": 4096,
            "reasoning": {"effort": "low", "summary": "auto"},
            "truncation": "disabled",
            **ALWAYS,
        },
    ),
    (
        Sampling(extra='{"reasoning":{"summary":"auto"}}', tool_choice="none"),
        Quirks(),
        {"max_output_tokens": 4096, "reasoning": {"summary": "auto"}, "tool_choice": "none", **ALWAYS},
    ),
]


@pytest.mark.parametrize(("sampling", "quirks", "fields"), HEADS)
def test_a_body_holds_what_was_asked_for_and_nothing_else(
    sampling: Sampling, quirks: Quirks, fields: Mapping[str, object]
) -> None:
    head, tools = RESPONSES.head("m", sampling, quirks), RESPONSES.encode_tools([LOOKUP])
    body = orjson.loads(RESPONSES.body(head, tools, [CHAT[0][1]], 7))
    assert body == {"model": "m", "input": [orjson.loads(CHAT[0][1])], "tools": orjson.loads(tools), **fields}


def test_without_tools_nothing_about_tools_is_sent() -> None:
    head = RESPONSES.head("m", Sampling(tool_choice="required", parallel_calls=False), Quirks())
    body = orjson.loads(RESPONSES.body(head, RESPONSES.encode_tools(()), [CHAT[0][1]], None))
    assert body.keys() == {"model", "max_output_tokens", "store", "include", "input"}


def usage_bytes(read: int, cached: int, written: int, out: int, reasoning: int) -> bytes:
    return (
        b'"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
        b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}}'
        % (read, cached, written, out, reasoning, read + out)
    )


REPLIES = [
    (
        Reply(text="The answer is 42.", usage=Usage(input=11, output=5), model="m-1", response_id="r1"),
        b'{"id":"r1","object":"response","created_at":0,"status":"completed","error":null,"incomplete_details":null,'
        b'"model":"m-1","output":[{"type":"message","id":"msg_r1","role":"assistant","content":[{"type":"output_text",'
        b'"text":"The answer is 42.","annotations":[]}],"status":"completed"}],' + usage_bytes(11, 0, 0, 5, 0),
    ),
    (
        Reply(
            text="So:",
            calls=(CALL, ToolCall(id="c2", name="lookup", arguments="")),
            finish="tool_calls",
            usage=Usage(input=100, output=30, cached_read=64, cached_write=36, reasoning=20),
        ),
        b'{"id":"","object":"response","created_at":0,"status":"completed","error":null,"incomplete_details":null,'
        b'"model":"","output":[{"type":"message","id":"msg_","role":"assistant","content":[{"type":"output_text","text":'
        b'"So:","annotations":[]}],"status":"completed"},{"type":"function_call","id":"fc_c1","call_id":"c1","name":'
        b'"lookup","arguments":"{\\"k\\":1}","status":"completed"},{"type":"function_call","id":"fc_c2","call_id":"c2",'
        b'"name":"lookup","arguments":"","status":"completed"}],' + usage_bytes(100, 64, 36, 30, 20),
    ),
    (
        Reply(text="I will not.", finish="refusal", usage=Usage(input=3, output=4), response_id="r3"),
        b'{"id":"r3","object":"response","created_at":0,"status":"completed","error":null,"incomplete_details":null,'
        b'"model":"","output":[{"type":"message","id":"msg_r3","role":"assistant","content":[{"type":"refusal","refusal":'
        b'"I will not."}],"status":"completed"}],' + usage_bytes(3, 0, 0, 4, 0),
    ),
    (
        Reply(calls=(ToolCall(id="c1", name="f", arguments='{"k'),), finish="length", usage=Usage(input=1, output=2)),
        b'{"id":"","object":"response","created_at":0,"status":"incomplete","error":null,"incomplete_details":{"reason":'
        b'"max_output_tokens"},"model":"","output":[{"type":"function_call","id":"fc_c1","call_id":"c1","name":"f",'
        b'"arguments":"{\\"k","status":"incomplete"}],' + usage_bytes(1, 0, 0, 2, 0),
    ),
    (
        Reply(text="", finish="content_filter", usage=Usage(input=1, output=1)),
        b'{"id":"","object":"response","created_at":0,"status":"incomplete","error":null,"incomplete_details":{"reason":'
        b'"content_filter"},"model":"","output":[{"type":"message","id":"msg_","role":"assistant","content":[{"type":'
        b'"output_text","text":"","annotations":[]}],"status":"incomplete"}],' + usage_bytes(1, 0, 0, 1, 0),
    ),
]


@pytest.mark.parametrize(("reply", "body"), REPLIES)
def test_a_reply_has_its_bytes_in_both_directions(reply: Reply, body: bytes) -> None:
    assert SERVED.encode_reply(reply) == body
    assert RESPONSES.decode(body) == reply


def reply_of(*output: object, **more: object) -> Reply:
    return RESPONSES.decode(orjson.dumps({"output": output, **more}))


def sent_back(*output: object) -> list[dict[str, Any]]:
    """The items that a reply of these items becomes in the next request."""
    found: list[dict[str, Any]] = orjson.loads(b"[%b]" % RESPONSES.encode_message(reply_of(*output).message()))
    return found


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
TEXT = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "hm"}]}
LOOKING = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "lookup", "arguments": '{"k":1}'}


def test_reasoning_goes_back_as_it_came_in_its_place() -> None:
    again = {**LOOKING, "id": "fc_2", "call_id": "c2"}
    items = [THOUGHT, TEXT, {**THOUGHT, "id": "rs_2"}, LOOKING, {**THOUGHT, "id": "rs_3"}, again]
    assert sent_back(*items) == items
    reply = reply_of(*items, status="completed")
    assert (reply.text, [call.id for call in reply.calls], reply.finish) == ("hm", ["c1", "c2"], "tool_calls")
    output = {"type": "function_call_output", "output": "x"}
    chat = [CHAT[0][1], RESPONSES.encode_message(reply.message())]
    chat += [orjson.dumps({**output, "call_id": call_id}) for call_id in ("c1", "c2")]
    head = RESPONSES.head("m", Sampling(), Quirks())
    _, request = SERVED.decode_request(RESPONSES.body(head, b"", chat, None))
    assert request.messages[1] == Message(role="assistant", text=reply.text, calls=reply.calls)


def test_calls_before_text_and_phases_keep_their_items() -> None:
    assert sent_back(LOOKING, TEXT) == [LOOKING, TEXT]
    assert sent_back({**TEXT, "phase": "commentary"}, LOOKING) == [{**TEXT, "phase": "commentary"}, LOOKING]
    assert sent_back(TEXT, TEXT) == [TEXT, TEXT]


def test_what_can_be_written_anew_is_not_kept() -> None:
    reply = reply_of(TEXT, LOOKING)
    assert reply.opaque == b""
    assert sent_back(TEXT, LOOKING) == [
        {"type": "message", "role": "assistant", "content": "hm"},
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": '{"k":1}'},
    ]


def test_reasoning_that_a_request_may_not_hold_is_made_fit_or_left_out() -> None:
    bare = {"type": "reasoning", "encrypted_content": "g", "status": "completed"}
    assert sent_back(bare, TEXT)[0] == {"type": "reasoning", "encrypted_content": "g", "summary": []}
    only_id = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert [item["type"] for item in sent_back(only_id, TEXT)] == ["message"]
    phased = {**TEXT, "phase": "commentary"}
    assert sent_back(only_id, phased) == [{name: value for name, value in phased.items() if name != "id"}]
    # Cut off while thinking: nothing follows, so nothing is sent but that nothing was said.
    assert sent_back(THOUGHT) == [{"type": "message", "role": "assistant", "content": "(no content)"}]
    assert [item["type"] for item in sent_back(THOUGHT, LOOKING, THOUGHT)] == ["reasoning", "function_call"]


def test_unknown_items_are_passed_over_and_go_back() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    reply = reply_of(search, 5, None, TEXT)
    assert (reply.text, reply.calls, reply.finish) == ("hm", (), "stop")
    assert sent_back(search, 5, TEXT) == [search, TEXT]


def test_missing_and_repeated_call_ids_become_places_also_where_items_go_back() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    items = [THOUGHT, call, call | {"call_id": "x"}, call | {"call_id": "x"}, call | {"call_id": 5}]
    ids = ["call_0", "x", "call_2", "call_3"]
    assert [one.id for one in reply_of(*items).calls] == ids
    assert [item["call_id"] for item in sent_back(*items)[1:]] == ids


def test_arguments_that_come_otherwise_than_as_text_become_text() -> None:
    call = {"type": "function_call", "call_id": "x", "name": "f"}
    assert reply_of(call | {"arguments": {"k": [1, "\u00e9"]}}).calls[0].arguments == '{"k":[1,"\u00e9"]}'
    assert reply_of(call | {"arguments": None}).calls[0].arguments == ""
    assert [item["arguments"] for item in sent_back(THOUGHT, call, call | {"arguments": ""})[1:]] == ["{}", "{}"]
    assert sent_back(call)[0]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, "stop"),
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_tool_calls"}}, "max_tool_calls"),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({"status": "cancelled"}, "cancelled"),
    ],
)
def test_how_a_reply_finished(fields: dict[str, Any], finish: str) -> None:
    assert reply_of(TEXT, **fields).finish == finish


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ([], Usage()),
        ({"input_tokens": -5, "output_tokens": "many"}, Usage()),
        ({"input_tokens": 8.0, "output_tokens": True}, Usage(input=8)),
        (
            {
                "input_tokens": 5,
                "output_tokens": 2,
                "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 9},
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input=17, cached_read=3, cached_write=9),
        ),
    ],
)
def test_usage_is_made_consistent(usage: object, expected: Usage) -> None:
    assert reply_of(TEXT, usage=usage).usage == expected


@pytest.mark.parametrize(
    "body",
    [b"[]", b"5", b"null", b"{}", b'{"output":{}}', b'{"output":null}', b'{"output":[],"status":"failed"}', b"oops"],
)
def test_a_body_without_an_output_is_no_reply(body: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        RESPONSES.decode(body)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["message", "function_call", "reasoning", "other"]) | junk
items = junk | st.fixed_dictionaries(
    {},
    optional={
        "type": kinds,
        "content": junk | st.lists(st.fixed_dictionaries({}, optional={"type": kinds, "text": junk, "refusal": junk})),
        "call_id": junk,
        "name": junk,
        "arguments": junk,
        "phase": junk,
        "encrypted_content": junk,
    },
)


@given(st.lists(items, max_size=4), junk, junk, junk)
def test_any_output_is_a_reply_that_can_be_sent_back(output: Any, status: Any, details: Any, usage: Any) -> None:
    value = {"output": output, "status": status, "incomplete_details": details, "usage": usage, "model": status}
    reply = RESPONSES.read(value)
    assert reply.finish
    assert reply.usage.cached_read + reply.usage.cached_write <= reply.usage.input
    assert reply.usage.reasoning <= reply.usage.output
    back = orjson.loads(b"[%b]" % RESPONSES.encode_message(reply.message()))
    assert back
    calls = [item["call_id"] for item in back if item["type"] == "function_call"]
    assert calls == [call.id for call in reply.calls]


def failed(code: object, message: object = "Oh.", **fields: object) -> HttpResponse:
    value = {"status": "failed", "error": {"code": code, "message": message}, "output": [], **fields}
    return HttpResponse(status=200, headers={"retry-after": "3"}, body=orjson.dumps(value))


@pytest.mark.parametrize(
    ("response", "action", "kind", "wait_s"),
    [
        (failed("server_error"), "retry", "server_error", 3.0),
        (failed("rate_limit_exceeded"), "retry", "rate_limit", 3.0),
        (failed("invalid_prompt"), "end_episode", "bad_request", None),
        (failed("invalid_prompt", "Your prompt was flagged."), "end_episode", "content_filter", None),
        (failed(None, None), "retry", "server_error", 3.0),
        (failed("x", error=None), "retry", "server_error", 3.0),
        (failed("server_error", tools=["x" * 100_000]), "retry", "server_error", 3.0),
    ],
)
def test_a_failed_response_is_judged_by_its_error(
    response: HttpResponse, action: str, kind: str, wait_s: float | None
) -> None:
    verdict = RESPONSES.judge(response)
    assert (verdict.action, verdict.kind, verdict.wait_s, verdict.billable) == (action, kind, wait_s, True)
    assert verdict.message


def test_replies_that_speak_of_failure_are_accepted() -> None:
    for value in ({"output": [], "metadata": "failed"}, ["failed"], {"status": "completed", "x": {"status": "failed"}}):
        response = HttpResponse(status=200, headers={}, body=orjson.dumps(value))
        assert RESPONSES.judge(response).action == "accept"
    assert RESPONSES.judge(HttpResponse(status=200, headers={}, body=b'?"failed"')).action == "accept"
    refused = HttpResponse(status=401, headers={}, body=b'{"error":{"message":"bad key"},"status":"failed"}')
    assert RESPONSES.judge(refused).kind == "bad_key"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": ""}, "model"),
        ({"input": []}, "input: must not be empty"),
        ({"input": ""}, "input"),
        ({"input": [5]}, r"input\[0\]"),
        ({"input": [{"role": "narrator", "content": "x"}]}, r"input\[0\].role"),
        ({"input": [{"role": "user", "content": 5}]}, r"input\[0\]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "every part"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c1", "output": "x"}]}, "no tool call found"),
        ({"input": [LOOKING]}, "no tool output found"),
        ({"input": [{**LOOKING, "arguments": {}}, orjson.loads(CHAT[5][1])]}, "arguments"),
        ({"input": [THOUGHT]}, "following item"),
        ({"input": [THOUGHT, {"role": "user", "content": "x"}]}, "following item"),
        ({"input": [{**THOUGHT, "encrypted_content": None}, TEXT]}, "not found"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}, TEXT]}, "summary"),
        ({"input": [{**THOUGHT, "status": "completed"}, TEXT]}, "status"),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"max_tokens": 99}, "max_tokens: unknown"),
        ({"seed": 5}, "seed: unknown"),
        ({"temperature": "hot"}, "temperature"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "any", "tools": [{"type": "function", "name": "f"}]}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, r"tools\[0\].name"),
        ({"tools": [{"type": "web_search"}]}, r"tools\[0\].type"),
        ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "parameters"),
        ({"tools": {}}, "tools"),
        ({"stream": "yes"}, "stream"),
        ({"previous_response_id": "r"}, "previous_response_id"),
    ],
)
def test_a_served_request_that_is_wrong_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "x"}]} | change
    with pytest.raises(ValueError, match=words):
        SERVED.decode_request(orjson.dumps(body))


def test_a_server_reads_plain_text_instructions_and_parts() -> None:
    body: dict[str, Any] = {"model": "m", "instructions": "Be brief.", "input": "Hello."}
    system, user = Message(role="system", text="Be brief."), Message(role="user", text="Hello.")
    assert SERVED.decode_request(orjson.dumps(body))[1].messages == (system, user)
    body["input"] = [{"role": "user", "content": [{"type": "input_text", "text": "Hel"}, {"text": "lo."}]}]
    assert SERVED.decode_request(orjson.dumps(body))[1].messages == (system, user)
    for choice in ({"type": "function", "name": "f"}, "required"):
        more = {"tools": [{"type": "function", "name": "f"}], "tool_choice": choice}
        assert SERVED.decode_request(orjson.dumps(body | more))[1].sampling.tool_choice == "required"


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(max_tokens=15), "at least 16"),
        (Sampling(temperature=float("nan")), "temperature"),
        (Sampling(extra="{"), "not JSON"),
        (Sampling(extra='{"input":[]}'), "may not set 'input'"),
        (Sampling(extra='{"max_output_tokens":5}'), "max_output_tokens"),
        (Sampling(extra='{"previous_response_id":"r"}'), "previous_response_id"),
        (Sampling(extra='{"reasoning":{"effort":"low"}}'), "reasoning.effort"),
        (Sampling(extra='{"reasoning":"low"}'), "reasoning must be an object"),
    ],
)
def test_what_cannot_be_expressed_is_objected_to_before_anything_is_sent(sampling: Sampling, words: str) -> None:
    assert any(words in one for one in RESPONSES.objections(sampling, ()))


def test_there_is_nothing_to_object_to_in_ordinary_requests() -> None:
    extra = '{"reasoning":{"summary":"auto"},"truncation":"auto"}'
    assert not RESPONSES.objections(Sampling(temperature=1.0, effort="low", extra=extra), [LOOKUP])
    strange = Tool(name="look up", description="", parameters={})
    assert any("look up" in one for one in RESPONSES.objections(Sampling(), [strange]))


def test_a_key_makes_a_header_and_no_key_makes_none() -> None:
    assert RESPONSES.headers("k") == {"Authorization": "Bearer k"}
    assert RESPONSES.headers("") == {}
