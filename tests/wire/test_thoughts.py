"""What a model thought, read from replies as each provider sends them, and what of it goes back."""

from typing import Any

import orjson
import pytest

from evalkit.dialogue import Reply
from evalkit.replies import decode_reply, encode_reply
from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES
from evalkit.wire.dialect import Dialect
from evalkit.wire.gemini import GEMINI
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.openai_responses import OPENAI_RESPONSES
from evalkit.wire.thoughts import Thoughts, thoughts_of

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FUNCTION = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def chat(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": "hi", **message}}]}


def responses(*items: dict[str, Any]) -> dict[str, Any]:
    said = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    return {"output": [*items, said]}


def summary(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hmm"}], **more}


SHOWN, HIDDEN, NONE = Thoughts(text="hmm", hidden=0), Thoughts(text="", hidden=1), Thoughts(text="", hidden=0)

CASES = {
    "DeepSeek, an answer": (OPENAI_CHAT, chat(reasoning_content="hmm"), SHOWN, False),
    "DeepSeek, a call": (OPENAI_CHAT, chat(reasoning_content="hmm", tool_calls=[CALL]), SHOWN, True),
    "vLLM's newer name": (OPENAI_CHAT, chat(reasoning="hmm", tool_calls=[CALL]), SHOWN, False),
    "both names": (OPENAI_CHAT, chat(reasoning="hmm", reasoning_content="hmm", tool_calls=[CALL]), SHOWN, True),
    "OpenRouter": (
        OPENAI_CHAT,
        chat(reasoning="hmm", reasoning_details=[{"type": "reasoning.text", "text": "hmm"}]),
        SHOWN,
        True,
    ),
    "OpenRouter, encrypted": (
        OPENAI_CHAT,
        chat(reasoning_details=[{"type": "reasoning.encrypted", "data": "xx"}]),
        HIDDEN,
        True,
    ),
    "odd": (OPENAI_CHAT, chat(reasoning=7, reasoning_details="x"), NONE, False),
    "Responses, sealed": (OPENAI_RESPONSES, responses(summary(encrypted_content="xx")), SHOWN, True),
    "Responses, nothing to send back": (OPENAI_RESPONSES, responses(summary()), SHOWN, False),
    "Responses, hidden": (
        OPENAI_RESPONSES,
        responses({"type": "reasoning", "summary": [], "encrypted_content": "xx"}),
        HIDDEN,
        True,
    ),
    "Responses, open weights": (
        OPENAI_RESPONSES,
        responses({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hmm"}]}),
        SHOWN,
        True,
    ),
    "Anthropic": (
        ANTHROPIC_MESSAGES,
        {"content": [{"type": "thinking", "thinking": "hmm", "signature": "xx"}, {"type": "text", "text": "hi"}]},
        SHOWN,
        True,
    ),
    "Anthropic, redacted": (
        ANTHROPIC_MESSAGES,
        {"content": [{"type": "redacted_thinking", "data": "xx"}, {"type": "text", "text": "hi"}]},
        HIDDEN,
        True,
    ),
    "Gemini": (
        GEMINI,
        {"candidates": [{"content": {"parts": [{"text": "hmm", "thought": True}, {"text": "hi"}]}}]},
        SHOWN,
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_kept_and_sent_back_only_where_the_dialect_wants_it(name: str) -> None:
    dialect: Dialect
    dialect, body, expected, back = CASES[name]
    reply = dialect.read(body)
    assert reply.text == "hi"
    assert thoughts_of(reply) == expected
    assert thoughts_of(decode_reply(encode_reply(reply))) == expected
    assert (b"hmm" in dialect.encode_message(reply.message())) is (back and expected.text == "hmm")


def test_a_reply_without_reasoning_is_logged_as_before() -> None:
    assert orjson.loads(encode_reply(Reply(text="hi"))) == {"calls": [], "finish": "stop", "text": "hi"}
    assert thoughts_of(Reply(text="hi")) == NONE
