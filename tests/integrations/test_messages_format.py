"""What the gateway refuses in Anthropic's format; what it takes is tested beside the client's direction."""

from typing import Any

import orjson
import pytest

from evalkit.integrations.gateway.anthropic_messages import decode_request

TOOL_USE = {"type": "tool_use", "id": "a", "name": "lookup", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
TEXT = {"type": "text", "text": "x"}


def turns(*contents: Any) -> dict[str, Any]:
    return {"messages": [{"role": ("user", "assistant")[i % 2], "content": one} for i, one in enumerate(contents)]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"seed": 5}, "seed: extra"),
    ({"stream": "yes"}, "stream"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": 1.5}, "temperature"),
    ({"top_p": "x"}, "top_p"),
    ({"tool_choice": {"type": "required"}}, "tool_choice"),
    ({"tools": None, "tool_choice": {"type": "any"}}, "tools: must be defined"),
    ({"tools": [{"name": "f", "input_schema": {}}]}, "input_schema.type"),
    ({"tools": [{"input_schema": {"type": "object"}}]}, r"tools.0.name"),
    ({"output_config": {"effort": 5}}, "effort"),
    ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks must contain"),
    ({"messages": []}, "messages: must not be empty"),
    ({"messages": "x"}, "messages: must be a list"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": "x"}] * 2}, "messages.1.role.*alternate"),
    (turns("x", "y"), "the last must be the user's"),
    (turns([]), "not empty"),
    (turns(" "), "non-whitespace"),
    (turns("x", [TEXT, {"type": "text", "text": ""}], "y"), "messages.1.content.1: text content blocks"),
    (turns("x", [TOOL_USE], "y"), "without `tool_result` blocks: a"),
    (turns("x", [TOOL_USE], [TEXT, RESULT]), "before any text"),
    (turns("x", [TOOL_USE], [RESULT, RESULT]), "unexpected `tool_use_id`"),
    (turns("x", [TOOL_USE], [RESULT], "z", [RESULT]), "unexpected `tool_use_id`"),
    (turns([RESULT]), "unexpected `tool_use_id`"),
    (turns("x", [TOOL_USE, TOOL_USE], [RESULT]), "ids must be unique"),
    (turns("x", [{**TOOL_USE, "input": "{}"}], [RESULT]), "input: must be an object"),
    (turns("x", [{**TOOL_USE, "name": ""}], [RESULT]), "id and name"),
    (turns("x", [{"type": "image"}], "y"), "'image' is not known"),
    (turns([{"type": "image"}]), "must be a text block"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_a_server_refuses_what_the_real_one_refuses(change: dict[str, Any], words: str) -> None:
    value = {
        "model": "m",
        "max_tokens": 5,
        "tools": [{"name": "lookup", "input_schema": {"type": "object"}}],
        **turns("x"),
    }
    assert decode_request(orjson.dumps(value))[0] == "m"
    with pytest.raises(ValueError, match=words):
        decode_request(orjson.dumps({k: v for k, v in {**value, **change}.items() if v is not None}))


@pytest.mark.parametrize("data", [b"{", b"[]", b"5"])
def test_a_server_refuses_what_is_no_object(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_request(data)
