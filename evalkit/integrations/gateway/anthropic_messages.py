"""Anthropic Messages as a server speaks it: their request to ours, our reply to their JSON.

For the gateway. Strict where the real server is: turns alternate and begin and end with the user's, every
call is answered at the start of the next message, nothing is answered that was not called, no text is blank, and no
field is unknown (a seed is). Calls' ids must differ within a message only, since policies count theirs again each turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Request, Sampling, Tool, ToolChoice
from evalkit.serve.formats import (
    Cutter,
    Event,
    EventFormat,
    ServedFormat,
    StreamWish,
    as_written,
    check_stream,
    list_of,
    loaded,
)
from evalkit.wire.anthropic_content import read_content, write_content
from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES
from evalkit.wire.lenient import dumps_any

_FIELDS = frozenset({"model", "messages", "max_tokens", "system", "tools", "tool_choice", "temperature", "top_p"}) | {
    *("top_k", "output_config", "thinking", "metadata", "stop_sequences", "stream", "cache_control", "service_tier")
}
_CHOICES: Mapping[str, ToolChoice] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def decode_request(body: bytes) -> tuple[str, Request]:
    """(model, request). Raises ValueError saying what is wrong and where."""
    value = loaded(body)
    for name in value.keys() - _FIELDS:
        raise ValueError(f"{name}: extra inputs are not permitted")
    model = value.get("model", "")
    if not isinstance(model, str) or not model:
        raise ValueError("model: must be a string")
    check_stream(value)
    turns, tools = list_of(value, "messages"), list_of(value, "tools")
    system = value.get("system") or []
    messages = [Message(role="system", text=text) for text in _texts(system, "system")]
    messages += _dialogue(turns)
    if not tools and (value.get("tool_choice") is not None or any(message.calls for message in messages)):
        raise ValueError("tools: must be defined where tools are chosen or were used")
    request = Request(
        messages=tuple(messages),
        tools=tuple(_tool(tool, index) for index, tool in enumerate(tools)),
        sampling=_sampling(value),
        seed=0,
    )
    return model, request


def _sampling(value: Mapping[str, Any]) -> Sampling:
    most = value.get("max_tokens")
    if type(most) is not int or most < 1:
        raise ValueError("max_tokens: is required, an integer of at least 1")
    for name in ("temperature", "top_p"):
        number = value.get(name, 0)
        if type(number) not in (int, float) or not 0 <= number <= 1:
            raise ValueError(f"{name}: must be a number from 0 to 1")
    choice, output = value.get("tool_choice", {"type": "auto"}), value.get("output_config", {})
    if not isinstance(choice, dict) or choice.get("type") not in _CHOICES:
        raise ValueError(f"tool_choice.type: must be one of {', '.join(_CHOICES)}")
    if not isinstance(output, dict) or not isinstance(output.get("effort", ""), str):
        raise ValueError("output_config.effort: must be a string")
    alone = choice.get("disable_parallel_tool_use")
    return Sampling(
        temperature=value.get("temperature"),
        max_tokens=most,
        tool_choice=_CHOICES[choice["type"]],
        parallel_calls=None if alone is None else not alone,
        top_p=value.get("top_p"),
        effort=output.get("effort", ""),
    )


def _tool(tool: Any, index: int) -> Tool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        raise ValueError(f"tools.{index}.name: must be a string")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError(f"tools.{index}.input_schema.type: must be 'object'")
    return Tool(name=tool["name"], description=tool.get("description") or "", parameters=schema)


def _dialogue(turns: Sequence[Any]) -> list[Message]:
    """All turns as messages; the next turn must answer the calls of a turn."""
    messages: list[Message] = []
    remaining: list[str] = []
    for index, turn in enumerate(turns):
        path, role = f"messages.{index}", ("user", "assistant")[index % 2]
        if not isinstance(turn, dict) or turn.get("role") != role:
            raise ValueError(f"{path}.role: must be {role!r}: turns alternate, and the first is the user's")
        content = turn.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not blocks:
            raise ValueError(f"{path}.content: must be a string or a list of blocks, and not empty")
        if role == "user":
            messages += _answers(blocks, remaining, path)
        else:
            messages.append(_said(blocks, path))
            remaining = [call.id for call in messages[-1].calls]
    if len(turns) % 2 == 0:
        raise ValueError("messages: must not be empty, and the last must be the user's")
    return messages


def _answers(blocks: Sequence[Any], remaining: Sequence[str], path: str) -> list[Message]:
    """A user's turn: a result for each call that still needs one, then texts."""
    messages: list[Message] = []
    missing = list(remaining)
    for i, block in enumerate(blocks):
        block_path = f"{path}.content.{i}"
        if not isinstance(block, dict) or block.get("type") != "tool_result":
            messages += [Message(role="user", text=text) for text in _texts([block], block_path)]
        elif block.get("tool_use_id") not in missing:
            raise ValueError(
                f"{block_path}: unexpected `tool_use_id` found in `tool_result` blocks: {block.get('tool_use_id')}"
            )
        elif messages and messages[-1].role == "user":
            raise ValueError(f"{block_path}: `tool_result` blocks must come before any text")
        else:
            missing.remove(block["tool_use_id"])
            text = "".join(_texts(block.get("content") or [], f"{block_path}.content"))
            messages.append(Message(role="tool", text=text, call_id=block["tool_use_id"]))
    if missing:
        raise ValueError(f"{path}: `tool_use` ids were found without `tool_result` blocks: {', '.join(missing)}")
    return messages


def _said(blocks: Sequence[Any], path: str) -> Message:
    taken: set[str] = set()
    for i, block in enumerate(blocks):
        block_path, kind = f"{path}.content.{i}", block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            _texts([block], block_path)
        elif kind == "tool_use":
            if not all(isinstance(block.get(name), str) and block[name] for name in ("id", "name")):
                raise ValueError(f"{block_path}: id and name must be strings")
            if block["id"] in taken:
                raise ValueError(f"{block_path}.id: `tool_use` ids must be unique")
            taken.add(block["id"])
            if not isinstance(block.get("input"), dict):
                raise ValueError(f"{block_path}.input: must be an object")
        elif kind not in ("thinking", "redacted_thinking"):
            raise ValueError(f"{block_path}.type: {kind!r} is not known")
    text, calls, opaque = read_content(blocks)
    return Message(role="assistant", text=text, calls=tuple(as_written(call) for call in calls), opaque=opaque)


def _texts(content: Any, path: str) -> list[str]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise ValueError(f"{path}: must be a string or a list of blocks")
    for block in blocks:
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise ValueError(f"{path}: must be a text block")
        if not block["text"].strip():
            raise ValueError(f"{path}: text content blocks must contain non-whitespace text")
    return [block["text"] for block in blocks]


def _layout(reply: Reply) -> bytes:
    """The blocks of a reply with a thinking block before the others."""
    thinking = {"type": "thinking", "thinking": reply.reasoning, "signature": f"sealed-{len(reply.reasoning)}"}
    return dumps_any([thinking, len(reply.text), *([None] * len(reply.calls))])


def encode_reply(reply: Reply) -> bytes:
    """A 200 body."""
    usage = reply.usage
    return b'{"id":%b,"type":"message","role":"assistant","model":%b,"content":[%b],%b}' % (
        dumps_any(reply.response_id),
        dumps_any(reply.model),
        write_content(reply.text, reply.calls, _layout(reply) if reply.reasoning else reply.opaque),
        orjson.dumps(
            {
                "stop_reason": _REASONS.get(reply.finish, reply.finish),
                "stop_sequence": None,
                "usage": {
                    "input_tokens": usage.input - usage.cached_read - usage.cached_write,
                    "cache_creation_input_tokens": usage.cached_write,
                    "cache_read_input_tokens": usage.cached_read,
                    "output_tokens": usage.output,
                    "output_tokens_details": {"thinking_tokens": usage.reasoning},
                },
            }
        )[1:-1],
    )


_PING: Event = {"type": "ping"}


def _events(value: Mapping[str, Any], _wish: StreamWish, cut: Cutter) -> Iterator[Event]:
    """The events of a 200 body's value."""
    begun, used = {**value, "content": [], "stop_reason": None}, {}
    if "usage" in value:
        used = {"usage": value["usage"]}
        early = {name: count for name, count in value["usage"].items() if name != "output_tokens_details"}
        begun["usage"] = {**early, "output_tokens": 1}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(value["content"]):
        hollow, deltas = _block_deltas(block, cut)
        yield {"type": "content_block_start", "index": index, "content_block": hollow}
        if index == 0:
            yield _PING
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {name: value[name] for name in ("stop_reason", "stop_sequence")}, **used}
    yield {"type": "message_stop"}


def _block_deltas(block: Event, cut: Cutter) -> tuple[Event, list[Event]]:
    """(a block as it starts, its deltas); a block of another type starts whole."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
    if block["type"] == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*thoughts, signed]
    if block["type"] == "tool_use":
        # An input without members is never written.
        written = cut(dumps_any(block["input"]).decode() if block["input"] else "")
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *written)]
        return {**block, "input": {}}, pieces
    return block, []


_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def encode_error(status: int, _code: str, message: str) -> bytes:
    """The body of an error. The API has no codes: a type stands for each status."""
    kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return dumps_any({"type": "error", "error": {"type": kind, "message": message}})


SERVED_ANTHROPIC_MESSAGES = ServedFormat(
    dialect=ANTHROPIC_MESSAGES,
    decode_request=decode_request,
    encode_reply=encode_reply,
    stream=EventFormat(events=_events, named=True),
    encode_error=encode_error,
    reply_id=lambda name: f"msg_01{name[:22]}",
    sdk_path="",
)
