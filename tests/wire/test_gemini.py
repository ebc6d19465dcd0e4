from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.replies import decode_reply, encode_reply
from evalkit.wire.dialect import MalformedReplyError, Quirks
from evalkit.wire.gemini import GEMINI
from tests.provider.dialects import GEMINI as SERVED

LOOKUP = Tool(
    name="lookup", description="Look a key up.", parameters={"type": "object", "properties": {"k": {"type": "integer"}}}
)
ONE = ToolCall(id="c1", name="lookup", arguments='{"k":1}')
TWO = ToolCall(id="c2", name="lookup", arguments='{"k":2}')
CUT = ToolCall(id="a", name="f", arguments="{oops")
THOUGHT = {"text": "Hm.", "thought": True}


def user(*parts: bytes) -> bytes:
    return b'{"role":"user","parts":[' + b",".join(parts) + b"]}"


def model(*parts: bytes) -> bytes:
    return b'{"role":"model","parts":[' + b",".join(parts) + b"]}"


def result(call_id: str, text: str, name: str = "lookup") -> bytes:
    return f'{{"functionResponse":{{"id":"{call_id}","name":"{name}","response":{{"output":"{text}"}}}}}}'.encode()


CALL_1 = b'{"functionCall":{"id":"c1","name":"lookup","args":{"k":1}}}'
CALL_2 = b'{"functionCall":{"id":"c2","name":"lookup","args":{"k":2}}}'

ENCODED = [
    (Message(role="system", text="Be brief."), b'\x01{"text":"Be brief."}'),
    (Message(role="system"), b"\x01"),
    (Message(role="user", text='Gr\u00fc\u00dfe "x"\n'), user('{"text":"Gr\u00fc\u00dfe \\"x\\"\\n"}'.encode())),
    (Message(role="user"), user(b'{"text":"(no content)"}')),
    (Message(role="assistant", text="No."), model(b'{"text":"No."}')),
    (Message(role="assistant"), model(b'{"text":"(no content)"}')),
    (Message(role="assistant", text="So:", calls=(ONE, TWO)), model(b'{"text":"So:"}', CALL_1, CALL_2)),
    (
        Message(role="assistant", calls=(CUT,)),
        model(b'{"functionCall":{"id":"a","name":"f","args":{"_raw":"{oops"}}}'),
    ),
    (
        Message(role="assistant", calls=(ToolCall(id="a", name="", arguments=""),)),
        model(b'{"functionCall":{"id":"a","name":"unnamed","args":{}}}'),
    ),
    (Message(role="tool", text="42", call_id="c1", name="lookup"), user(result("c1", "42"))),
    (Message(role="tool", call_id="c1"), user(result("c1", "", "unnamed"))),
]


@pytest.mark.parametrize(("message", "data"), ENCODED)
def test_a_message_has_its_bytes(message: Message, data: bytes) -> None:
    assert GEMINI.encode_message(message) == data


CHAT = (
    Message(role="system", text="Be brief."),
    Message(role="user", text="Begin."),
    Message(role="assistant", text="So:", calls=(ONE, TWO)),
    Message(role="tool", text="42", call_id="c1", name="lookup"),
    Message(role="tool", call_id="c2", name="lookup"),
    Message(role="user", text="Prices changed."),
    Message(role="assistant", text="Done?"),
    Message(role="user", text="Go on."),
    Message(role="assistant", calls=(CUT,)),
    Message(role="tool", text="What?", call_id="a", name="f"),
)
PLAIN = Sampling()


def body(
    *messages: Message, sampling: Sampling = PLAIN, tools: tuple[Tool, ...] = (LOOKUP,), seed: int | None = 7
) -> bytes:
    parts: list[bytes] = []
    GEMINI.join(parts, messages)
    return GEMINI.body(GEMINI.head("m", sampling, Quirks()), GEMINI.encode_tools(tools), parts, seed)


def test_a_body_has_its_bytes() -> None:
    assert body(*CHAT[:6]) == (
        b'{"generationConfig":{"maxOutputTokens":4096,"seed":7},"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},'
        b'"tools":[{"functionDeclarations":[{"name":"lookup","description":"Look a key up.","parametersJsonSchema":'
        b'{"type":"object","properties":{"k":{"type":"integer"}}}}]}],"systemInstruction":{"parts":[{"text":'
        b'"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"Begin."}]},'
        b'{"role":"model","parts":[{"text":"So:"},'
        + CALL_1
        + b","
        + CALL_2
        + b"]},"
        + user(result("c1", "42"), result("c2", ""), b'{"text":"Prices changed."}')
        + b"]}"
    )


def test_what_a_client_sends_is_what_a_server_reads() -> None:
    sampling = Sampling(temperature=0.5, max_tokens=12, tool_choice="required", top_p=0.5, effort="low")
    name, request = SERVED.decode(body(*CHAT, sampling=sampling), "m/1")
    assert (name, request.seed, request.sampling, request.tools) == ("m/1", 7, sampling, (LOOKUP,))
    assert request.messages == CHAT
    budget = Sampling(effort="-1", tool_choice="none")
    assert SERVED.decode(body(*CHAT, sampling=budget, seed=None), "m")[1].sampling == budget


def test_a_chat_without_system_or_tools_sends_neither() -> None:
    value = orjson.loads(body(Message(role="user", text="Begin."), tools=(), seed=None))
    assert value == {
        "generationConfig": {"maxOutputTokens": 4096},
        "contents": [{"role": "user", "parts": [{"text": "Begin."}]}],
    }
    assert b"systemInstruction" not in body(Message(role="system"), Message(role="user", text="Begin."))


EXTRA = '{"safetySettings":[],"generationConfig":{"topK":40,"thinkingConfig":{"includeThoughts":true}}}'
MODE: dict[str, object] = {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}

HEADS: list[tuple[Sampling, Quirks, dict[str, object], dict[str, object]]] = [
    (Sampling(), Quirks(), {}, MODE),
    (
        Sampling(temperature=1.0, top_p=0.5, tool_choice="required", parallel_calls=False, effort="high"),
        Quirks(),
        {"temperature": 1.0, "topP": 0.5, "thinkingConfig": {"thinkingLevel": "high"}},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
    ),
    (
        Sampling(temperature=1.0, top_p=0.5, tool_choice="required", effort="low"),
        Quirks(refuses=frozenset({"temperature", "top_p", "tool_choice", "effort"})),
        {},
        {},
    ),
    (Sampling(effort="1024"), Quirks(), {"thinkingConfig": {"thinkingBudget": 1024}}, MODE),
    (
        Sampling(extra=EXTRA, effort="low"),
        Quirks(),
        {"topK": 40, "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}},
        {"safetySettings": [], **MODE},
    ),
]


@pytest.mark.parametrize(("sampling", "quirks", "config", "fields"), HEADS)
def test_a_body_holds_what_was_asked_for_and_nothing_else(
    sampling: Sampling, quirks: Quirks, config: Mapping[str, object], fields: Mapping[str, object]
) -> None:
    head, tools = GEMINI.head("m", sampling, quirks), GEMINI.encode_tools([LOOKUP])
    value = orjson.loads(GEMINI.body(head, tools, [GEMINI.encode_message(CHAT[1])], 7))
    assert value == {
        "generationConfig": {"maxOutputTokens": 4096, "seed": 7, **config},
        "tools": orjson.loads(tools),
        "contents": [{"role": "user", "parts": [{"text": "Begin."}]}],
        **fields,
    }


REPLIES = [
    (
        Reply(text="The answer is 42.", usage=Usage(input=11, output=5), model="m-1", response_id="r1"),
        b'{"candidates":[{"content":{"role":"model","parts":[{"text":"The answer is 42."}]},"finishReason":"STOP",'
        b'"index":0}],"usageMetadata":{"promptTokenCount":11,"cachedContentTokenCount":0,"candidatesTokenCount":5,'
        b'"thoughtsTokenCount":0,"totalTokenCount":16},"modelVersion":"m-1","responseId":"r1"}',
    ),
    (
        Reply(
            text="So:",
            calls=(ONE, TWO),
            finish="tool_calls",
            usage=Usage(input=100, output=30, cached_read=64, reasoning=20),
        ),
        b'{"candidates":[{"content":{"role":"model","parts":[{"text":"So:"},' + CALL_1 + b"," + CALL_2 + b"]},"
        b'"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":64,'
        b'"candidatesTokenCount":10,"thoughtsTokenCount":20,"totalTokenCount":130},"modelVersion":"","responseId":""}',
    ),
    (
        Reply(finish="content_filter", usage=Usage(input=3, output=1)),
        b'{"candidates":[{"content":{"role":"model","parts":[]},"finishReason":"SAFETY","index":0}],"usageMetadata":'
        b'{"promptTokenCount":3,"cachedContentTokenCount":0,"candidatesTokenCount":1,"thoughtsTokenCount":0,'
        b'"totalTokenCount":4},"modelVersion":"","responseId":""}',
    ),
    (
        Reply(text="and so", finish="length", usage=Usage(input=1, output=2, reasoning=2)),
        b'{"candidates":[{"content":{"role":"model","parts":[{"text":"and so"}]},"finishReason":"MAX_TOKENS",'
        b'"index":0}],"usageMetadata":{"promptTokenCount":1,"cachedContentTokenCount":0,"candidatesTokenCount":0,'
        b'"thoughtsTokenCount":2,"totalTokenCount":3},"modelVersion":"","responseId":""}',
    ),
]


@pytest.mark.parametrize(("reply", "data"), REPLIES)
def test_a_reply_has_its_bytes_in_both_directions(reply: Reply, data: bytes) -> None:
    assert SERVED.encode_reply(reply) == data
    assert GEMINI.decode(data) == reply


def reply_of(parts: Any, reason: Any = "STOP", usage: Any = None) -> Reply:
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason}
    return GEMINI.read({"candidates": [candidate], "usageMetadata": usage})


def test_a_prompt_that_was_blocked_is_a_reply_and_what_it_cost_is_counted() -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
    assert GEMINI.read(blocked) == Reply(finish="content_filter", usage=Usage(input=9))


@pytest.mark.parametrize(
    "data",
    [b"[]", b"null", b"{}", b'{"candidates":[]}', b'{"candidates":[5]}', b'{"promptFeedback":{}}', b'{"error":{}}'],
)
def test_a_body_without_candidate_or_block_is_no_reply(data: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        GEMINI.decode(data)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        (None, "stop"),
        ("FINISH_REASON_UNSPECIFIED", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"),
        ("UNEXPECTED_TOOL_CALL", "UNEXPECTED_TOOL_CALL"),
        ("SOMETHING_NEW", "SOMETHING_NEW"),
    ],
)
def test_finish_reasons_are_put_in_our_words(reason: object, finish: str) -> None:
    assert reply_of([{"text": "x"}], reason).finish == finish
    without_content = {"candidates": [{"finishReason": reason}]}
    assert GEMINI.read(without_content) == Reply(finish=finish)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"promptTokenCount": -5, "candidatesTokenCount": "many"}, Usage()),
        (
            {
                "promptTokenCount": 50,
                "toolUsePromptTokenCount": 7,
                "cachedContentTokenCount": 40,
                "candidatesTokenCount": 5,
                "thoughtsTokenCount": 11,
                "totalTokenCount": 73,
            },
            Usage(input=57, output=16, cached_read=40, reasoning=11),
        ),
        ({"promptTokenCount": 5, "cachedContentTokenCount": 9}, Usage(input=14, cached_read=9)),
        (
            {"promptTokenCount": 2**40, "thoughtsTokenCount": 2**40, "candidatesTokenCount": 1},
            Usage(),
        ),
    ],
)
def test_usage_counts_thoughts_as_output_and_is_made_consistent(usage: object, expected: Usage) -> None:
    assert reply_of([], usage=usage).usage == expected


def call(name: str, given: str | None = None, **members: Any) -> dict[str, Any]:
    named = {} if given is None else {"id": given}
    return {"functionCall": {**named, "name": name, "args": {"k": 1}}, **members}


def test_calls_without_ids_are_named_by_their_place_and_no_name_is_given_twice() -> None:
    parts = [call("a"), call("b", "call_0"), call("c", "x"), call("d", "x"), call("e", "")]
    ids = [one.id for one in reply_of(parts).calls]
    assert ids == ["call_0_", "call_0", "x", "call_3", "call_4"]
    assert [one.id for one in reply_of(parts).calls] == ids
    assert reply_of([call("a"), call("b")]).calls[1].id == "call_1"


def test_arguments_are_compact_json_and_an_object_where_there_are_none() -> None:
    parts = [{"functionCall": {"id": str(i), "name": "f", **args}} for i, args in enumerate(({}, {"args": None}))]
    assert [one.arguments for one in reply_of([*parts, call("f", "2")]).calls] == ["{}", "{}", '{"k":1}']


SIGNED: list[list[dict[str, Any]]] = [
    [THOUGHT, call("a", "1", thoughtSignature="s1=="), call("b", "2")],
    [{"text": "First ", "thoughtSignature": "s2=="}, {"text": "then."}, call("c", "3"), {"text": " Last."}],
    [call("d", "4", thoughtSignature="s3=="), {"text": "", "thoughtSignature": "s4=="}],
    [{"inlineData": {"mimeType": "x", "data": "eA=="}}, {"text": "\u00e9\U0001f600", "thoughtSignature": "s5=="}],
    [call("e", "5", thoughtSignature="s6==", later=[1, None]), call("f", "6", thoughtSignature="s7==")],
]


def test_signatures_go_back_on_the_parts_they_came_with_over_many_turns_and_through_the_log() -> None:
    chat: list[Message] = [Message(role="user", text="Begin.")]
    parts: list[bytes] = []
    GEMINI.join(parts, chat)
    for content in SIGNED:
        reply = decode_reply(encode_reply(reply_of(content)))
        turn = [reply.message()]
        turn += [Message(role="tool", text="ok", call_id=one.id, name=one.name) for one in reply.calls]
        turn += [Message(role="user", text="Go on.")]
        GEMINI.join(parts, turn)
        chat += turn
    value = orjson.loads(GEMINI.body(GEMINI.head("m", PLAIN, Quirks()), b"", parts, None))
    assert [turn["parts"] for turn in value["contents"] if turn["role"] == "model"] == SIGNED
    assert [turn["role"] for turn in value["contents"]] == ["user", "model"] * len(SIGNED) + ["user"]


def test_a_signed_turn_is_read_by_a_server_and_served_again() -> None:
    for content in SIGNED:
        if "inlineData" in content[0]:
            continue
        reply = reply_of(content)
        answered = [Message(role="tool", text="ok", call_id=one.id, name=one.name) for one in reply.calls]
        _, request = SERVED.decode(body(CHAT[1], reply.message(), *answered, Message(role="user", text="?")), "m")
        assert request.messages[1] == reply.message()
        assert GEMINI.decode(SERVED.encode_reply(reply)) == reply


def test_a_reply_without_signatures_has_no_opaque_part() -> None:
    reply = reply_of([call("a", "1"), {"text": "x"}, {"text": "y"}])
    assert (reply.text, reply.opaque, len(reply.calls)) == ("xy", b"", 1)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
called = st.fixed_dictionaries({}, optional={"id": junk, "name": junk, "args": junk})
part = st.fixed_dictionaries(
    {}, optional={"text": junk, "thought": junk, "functionCall": junk | called, "thoughtSignature": junk}
)


@given(st.lists(junk | part, max_size=5), junk, junk)
def test_any_content_is_a_reply_that_can_be_sent_back(content: list[object], reason: Any, usage: Any) -> None:
    reply = reply_of(content, reason, usage)
    assert reply.finish
    assert reply.usage.cached_read <= reply.usage.input
    assert reply.usage.reasoning <= reply.usage.output
    assert decode_reply(encode_reply(reply)).message() == reply.message()
    parts = orjson.loads(GEMINI.encode_message(reply.message()))["parts"]
    assert parts
    calls = [one["functionCall"] for one in parts if isinstance(one.get("functionCall"), dict)]
    assert [one["id"] for one in calls] == [one.id for one in reply.calls]
    assert len({one["id"] for one in calls}) == len(calls)
    assert all(one["name"] and isinstance(one["args"], dict) for one in calls)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
arguments = st.dictionaries(texts, st.integers(-5, 5) | texts, max_size=3).map(
    lambda value: orjson.dumps(value).decode()
)


@st.composite
def chats(draw: st.DrawFn) -> tuple[Message, ...]:
    said = [Message(role="system", text=draw(texts) or "s"), Message(role="user", text=draw(texts) or "u")]
    for _ in range(draw(st.integers(0, 3))):
        calls = tuple(
            ToolCall(id=f"c{place}", name="lookup", arguments=draw(arguments))
            for place in range(draw(st.integers(0, 3)))
        )
        said.append(Message(role="assistant", text=draw(texts) if calls else "said", calls=calls))
        said += [Message(role="tool", text=draw(texts), call_id=one.id, name=one.name) for one in calls]
        if not calls or draw(st.booleans()):
            said.append(Message(role="user", text=draw(texts) or "u"))
    return tuple(said)


@given(chats(), st.integers(0, 2**31 - 1))
def test_every_chat_reads_as_it_was_sent(chat: tuple[Message, ...], seed: int) -> None:
    _, request = SERVED.decode(body(*chat, seed=seed), "m")
    assert (request.messages, request.seed) == (chat, seed)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(max_tokens=0), "max_tokens"),
        (Sampling(temperature=2.5), "temperature must be at most 2"),
        (Sampling(top_p=1.5), "top_p must be at most 1"),
        (Sampling(temperature=float("nan")), "temperature"),
        (Sampling(effort="very high"), "effort must be a level"),
        (Sampling(effort="-2"), "effort must be a level"),
        (Sampling(extra="{"), "not JSON"),
        (Sampling(extra='{"contents":[]}'), "may not set 'contents'"),
        (Sampling(extra='{"generationConfig":5}'), "generationConfig must be an object"),
        (Sampling(extra='{"generationConfig":{"thinkingConfig":[]}}'), "thinkingConfig must be an object"),
        (Sampling(extra='{"generationConfig":{"candidateCount":8}}'), "may not set 'generationConfig.candidateCount'"),
        (
            Sampling(extra='{"generationConfig":{"candidate_count":8}}'),
            "may not set 'generationConfig.candidate_count'",
        ),
        (Sampling(extra='{"generation_config":{"topK":8}}'), "write 'generationConfig', not 'generation_config'"),
        (Sampling(extra='{"generationConfig":{"thinking_config":{}}}'), "write 'generationConfig.thinkingConfig'"),
        (Sampling(extra='{"generation_config":{"MAXOUTPUTTOKENS":8}}'), "may not set 'generation_config.MAXOUTPUT"),
        (Sampling(extra='{"generationConfig":{"thinkingConfig":{"thinkingLevel":"low"}}}'), "evalkit sets it"),
    ],
)
def test_what_cannot_be_expressed_is_objected_to_before_anything_is_sent(sampling: Sampling, words: str) -> None:
    assert any(words in one for one in GEMINI.objections(sampling, ()))


@pytest.mark.parametrize("name", ["look up", "1up", "-x", "", "x" * 65, "gr\u00fc\u00dfe"])
def test_names_of_tools_that_are_refused_are_objected_to(name: str) -> None:
    assert any(repr(name) in one for one in GEMINI.objections(PLAIN, [Tool(name=name, description="", parameters={})]))


def test_there_is_nothing_to_object_to_in_ordinary_requests() -> None:
    dotted = Tool(name="_a.b:c-d", description="", parameters={})
    assert not GEMINI.objections(Sampling(temperature=2.0, effort="low", extra=EXTRA), [LOOKUP, dotted])


def test_the_key_has_a_header_of_its_own_and_the_model_is_in_the_path() -> None:
    assert GEMINI.headers("k") == {"x-goog-api-key": "k"}
    assert GEMINI.headers("") == {}
    assert GEMINI.path_of("gemini-x") == "/models/gemini-x:generateContent"
    assert SERVED.model_of("/models/gemini-x:generateContent") == "gemini-x"
    assert GEMINI.allowances({"retry-after": "5"}) == (None, None)
