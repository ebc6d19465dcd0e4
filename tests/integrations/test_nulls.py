"""Frameworks write null for what they leave out: a request with nulls means the request without them."""

from typing import Any

import orjson
import pytest

from evalkit.integrations.gateway.server import FORMATS
from tests.support.each_case import check_each

TOOL: dict[str, Any] = {"type": "object", "properties": {"a": {"default": None, "enum": [None, 1]}}}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": TOOL}}],
}
CHAT_FIELDS = (
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stream", "stream_options", "tool_choice"),
    *("parallel_tool_calls", "reasoning_effort", "n", "stop", "user", "response_format", "logprobs", "metadata"),
)
RESPONSES: dict[str, Any] = {
    "model": "m",
    "input": [{"role": "user", "content": "Hello."}],
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": TOOL}],
}
RESPONSES_FIELDS = (
    *("max_output_tokens", "temperature", "top_p", "stream", "tool_choice", "parallel_tool_calls", "reasoning"),
    *("instructions", "metadata", "text", "previous_response_id", "include", "truncation", "user"),
)
ANTHROPIC: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
    "tools": [{"name": "f", "description": "d", "input_schema": TOOL}],
}
ANTHROPIC_FIELDS = ("temperature", "top_p", "system", "stream", "tool_choice", "output_config", "metadata", "thinking")

BODIES = {
    "openai_chat": (CHAT, CHAT_FIELDS),
    "openai_responses": (RESPONSES, RESPONSES_FIELDS),
    "anthropic_messages": (ANTHROPIC, ANTHROPIC_FIELDS),
}


def _decoded(dialect: str, body: Any) -> Any:
    return FORMATS[dialect].decode_request(orjson.dumps(body))


@pytest.mark.parametrize("dialect", BODIES)
def test_a_null_is_a_field_that_is_left_out(dialect: str) -> None:
    body, fields = BODIES[dialect]
    plain = _decoded(dialect, body)
    assert plain[1].tools[0].parameters == TOOL

    def check(name: str) -> None:
        assert _decoded(dialect, body | {name: None}) == plain

    check_each([(name, name) for name in fields], check)


@pytest.mark.parametrize("dialect", BODIES)
def test_nulls_within_messages_tools_and_settings_are_left_out_too(dialect: str) -> None:
    def nulled(value: Any) -> Any:
        if isinstance(value, list):
            return [nulled(item) for item in value]
        if isinstance(value, dict) and value is not TOOL:
            return {name: nulled(member) for name, member in value.items()} | {"cache_control": None}
        return value

    body, _ = BODIES[dialect]
    assert _decoded(dialect, nulled(body)) == _decoded(dialect, body)


def test_a_limit_that_must_be_said_cannot_be_null() -> None:
    with pytest.raises(ValueError, match="max_tokens: is required"):
        _decoded("anthropic_messages", ANTHROPIC | {"max_tokens": None})
