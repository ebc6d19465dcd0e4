"""OpenAI Responses as a server speaks it: their request to ours, our reply to their JSON.

For the gateway, which stores nothing. Strict where the real server is: fields it does not know, calls and
outputs without each other, and reasoning that could only be found in a store are a ValueError with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalkit.dialogue import Message, Reply, Request, Role, Sampling, Tool, ToolCall
from evalkit.serve.formats import Cutter, Event, EventFormat, StreamWish, check_stream, list_of, loaded
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT, sampling_of
from evalkit.wire.fields import object_of
from evalkit.wire.lenient import dumps_any
from evalkit.wire.openai_responses import LEAST_TOKENS, OPENAI_RESPONSES

_KNOWN = (
    frozenset({"model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "tools", "tool_choice"})
    | frozenset(
        {
            "parallel_tool_calls",
            "max_tool_calls",
            "reasoning",
            "text",
            "truncation",
            "include",
            "store",
            "metadata",
            "user",
        }
    )
    | frozenset(
        {"stream", "background", "previous_response_id", "conversation", "prompt", "service_tier", "top_logprobs"}
    )
    | frozenset({"prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
)

_UNSERVED = ("background", "previous_response_id", "conversation", "prompt")
"""Fields of the API that the gateway cannot honour."""

_ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}


def decode_request(body: bytes) -> tuple[str, Request]:
    """(model, request); the request has no seed, as the API has none. Raises ValueError saying what is wrong."""
    value = loaded(body)
    for name in value:
        if name not in _KNOWN:
            raise ValueError(f"{name}: unknown parameter")
    for name in _UNSERVED:
        if value.get(name):
            raise ValueError(f"{name}: is not supported")
    check_stream(value)
    model = value.get("model")
    if not isinstance(model, str) or not model:
        raise ValueError("model: must be a string")
    tools = tuple(_tool(tool, index) for index, tool in enumerate(list_of(value, "tools")))
    if value.get("tool_choice", "auto") not in ("auto", "none") and not tools:
        raise ValueError("tool_choice: must be specified with tools")
    request = Request(messages=_messages(value), tools=tools, sampling=_sampling(value), seed=0)
    return model, request


def _sampling(value: Mapping[str, Any]) -> Sampling:
    most = value.get("max_output_tokens", Sampling().max_tokens)
    if type(most) is not int or most < LEAST_TOKENS:
        raise ValueError(f"max_output_tokens: must be an integer of at least {LEAST_TOKENS}")
    return sampling_of(value, most, object_of(value, "reasoning").get("effort") or "")


def _tool(tool: Any, index: int) -> Tool:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise ValueError(f"tools[{index}].type: only functions are served")
    name, parameters = tool.get("name"), tool.get("parameters")
    if not isinstance(name, str):
        raise ValueError(f"tools[{index}].name: must be a string")
    if parameters is not None and not isinstance(parameters, dict):
        raise ValueError(f"tools[{index}].parameters: must be an object")
    return Tool(name=name, description=tool.get("description") or "", parameters=parameters or {})


def _messages(value: Mapping[str, Any]) -> tuple[Message, ...]:
    """The chat: what the assistant said without a pause between is one message, in how many items it may have come."""
    messages: list[Message] = []
    if value.get("instructions"):
        messages.append(Message(role="system", text=_content(value["instructions"], "instructions")))
    text = value.get("input")
    if isinstance(text, str) and text:
        return (*messages, Message(role="user", text=text))
    items = list_of(value, "input")
    if not items:
        raise ValueError("input: must not be empty")
    _check_pairs(items)
    parts: list[tuple[str, Any]] = []
    for index, item in enumerate(items):
        path = f"input[{index}]"
        part = _part(item, path)
        if isinstance(part, Message):
            if parts:
                messages.append(_assistant(parts))
            parts = []
            messages.append(part)
        else:
            parts.append(part)
    if parts:
        messages.append(_assistant(parts))
    return tuple(messages)


def _assistant(parts: Sequence[tuple[str, Any]]) -> Message:
    texts, calls = (tuple(part for kind, part in parts if kind == wanted) for wanted in ("text", "call"))
    return Message(role="assistant", text="".join(texts), calls=calls)


def _part(item: Mapping[str, Any], path: str) -> Message | tuple[str, Any]:
    """An item as a message of its own, or as a part (kind, value) of what the assistant said."""
    kind = item.get("type", "message")
    if kind == "message":
        if item.get("role") not in _ROLES:
            raise ValueError(f"{path}.role: must be one of {', '.join(_ROLES)}")
        role, text = _ROLES[item["role"]], _content(item.get("content"), path)
        return ("text", text) if role == "assistant" else Message(role=role, text=text)
    if kind == "function_call_output":
        return Message(role="tool", text=_content(item.get("output"), path), call_id=item["call_id"])
    if kind == "function_call":
        name, arguments = item.get("name"), item.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise ValueError(f"{path}: name and arguments must be strings")
        return "call", ToolCall(id=item["call_id"], name=name, arguments=arguments)
    if kind == "reasoning":
        _check_reasoning(item, path)
        return "reasoning", None
    raise ValueError(f"{path}.type: {kind!r} is not supported")


def _check_pairs(items: Sequence[Any]) -> None:
    """Every output has its call before it, every call its output after it, every reasoning something after it."""
    open_calls: dict[str, str] = {}
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ValueError(f"input[{index}]: must be an object")
        kind, call_id = item.get("type"), item.get("call_id")
        if kind not in ("function_call", "function_call_output"):
            continue
        if not isinstance(call_id, str) or not call_id:
            raise ValueError(f"input[{index}].call_id: must be a string")
        if kind == "function_call":
            open_calls[call_id] = call_id
        elif open_calls.pop(call_id, None) is None:
            raise ValueError(f"input: no tool call found for function call output with call_id {call_id}")
    for call_id in open_calls:
        raise ValueError(f"input: no tool output found for function call {call_id}")
    for item, after in zip(items, [*items[1:], {}], strict=True):
        said = after.get("type") in ("reasoning", "function_call") or after.get("role") == "assistant"
        if item.get("type") == "reasoning" and not said:
            raise ValueError(f"input: item {item.get('id')!r} of type 'reasoning' is without its following item")


def _check_reasoning(item: Mapping[str, Any], path: str) -> None:
    if not isinstance(item.get("summary"), list):
        raise ValueError(f"{path}.summary: must be a list")
    if "status" in item:
        raise ValueError(f"{path}.status: unknown parameter")
    if not item.get("encrypted_content"):
        raise ValueError(f"{path}: item {item.get('id')!r} not found: nothing is stored, and it has no content")


def _content(content: Any, path: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError(f"{path}: must be a string, or a list of parts with texts")
    texts = [part.get("text", part.get("refusal")) for part in content]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{path}: every part must have a text")
    return "".join(texts)


def encode_reply(reply: Reply) -> bytes:
    """A 200 body. `created_at` is 0: the wire knows no clock. The API has no fingerprint: that of a reply is lost."""
    reason = _INCOMPLETE.get(reply.finish)
    usage = reply.usage
    return dumps_any(
        {
            "id": reply.response_id,
            "object": "response",
            "created_at": 0,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": reply.model,
            "output": _output(reply, "incomplete" if reason else "completed"),
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_read,
                    "cache_write_tokens": usage.cached_write,
                },
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input + usage.output,
            },
        }
    )


def _output(reply: Reply, status: str) -> list[dict[str, Any]]:
    """The items of a reply: its text, then its calls; only the last can have been cut off."""
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        sealed = f"sealed-{len(reply.reasoning)}"
        items.append(
            {"type": "reasoning", "id": f"rs_{reply.response_id}", "summary": summary, "encrypted_content": sealed}
        )
    if reply.text or not reply.calls:
        part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": []}
        if reply.finish == "refusal":
            part = {"type": "refusal", "refusal": reply.text}
        items.append({"type": "message", "id": f"msg_{reply.response_id}", "role": "assistant", "content": [part]})
    for call in reply.calls:
        fields = {"id": f"fc_{call.id}", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"type": "function_call", **fields})
    for index, item in enumerate(items):
        item["status"] = status if index == len(items) - 1 else "completed"
    return items


_PARTS: Mapping[str, tuple[str, str, str]] = {
    "message": ("content", "content_index", "content_part"),
    "reasoning": ("summary", "summary_index", "reasoning_summary_part"),
}
"""By type of item: the member that holds its parts, what places a part, and the start of its events' names."""
_TEXTS: Mapping[str, tuple[str, str, Event]] = {
    "output_text": ("output_text", "text", {"logprobs": []}),
    "refusal": ("refusal", "refusal", {}),
    "summary_text": ("reasoning_summary_text", "text", {}),
}
"""By type of part: the start of its events' names, the member that holds its text, and what its events hold besides."""


def _events(value: Mapping[str, Any], _wish: StreamWish, cut: Cutter) -> Iterator[Event]:
    """The events of a 200 body's value."""
    begun = {**value, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": begun}
    for index, item in enumerate(value["output"]):
        place = {"output_index": index}
        member, placed_by, name = _PARTS.get(item["type"], ("arguments", "", ""))
        hollow = {**item, "status": "in_progress", member: [] if name else ""}
        hollow.pop("encrypted_content", None)
        yield {"type": "response.output_item.added", **place, "item": hollow}
        place["item_id"] = item["id"]
        if not name:
            yield from _deltas("function_call_arguments", member, item[member], place, cut)
        for number, part in enumerate(item[member]) if name else ():
            part_place = {**place, placed_by: number}
            kind, text, more = _TEXTS[part["type"]]
            yield {"type": f"response.{name}.added", **part_place, "part": {**part, text: ""}}
            yield from _deltas(kind, text, part[text], {**part_place, **more}, cut)
            yield {"type": f"response.{name}.done", **part_place, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{value['status']}", "response": value}


def _deltas(kind: str, member: str, text: str, place: Mapping[str, Any], cut: Cutter) -> Iterator[Event]:
    for piece in cut(text):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece}
    yield {"type": f"response.{kind}.done", **place, member: text}


SERVED_OPENAI_RESPONSES = replace(
    SERVED_OPENAI_CHAT,
    dialect=OPENAI_RESPONSES,
    decode_request=decode_request,
    encode_reply=encode_reply,
    stream=EventFormat(events=_events, named=True, numbered=True),
    reply_id=lambda name: f"resp_{name[:48]}",
)
"""Errors are those of Chat Completions."""
