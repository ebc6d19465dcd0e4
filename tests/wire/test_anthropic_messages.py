from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.integrations.gateway.anthropic_messages import SERVED_ANTHROPIC_MESSAGES as SERVED
from evalkit.wire.allowance import Allowance
from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES as MESSAGES
from evalkit.wire.dialect import MalformedReplyError, Quirks
from evalkit.wire.http import HttpResponse

LOOKUP = Tool(
    name="lookup", description="Look a key up.", parameters={"type": "object", "properties": {"k": {"type": "integer"}}}
)
CACHED = {"cache_control": {"type": "ephemeral"}}

ONE = ToolCall(id="c1", name="lookup", arguments='{"k":1}')
TWO = ToolCall(id="c2", name="lookup", arguments='{"k":2}')
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s1=="}
HIDDEN = {"type": "redacted_thinking", "data": "xyz"}


def user(block: bytes) -> bytes:
    return b'{"role":"user","content":[' + block + b"]}"


def assistant(*blocks: bytes) -> bytes:
    return b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"


NOTHING = b'{"type":"text","text":"(no content)"}'

ENCODED = [
    (Message(role="system", text="Be brief."), b'\x01{"type":"text","text":"Be brief."}'),
    (Message(role="system"), b"\x01"),
    (
        Message(role="user", text='Gr\u00fc\u00dfe "x"\n\x02'),
        user('{"type":"text","text":"Gr\u00fc\u00dfe \\"x\\"\\n\\u0002"}'.encode()),
    ),
    (Message(role="user", text=" \n"), user(NOTHING)),
    (Message(role="assistant", text="No."), assistant(b'{"type":"text","text":"No."}')),
    (Message(role="assistant"), assistant(NOTHING)),
    (Message(role="assistant", text=" "), assistant(NOTHING)),
    (
        Message(role="assistant", text="So:", calls=(ONE, TWO)),
        assistant(
            b'{"type":"text","text":"So:"},{"type":"tool_use","id":"c1","name":"lookup","input":{"k":1}}',
            b'{"type":"tool_use","id":"c2","name":"lookup","input":{"k":2}}',
        ),
    ),
    (
        Message(role="assistant", calls=(ToolCall(id="a", name="f", arguments="{oops"),)),
        assistant(b'{"type":"tool_use","id":"a","name":"f","input":{"_raw":"{oops"}}'),
    ),
    (
        Message(role="assistant", calls=(ToolCall(id="a", name="f", arguments="[1]"),)),
        assistant(b'{"type":"tool_use","id":"a","name":"f","input":{"_raw":"[1]"}}'),
    ),
    (
        Message(role="assistant", calls=(ToolCall(id="a", name="f", arguments=""),)),
        assistant(b'{"type":"tool_use","id":"a","name":"f","input":{}}'),
    ),
    (
        Message(role="tool", text="42", call_id="c1"),
        user(b'{"type":"tool_result","tool_use_id":"c1","content":"42"}'),
    ),
    (Message(role="tool", call_id="c1"), user(b'{"type":"tool_result","tool_use_id":"c1"}')),
]


@pytest.mark.parametrize(("message", "data"), ENCODED)
def test_a_message_has_its_bytes(message: Message, data: bytes) -> None:
    assert MESSAGES.encode_message(message) == data


CHAT = (
    Message(role="system", text="Be brief."),
    Message(role="user", text="Begin."),
    Message(role="assistant", text="So:", calls=(ONE, TWO)),
    Message(role="tool", text="42", call_id="c1"),
    Message(role="tool", call_id="c2"),
    Message(role="user", text="Prices changed."),
    Message(role="assistant", text="Done?"),
    Message(role="user", text="Go on."),
    Message(role="assistant", calls=(ToolCall(id="c1", name="lookup", arguments="{cut"),)),
    Message(role="tool", text="What?", call_id="c1"),
)


PLAIN = Sampling()


def body(*messages: Message, sampling: Sampling = PLAIN, tools: tuple[Tool, ...] = (LOOKUP,)) -> bytes:
    head = MESSAGES.head("m", sampling, Quirks())
    parts: list[bytes] = []
    MESSAGES.join(parts, messages)
    return MESSAGES.body(head, MESSAGES.encode_tools(tools), parts, 7)


def test_a_body_has_its_bytes() -> None:
    assert body(*CHAT[:6]) == (
        b'{"model":"m","max_tokens":4096,"tool_choice":{"type":"auto"},"tools":[{"name":"lookup","description":'
        b'"Look a key up.","input_schema":{"type":"object","properties":{"k":{"type":"integer"}}},'
        b'"cache_control":{"type":"ephemeral"}}],"system":[{"type":"text","text":"Be brief.",'
        b'"cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Begin.",'
        b'"cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[{"type":"text","text":"So:"},'
        b'{"type":"tool_use","id":"c1","name":"lookup","input":{"k":1}},'
        b'{"type":"tool_use","id":"c2","name":"lookup","input":{"k":2}}]},{"role":"user","content":['
        b'{"type":"tool_result","tool_use_id":"c1","content":"42"},{"type":"tool_result","tool_use_id":"c2"},'
        b'{"type":"text","text":"Prices changed.","cache_control":{"type":"ephemeral"}}]}]}'
    )


def test_what_a_client_sends_is_what_a_server_reads() -> None:
    sampling = Sampling(
        temperature=0.5, max_tokens=12, tool_choice="required", parallel_calls=False, top_p=0.5, effort="low"
    )
    model, request = SERVED.decode_request(body(*CHAT, sampling=sampling))
    assert (model, request.seed, request.sampling, request.tools) == ("m", 0, sampling, (LOOKUP,))
    assert request.messages == CHAT


def test_system_texts_go_to_the_front_wherever_they_stand() -> None:
    more = Message(role="system", text="Be kind.")
    value = orjson.loads(body(*CHAT[:3], more, Message(role="system"), *CHAT[3:6]))
    assert [block["text"] for block in value["system"]] == ["Be brief.", "Be kind."]
    assert value["messages"] == orjson.loads(body(*CHAT[:6]))["messages"]
    late = orjson.loads(body(CHAT[1], more))
    assert [block["text"] for block in late["system"]] == ["Be kind."]
    assert len(late["messages"]) == 1


def test_the_cache_is_marked_at_the_newest_two_user_messages_however_long_the_chat() -> None:
    for length in (2, 6, 8, 10):
        value = orjson.loads(body(*CHAT[:length]))
        marked = [
            (place, block is turn["content"][-1])
            for place, turn in enumerate(value["messages"])
            for block in turn["content"]
            if "cache_control" in block
        ]
        last = len(value["messages"]) - 1
        assert marked == [(place, True) for place in (last - 2, last) if place >= 0]


def test_a_chat_without_system_or_tools_sends_neither() -> None:
    value = orjson.loads(body(Message(role="user", text="Begin."), sampling=Sampling(tool_choice="required"), tools=()))
    assert value.keys() == {"model", "max_tokens", "messages"}
    blank = orjson.loads(body(Message(role="system"), Message(role="user"), tools=()))
    assert "system" not in blank
    assert blank["messages"][0]["content"] == [{"type": "text", "text": "(no content)", **CACHED}]


HEADS: list[tuple[Sampling, Quirks, dict[str, object]]] = [
    (Sampling(), Quirks(), {"tool_choice": {"type": "auto"}}),
    (
        Sampling(temperature=1.0, tool_choice="required", parallel_calls=False, effort="max"),
        Quirks(),
        {
            "temperature": 1.0,
            "output_config": {"effort": "max"},
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ),
    (Sampling(tool_choice="none", parallel_calls=True), Quirks(), {"tool_choice": {"type": "none"}}),
    (
        Sampling(temperature=1.0, top_p=0.5, tool_choice="required", effort="low"),
        Quirks(max_tokens_field="other", refuses=frozenset({"temperature", "top_p", "tool_choice", "effort"})),
        {},
    ),
    (
        Sampling(tool_choice="required", parallel_calls=False),
        Quirks(refuses=frozenset({"tool_choice"})),
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    (
        Sampling(extra='{"top_k":40,"thinking":{"type":"adaptive"}}'),
        Quirks(),
        {"tool_choice": {"type": "auto"}, "top_k": 40, "thinking": {"type": "adaptive"}},
    ),
]


@pytest.mark.parametrize(("sampling", "quirks", "fields"), HEADS)
def test_a_body_holds_what_was_asked_for_and_nothing_else(
    sampling: Sampling, quirks: Quirks, fields: Mapping[str, object]
) -> None:
    head, tools = MESSAGES.head("m", sampling, quirks), MESSAGES.encode_tools([LOOKUP])
    value = orjson.loads(MESSAGES.body(head, tools, [MESSAGES.encode_message(CHAT[1])], 7))
    said = [{"role": "user", "content": [{"type": "text", "text": "Begin.", **CACHED}]}]
    assert value == {"model": "m", "max_tokens": 4096, "tools": orjson.loads(tools), "messages": said, **fields}


def test_a_tool_without_description_or_schema_still_has_a_schema() -> None:
    tools = orjson.loads(MESSAGES.encode_tools([Tool(name="f", description="", parameters={}), LOOKUP]))
    assert tools[0] == {"name": "f", "input_schema": {"type": "object"}}
    assert "cache_control" in tools[1]


REPLIES = [
    (
        Reply(text="The answer is 42.", usage=Usage(input=11, output=5), model="m-1", response_id="r1"),
        b'{"id":"r1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":'
        b'"The answer is 42."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":11,'
        b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":5,"output_tokens_details":{"thinking_tokens":0}}}',
    ),
    (
        Reply(
            text="So:",
            calls=(ONE, TWO),
            finish="tool_calls",
            usage=Usage(input=100, output=30, cached_read=64, cached_write=30, reasoning=20),
        ),
        b'{"id":"","type":"message","role":"assistant","model":"","content":[{"type":"text","text":"So:"},'
        b'{"type":"tool_use","id":"c1","name":"lookup","input":{"k":1}},{"type":"tool_use","id":"c2","name":"lookup",'
        b'"input":{"k":2}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":6,'
        b'"cache_creation_input_tokens":30,"cache_read_input_tokens":64,"output_tokens":30,"output_tokens_details":{"thinking_tokens":20}}}',
    ),
    (
        Reply(finish="refusal", usage=Usage(input=3, output=1)),
        b'{"id":"","type":"message","role":"assistant","model":"","content":[],"stop_reason":"refusal",'
        b'"stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,'
        b'"output_tokens":1,"output_tokens_details":{"thinking_tokens":0}}}',
    ),
    (
        Reply(text="and so", finish="length", usage=Usage(input=1, output=2)),
        b'{"id":"","type":"message","role":"assistant","model":"","content":[{"type":"text","text":"and so"}],'
        b'"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":1,"cache_creation_input_tokens":0,'
        b'"cache_read_input_tokens":0,"output_tokens":2,"output_tokens_details":{"thinking_tokens":0}}}',
    ),
]


@pytest.mark.parametrize(("reply", "data"), REPLIES)
def test_a_reply_has_its_bytes_in_both_directions(reply: Reply, data: bytes) -> None:
    assert SERVED.encode_reply(reply) == data
    assert MESSAGES.decode(data) == reply


def reply_of(content: Any, reason: Any = "end_turn", usage: Any = None) -> Reply:
    return MESSAGES.read({"type": "message", "content": content, "stop_reason": reason, "usage": usage})


def test_thinking_goes_back_as_it_came_and_where_it_stood() -> None:
    content = [
        THOUGHT,
        HIDDEN,
        {"type": "text", "text": "First "},
        {"type": "tool_use", "id": "c1", "name": "lookup", "input": {"k": 1}},
        {"type": "thinking", "thinking": "", "signature": "s2==", "later": [1, None]},
        {"type": "text", "text": "then."},
        {"type": "tool_use", "id": "c2", "name": "lookup", "input": {"k": 2}},
    ]
    reply = reply_of(content, "tool_use")
    assert (reply.text, reply.calls, reply.finish) == ("First then.", (ONE, TWO), "tool_calls")
    encoded = MESSAGES.encode_message(reply.message())
    assert orjson.loads(encoded)["content"] == content
    answered = (
        Message(role="tool", text="a", call_id="c1"),
        Message(role="tool", text="b", call_id="c2"),
    )
    _, request = SERVED.decode_request(body(CHAT[1], reply.message(), *answered))
    assert request.messages[1] == reply.message()
    assert MESSAGES.decode(SERVED.encode_reply(reply)) == reply


def test_a_reply_of_thoughts_alone_goes_back_with_a_text_after_them() -> None:
    reply = reply_of([THOUGHT], "max_tokens")
    assert (reply.text, reply.calls, reply.finish) == ("", (), "length")
    nothing = {"type": "text", "text": "(no content)"}
    assert orjson.loads(MESSAGES.encode_message(reply.message()))["content"] == [THOUGHT, nothing]
    cut = reply_of([{"type": "thinking", "thinking": "hm", "signature": ""}], "max_tokens")
    assert orjson.loads(MESSAGES.encode_message(cut.message()))["content"] == [nothing]
    assert reply_of([{"type": "text", "text": "x"}]).opaque == b""


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("something_new", "something_new"),
        (None, "stop"),
    ],
)
def test_stop_reasons_are_put_in_our_words(reason: object, finish: str) -> None:
    assert reply_of([], reason).finish == finish


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"input_tokens": -5, "output_tokens": "many"}, Usage()),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 9, "cache_creation_input_tokens": 0, "output_tokens": 2},
            Usage(input=14, output=2, cached_read=9),
        ),
        ({"output_tokens": 2, "output_tokens_details": {"thinking_tokens": 2}}, Usage(output=2, reasoning=2)),
        ({"output_tokens": 2, "output_tokens_details": {"thinking_tokens": 9}}, Usage()),
        ({"output_tokens": 2, "output_tokens_details": 9}, Usage(output=2)),
        (
            {"input_tokens": 9, "cache_read_input_tokens": 2**31 - 1, "cache_creation_input_tokens": 9},
            Usage(),
        ),
    ],
)
def test_usage_is_made_consistent(usage: object, expected: Usage) -> None:
    assert reply_of([], usage=usage).usage == expected


@pytest.mark.parametrize("data", [b"[]", b"null", b"{}", b'{"content":"x"}', b'{"type":"error","error":{}}'])
def test_a_body_without_content_is_no_reply(data: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        MESSAGES.decode(data)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
block = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "thinking", 5])},
    optional={"text": junk, "id": junk, "name": junk, "input": junk, "thinking": junk},
)


@given(st.lists(junk | block, max_size=5), junk, junk)
def test_any_content_is_a_reply_that_can_be_sent_back(content: list[object], reason: Any, usage: Any) -> None:
    reply = reply_of(content, reason, usage)
    assert reply.finish
    assert reply.usage.cached_read + reply.usage.cached_write <= reply.usage.input
    blocks = orjson.loads(MESSAGES.encode_message(reply.message()))["content"]
    assert blocks
    assert sum(one["type"] == "tool_use" for one in blocks) == len(reply.calls)
    assert all(isinstance(one["input"], dict) for one in blocks if one["type"] == "tool_use")


@pytest.mark.parametrize(
    ("status", "kind", "message", "verdict"),
    [
        (529, "overloaded_error", "Overloaded", ("retry", "overload")),
        (429, "rate_limit_error", "Slow down", ("retry", "rate_limit")),
        (500, "api_error", "Internal server error", ("retry", "server_error")),
        (401, "authentication_error", "invalid x-api-key", ("end_lane", "bad_key")),
        (402, "billing_error", "Check billing", ("end_lane", "no_credit")),
        (404, "not_found_error", "model: claude-x", ("end_lane", "unknown_model")),
        (400, "invalid_request_error", "Your credit balance is too low to access ...", ("end_lane", "no_credit")),
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ("end_episode", "context_length")),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 9 + 9 > 8",
            ("end_episode", "context_length"),
        ),
        (
            400,
            "invalid_request_error",
            "Output blocked by content filtering policy",
            ("end_episode", "content_filter"),
        ),
        (400, "invalid_request_error", "messages: wrong", ("end_episode", "bad_request")),
    ],
)
def test_errors_are_judged_by_their_words(status: int, kind: str, message: str, verdict: tuple[str, str]) -> None:
    data = orjson.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"})
    judged = MESSAGES.judge(HttpResponse(status=status, headers={}, body=data))
    assert (judged.action, judged.kind) == verdict


def test_limits_are_read_against_the_responses_own_date() -> None:
    headers = {
        "date": "Sat, 21 Nov 2026 10:00:00 GMT",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-11-21T10:00:12Z",
        "anthropic-ratelimit-tokens-limit": "30000",
        "anthropic-ratelimit-tokens-remaining": "28000",
        "anthropic-ratelimit-tokens-reset": "2026-11-21T09:59:59Z",
    }
    requests, tokens = MESSAGES.allowances(headers)
    assert requests == Allowance(limit=50.0, remaining=49.0, reset_s=12.0)
    assert tokens == Allowance(limit=30_000.0, remaining=28_000.0, reset_s=0.0)


@pytest.mark.parametrize(
    ("date", "reset", "remaining"),
    [
        ("", "2026-11-21T10:00:12Z", "49"),
        ("soon", "2026-11-21T10:00:12Z", "49"),
        ("Sat, 21 Nov 2026 10:00:00 GMT", "12s", "49"),
        ("Sat, 21 Nov 2026 10:00:00 GMT", "2026-11-21T10:00:12", "49"),
        ("Sat, 21 Nov 2026 10:00:00 GMT", "2026-11-21T10:00:12Z", "51"),
        ("Sat, 21 Nov 2026 10:00:00 GMT", "2026-11-21T10:00:12Z", ""),
    ],
)
def test_nonsense_about_limits_is_not_heeded(date: str, reset: str, remaining: str) -> None:
    start = "anthropic-ratelimit-requests"
    headers = {"date": date, f"{start}-limit": "50", f"{start}-remaining": remaining, f"{start}-reset": reset}
    assert MESSAGES.allowances(headers) == (None, None)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(max_tokens=0), "max_tokens"),
        (Sampling(temperature=1.5), "temperature must be at most 1"),
        (Sampling(top_p=2.0), "top_p must be at most 1"),
        (Sampling(temperature=float("nan")), "temperature"),
        (Sampling(extra="{"), "not JSON"),
        (Sampling(extra='{"output_config":{}}'), "may not set 'output_config'"),
    ],
)
def test_what_cannot_be_expressed_is_objected_to_before_anything_is_sent(sampling: Sampling, words: str) -> None:
    assert any(words in one for one in MESSAGES.objections(sampling, ()))


def test_there_is_nothing_to_object_to_in_ordinary_requests() -> None:
    assert not MESSAGES.objections(Sampling(temperature=1.0, effort="low", extra='{"top_k":40}'), [LOOKUP])
    strange = Tool(name="look up", description="", parameters={})
    assert any("look up" in one for one in MESSAGES.objections(Sampling(), [strange]))


def test_the_version_is_always_sent_and_the_key_where_there_is_one() -> None:
    assert MESSAGES.headers("k") == {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    assert MESSAGES.headers("") == {"anthropic-version": "2023-06-01"}


def test_all_that_is_cached_lasts_as_long_as_is_asked() -> None:
    """What is kept for longer must stand before what is not, so all marks say it; a text that looks like one stays."""
    mark = b',"cache_control":{"type":"ephemeral"}}'
    parts: list[bytes] = []
    MESSAGES.join(
        parts,
        [
            Message(role="system", text="s"),
            Message(role="user", text=mark.decode()),
            Message(role="assistant", text="a"),
        ],
    )
    tools = MESSAGES.encode_tools([Tool(name="f", description="", parameters={})])
    body = MESSAGES.body(MESSAGES.head("m", Sampling(max_tokens=5), Quirks()), tools, parts, None)
    asked = orjson.loads(MESSAGES.caches["1h"].ask(body))
    blocks = [asked["tools"][0], asked["system"][0], asked["messages"][0]["content"][0]]
    assert [block["cache_control"] for block in blocks] == [{"type": "ephemeral", "ttl": "1h"}] * 3
    assert blocks[2]["text"] == mark.decode()


@pytest.mark.parametrize(
    ("creation", "lasting"),
    [
        (None, 70),
        ({}, 70),
        ({"ephemeral_5m_input_tokens": 70, "ephemeral_1h_input_tokens": 0}, 0),
        ({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 70}, 70),
        ({"ephemeral_5m_input_tokens": 30}, 40),
        ({"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 50}, 50),
        ({"ephemeral_5m_input_tokens": 900, "ephemeral_1h_input_tokens": "x"}, 0),
        ({"ephemeral_1h_input_tokens": 900}, 70),
    ],
)
def test_what_is_not_said_to_be_kept_briefly_counts_as_lasting(creation: dict[str, Any] | None, lasting: int) -> None:
    usage = {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 9, "cache_creation_input_tokens": 70}
    if creation is not None:
        usage["cache_creation"] = creation  # type: ignore[assignment]
    body = orjson.dumps({"content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn", "usage": usage})
    found = MESSAGES.decode(body).usage
    assert (found.cached_write, found.lasting) == (70, lasting)
