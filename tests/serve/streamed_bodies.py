"""Streams read as their formats' documentation says, to whole bodies; for the tests of the simulated provider."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from evalkit.serve.outcome import Arrival

Value = dict[str, Any]


def wanting_stream(whole: Arrival, *, usage: bool = True) -> Arrival:
    """The same request for a stream."""
    options = b',"stream_options":{"include_usage":true}' if usage and "completions" in whole.path else b""
    return replace(whole, body=b'%b,"stream":true%b}' % (whole.body[:-1], options))


def events(body: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, data) of each server-sent event; an event that is not ended by an empty line is none."""
    name, data = "", []
    lines = body.decode().replace("\r\n", "\n").split("\n")
    for line in lines[:-1]:
        field, _, text = line.partition(":")
        if field == "event":
            name = text.strip()
        elif field == "data":
            data.append(text.removeprefix(" "))
        elif not line:
            if data:
                yield name, "\n".join(data).encode()
            name, data = "", []


def assembled(dialect: str, body: bytes) -> Value:
    """The body that the same request would have got whole."""
    return _ASSEMBLERS[dialect]([(name, data) for name, data in events(body)])


def _chat(found: list[tuple[str, bytes]]) -> Value:
    assert found[-1] == ("", b"[DONE]")
    chunks = [orjson.loads(data) for _, data in found[:-1]]
    whole = {**chunks[0], "object": "chat.completion"}
    message: Value = {"content": None}
    calls: dict[int, Value] = {}
    finish = None
    for chunk in chunks:
        assert (chunk["id"], chunk["object"], chunk["model"]) == (whole["id"], "chat.completion.chunk", whole["model"])
        whole["usage"] = chunk.get("usage")
        for choice in chunk["choices"]:
            assert finish is None
            finish = choice["finish_reason"]
            for name, piece in choice["delta"].items():
                if name == "tool_calls":
                    for call in piece:
                        _join_call(calls, call)
                elif piece is not None:
                    message[name] = (message.get(name) or "") + piece
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    return whole


def _join_call(calls: dict[int, Value], delta: Value) -> None:
    index = delta.pop("index")
    if index not in calls:
        calls[index] = delta
    else:
        assert delta.keys() == {"function"}
        calls[index]["function"]["arguments"] += delta["function"]["arguments"]


def _responses(found: list[tuple[str, bytes]]) -> Value:
    values = [orjson.loads(data) for _, data in found]
    assert [value["type"] for value in values] == [name for name, _ in found]
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    assert values[0]["type"] == "response.created"
    items: list[Value] = []
    for value in values:
        kind = value["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert value["output_index"] == len(items)
            items.append(value["item"])
        elif kind in ("content_part.added", "reasoning_summary_part.added"):
            items[-1]["content" if kind.startswith("content") else "summary"].append(value["part"])
        elif kind.endswith((".delta", "text.done", "refusal.done", "arguments.done")):
            assert value["item_id"] == items[value["output_index"]]["id"]
            holder, member = _texts(items[-1], kind)
            if kind.endswith(".delta"):
                holder[member] += value["delta"]
            else:
                assert holder[member] == value[member]
        elif kind.endswith("part.done"):
            assert value["part"] == items[-1]["content" if kind.startswith("content") else "summary"][-1]
        elif kind == "output_item.done":
            sealed = {name: value["item"][name] for name in ("encrypted_content", "status") if name in value["item"]}
            assert items[-1] | sealed == value["item"]
            items[-1] |= sealed
    whole: Value = values[-1]["response"]
    assert values[-1]["type"] == f"response.{whole['status']}"
    assert whole["output"] == items
    return whole


def _texts(item: Value, kind: str) -> tuple[Value, str]:
    if item["type"] == "function_call":
        return item, "arguments"
    holder = item["content" if item["type"] == "message" else "summary"][-1]
    return holder, "refusal" if kind.startswith("refusal") else "text"


_MEMBERS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _messages(found: list[tuple[str, bytes]]) -> Value:
    values = [orjson.loads(data) for _, data in found]
    assert [value["type"] for value in values] == [name for name, _ in found]
    assert (values[0]["type"], values[-1]["type"]) == ("message_start", "message_stop")
    whole: Value = values[0]["message"]
    inputs: dict[int, str] = {}
    for value in values[1:-1]:
        index = value.get("index")
        if value["type"] == "content_block_start":
            assert index == len(whole["content"])
            whole["content"].append(value["content_block"])
        elif value["type"] == "content_block_delta":
            delta = value["delta"]
            if delta["type"] == "input_json_delta":
                inputs[index] = inputs.get(index, "") + delta["partial_json"]
            else:
                whole["content"][index][_MEMBERS[delta["type"]]] += delta[_MEMBERS[delta["type"]]]
        elif value["type"] == "content_block_stop":
            if inputs.get(index):
                whole["content"][index]["input"] = orjson.loads(inputs[index])
        elif value["type"] == "message_delta":
            whole |= value["delta"]
            if "usage" in value:
                whole["usage"] |= value["usage"]
        else:
            assert value["type"] == "ping"
    return whole


_ASSEMBLERS = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
}
