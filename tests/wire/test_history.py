"""What a model wrote goes back in a form that is accepted; by format and setting, with the bytes of the request."""

import re
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from evalkit.dialogue import Message, ToolCall
from evalkit.replies import decode_reply, encode_reply
from evalkit.wire.dialect import Quirks
from evalkit.wire.gemini import accepted_name
from evalkit.wire.history import fitting_id, plain_name
from evalkit.wire.table import DIALECTS
from tests.support.formats import FORMATS


def sent(dialect: str, *messages: Message, quirks: Quirks | None = None) -> bytes:
    """The messages as a request has them, joined one by one."""
    parts: list[bytes] = []
    for message in messages:
        DIALECTS[dialect].join(parts, (message,), quirks or Quirks())
    return b",".join(parts)


def chat(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(b"[%b]" % body)
    return found


def turn(name: str, call_id: str = "c1", arguments: str = "{}") -> Sequence[Message]:
    call = ToolCall(id=call_id, name=name, arguments=arguments)
    return Message(role="assistant", calls=(call,)), Message(role="tool", text="no", call_id=call_id, name=name)


NAMES = {
    "openai_chat": b'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":'
    b'{"name":"functions_f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"no"}',
    "openai_responses": b'{"type":"function_call","call_id":"c1","name":"functions_f","arguments":"{}"},'
    b'{"type":"function_call_output","call_id":"c1","output":"no"}',
    "anthropic_messages": b'{"role":"assistant","content":['
    b'{"type":"tool_use","id":"c1","name":"functions_f","input":{}}]},'
    b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"no"}]}',
    "gemini": b'{"role":"model","parts":[{"functionCall":{"id":"c1","name":"functions.f","args":{}}}]},'
    b'{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"functions.f","response":{"output":"no"}}}]}',
}


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_call_by_a_name_that_is_refused_goes_back_by_one_that_is_not(dialect: str) -> None:
    assert sent(dialect, *turn("functions.f")) == NAMES[dialect]


def test_names_are_made_of_what_they_were() -> None:
    cases = {
        "get_items": "get_items",
        "multi_tool_use.parallel": "multi_tool_use_parallel",
        "<|channel|>f": "__channel__f",
        "": "unnamed",
        "gr\u00f6\u00dfe\n": "gr__e_",
        "x" * 65: "x" * 64,
    }
    assert {name: plain_name(name) for name in cases} == cases
    assert accepted_name("1.f|") == "_1.f_"
    assert accepted_name("") == "unnamed"
    assert len(accepted_name("9" * 70)) == 64


LONG = "call_" + "x" * 70
NINE = fitting_id(LONG, re.compile("")).encode()


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_an_id_that_is_too_long_is_replaced_in_a_call_and_its_result_alike(dialect: str) -> None:
    assert sent(dialect, *turn("functions.f", LONG)) == NAMES[dialect].replace(b'"c1"', b'"%b"' % NINE)
    assert sent(dialect, *turn("functions.f", "x" * 40)) == NAMES[dialect].replace(b"c1", b"x" * 40)


def test_ids_of_other_forms_are_replaced_where_a_model_refuses_them() -> None:
    quirks = Quirks(refuses=frozenset({"call_ids"}))
    body = sent("openai_chat", *turn("functions.f"), *turn("functions.f", "a1B2c3D4e"), quirks=quirks)
    made = [part["tool_calls"][0]["id"] if "tool_calls" in part else part["tool_call_id"] for part in chat(body)]
    assert made[0] == made[1] != "c1"
    assert re.fullmatch("[a-zA-Z0-9]{9}", made[0])
    assert made[2:] == ["a1B2c3D4e"] * 2


def test_ids_and_names_of_kept_items_are_replaced_too() -> None:
    thought = {"type": "reasoning", "encrypted_content": "g", "summary": []}
    call = {"type": "function_call", "call_id": LONG, "name": "a.b", "arguments": "{}"}
    reply = DIALECTS["openai_responses"].read({"output": [thought, call], "usage": {}})
    assert (reply.calls[0].id, reply.calls[0].name) == (LONG, "a.b")
    assert chat(sent("openai_responses", reply.message())) == [
        thought,
        {**call, "call_id": NINE.decode(), "name": "a_b"},
    ]


SILENT = {
    "openai_chat": b'{"role":"assistant","content":"(no content)"}',
    "openai_responses": b'{"type":"message","role":"assistant","content":"(no content)"}',
    "anthropic_messages": b'{"role":"assistant","content":[{"type":"text","text":"(no content)"}]}',
    "gemini": b'{"role":"model","parts":[{"text":"(no content)"}]}',
}


@pytest.mark.parametrize("dialect", FORMATS)
def test_a_reply_without_a_word_says_so(dialect: str) -> None:
    assert sent(dialect, Message(role="assistant")) == SILENT[dialect]


def test_a_reply_of_thoughts_alone_says_so_after_them() -> None:
    thought = {"text": "hm", "thought": True, "thoughtSignature": "s"}
    reply = DIALECTS["gemini"].read({"candidates": [{"content": {"parts": [thought]}, "finishReason": "MAX_TOKENS"}]})
    assert chat(sent("gemini", reply.message())) == [{"role": "model", "parts": [thought, {"text": "(no content)"}]}]
    item = {"type": "reasoning", "encrypted_content": "g", "summary": []}
    empty = {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "phase": "final"}
    reply = DIALECTS["openai_responses"].read({"output": [item, empty], "usage": {}})
    assert chat(sent("openai_responses", reply.message()))[1]["content"][0]["text"] == "(no content)"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("calls", {"calling": "hm"}),
        ("always", {"words": "hm", "silent": "", "bare": "", "calling": "hm"}),
        ("filled", {"words": "hm", "silent": " ", "bare": " ", "calling": "hm"}),
        ("never", {}),
    ],
)
def test_thoughts_go_back_with_the_messages_that_a_model_wants_them_with(
    setting: Any, expected: dict[str, str]
) -> None:
    calls = [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]
    messages = {
        "words": {"content": "Well.", "reasoning_content": "hm"},
        "silent": {"content": "", "reasoning_content": ""},
        "bare": {"content": None, "tool_calls": calls},
        "calling": {"content": None, "reasoning_content": "hm", "tool_calls": calls},
    }
    for name, message in messages.items():
        logged = decode_reply(encode_reply(DIALECTS["openai_chat"].read({"choices": [{"message": message}]})))
        (back,) = chat(sent("openai_chat", logged.message(), quirks=Quirks(thinking_back=setting)))
        assert back.get("reasoning_content") == expected.get(name), name
        assert bool(back["content"]) == ("tool_calls" not in back), name


RESULT = b'{"role":"tool","tool_call_id":"c1","content":"no'
USER = b'{"role":"user","content":"Go on."}'
ORDERS = {
    "user": RESULT + b'"},' + USER,
    "joined": RESULT + b'\\n\\nGo on."}',
    "bridged": RESULT + b'"},{"role":"assistant","content":"OK."},' + USER,
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_users_text_after_results_stands_where_the_model_takes_it(order: Any) -> None:
    quirks, user = Quirks(after_results=order), Message(role="user", text="Go on.")
    result = Message(role="tool", text="no", call_id="c1")
    assert sent("openai_chat", result, user, quirks=quirks) == ORDERS[order]
    said = Message(role="assistant", text="Well.")
    plain = sent("openai_chat", user, said, user, said)
    assert sent("openai_chat", user, said, user, said, quirks=quirks) == plain
