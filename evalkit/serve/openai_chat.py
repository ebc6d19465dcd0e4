"""OpenAI Chat Completions as a server speaks it: their request to ours, our reply to their JSON.

For the simulated provider and the gateway. Strict where a real server is: a request it would refuse is a ValueError
with the reason.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.dialogue import Message, Reply, Request, Role, Sampling, Tool, ToolCall, ToolChoice
from evalkit.serve.formats import Cutter, Event, EventFormat, ServedFormat, StreamWish, check_stream, list_of, loaded
from evalkit.serve.limits import LimitStanding, show_span
from evalkit.wire.fields import text_of
from evalkit.wire.lenient import dumps_any
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.thoughts import thoughts_of

_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_CHOICES: Mapping[str, ToolChoice] = {"auto": "auto", "required": "required", "none": "none"}


def decode_request(body: bytes) -> tuple[str, Request]:
    """(model, request). Raises ValueError saying what is wrong and where."""
    value = loaded(body)
    model = value.get("model")
    if not isinstance(model, str) or not model:
        raise ValueError("model: must be a string")
    messages = list_of(value, "messages")
    if not messages:
        raise ValueError("messages: must not be empty")
    check_stream(value)
    if value.get("stream_options") is not None and not value.get("stream"):
        raise ValueError("stream_options: is only allowed when stream is true")
    tools = tuple(_tool(tool, index) for index, tool in enumerate(list_of(value, "tools")))
    if value.get("tool_choice") is not None and not tools:
        raise ValueError("tool_choice: is only allowed when tools are specified")
    seed = value.get("seed")
    if seed is not None and type(seed) is not int:
        raise ValueError("seed: must be an integer")
    request = Request(
        messages=tuple(_message(message, index) for index, message in enumerate(messages)),
        tools=tools,
        sampling=_sampling(value),
        seed=seed or 0,
    )
    return model, request


def _sampling(value: Mapping[str, Any]) -> Sampling:
    most = value.get("max_completion_tokens", value.get("max_tokens", Sampling().max_tokens))
    if type(most) is not int or most < 1:
        raise ValueError("max_tokens: must be an integer of at least 1")
    return sampling_of(value, most, value.get("reasoning_effort") or "")


def sampling_of(value: Mapping[str, Any], most: int, effort: str) -> Sampling:
    """What both of OpenAI's formats say in the same fields. Raises ValueError."""
    for name in ("temperature", "top_p"):
        if not isinstance(value.get(name), int | float | None):
            raise ValueError(f"{name}: must be a number")
    choice = value.get("tool_choice", "auto")
    if isinstance(choice, dict):
        choice = "required"  # one named function: the policies know no finer wish
    if choice not in _CHOICES:
        raise ValueError(f"tool_choice: {choice!r} must be auto, required or none")
    return Sampling(
        temperature=value.get("temperature"),
        max_tokens=most,
        tool_choice=_CHOICES[choice],
        parallel_calls=value.get("parallel_tool_calls"),
        top_p=value.get("top_p"),
        effort=effort,
    )


def _tool(tool: Any, index: int) -> Tool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f"tools[{index}].function.name: must be a string")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise ValueError(f"tools[{index}].function.parameters: must be an object")
    return Tool(name=function["name"], description=function.get("description") or "", parameters=parameters or {})


def _message(message: Any, index: int) -> Message:
    path = f"messages[{index}]"
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise ValueError(f"{path}.role: must be one of {', '.join(_ROLES)}")
    role = _ROLES[message["role"]]
    text = _content(message.get("content"), path)
    if role == "tool":
        if not isinstance(message.get("tool_call_id"), str):
            raise ValueError(f"{path}.tool_call_id: must be a string")
        return Message(role=role, text=text, call_id=message["tool_call_id"])
    calls = tuple(_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(list_of(message, "tool_calls")))
    return Message(role=role, text=text, calls=calls, reasoning=text_of(message, "reasoning_content"))


def _content(content: Any, path: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "".join(part["text"] for part in content)
    raise ValueError(f"{path}.content: must be a string, or a list of text parts")


def _call(call: Any, path: str) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(call.get("id"), str):
        raise ValueError(f"{path}: must have an id and a function")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise ValueError(f"{path}.function: name and arguments must be strings")
    return ToolCall(id=call["id"], name=name, arguments=arguments)


def encode_reply(reply: Reply) -> bytes:
    """A 200 body. `created` is 0: the wire knows no clock, and nobody reads it."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.reasoning or reply.opaque:
        message |= {"reasoning_content": text} if (text := thoughts_of(reply).text) else {}
    if reply.finish == "refusal":
        message |= {"content": None, "refusal": reply.text}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    usage = reply.usage
    return dumps_any(
        {
            "id": reply.response_id,
            "object": "chat.completion",
            "created": 0,
            "model": reply.model,
            "system_fingerprint": reply.fingerprint or None,
            **({"service_tier": reply.tier} if reply.tier else {}),
            "choices": [
                {"index": 0, "message": message, "finish_reason": "stop" if reply.finish == "refusal" else reply.finish}
            ],
            "usage": {
                "prompt_tokens": usage.input,
                "completion_tokens": usage.output,
                "total_tokens": usage.input + usage.output,
                "prompt_tokens_details": {
                    "cached_tokens": usage.cached_read,
                    "cache_write_tokens": usage.cached_write,
                },
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
            },
        }
    )


def _events(value: Mapping[str, Any], wish: StreamWish, cut: Cutter) -> Iterator[Event]:
    """The chunks of a 200 body's value."""
    shared = {**value, "object": "chat.completion.chunk"}
    usage, (choice,) = shared.pop("usage", None), shared.pop("choices")
    if wish.usage:
        shared["usage"] = None

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> Event:
        return {**shared, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    message = choice["message"]
    calls = message.get("tool_calls", ())
    yield chunk({"role": message["role"], "content": None if message["content"] is None else ""})
    for name in ("reasoning_content", "content", "refusal"):
        for piece in cut(message.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(calls):
        function = {**call["function"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, **call, "function": function}]})
        for piece in cut(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if wish.usage and usage is not None:
        yield {**shared, "choices": [], "usage": usage}


def encode_error(status: int, code: str, message: str) -> bytes:
    """The body of an error."""
    kind = "requests" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    return dumps_any({"error": {"message": message, "type": kind, "param": None, "code": code}})


def limit_headers(standings: Mapping[str, LimitStanding]) -> dict[str, str]:
    """Where the limits stand, as OpenAI says it: `x-ratelimit-*`, with spans until they are whole again."""
    headers: dict[str, str] = {}
    for kind in ("requests", "tokens"):
        if kind in standings:
            standing = standings[kind]
            headers[f"x-ratelimit-limit-{kind}"] = str(standing.limit)
            headers[f"x-ratelimit-remaining-{kind}"] = str(standing.remaining)
            headers[f"x-ratelimit-reset-{kind}"] = show_span(standing.full_in_s)
    return headers


SERVED_OPENAI_CHAT = ServedFormat(
    dialect=OPENAI_CHAT,
    decode_request=decode_request,
    encode_reply=encode_reply,
    stream=EventFormat(events=_events, end_mark=b"[DONE]"),
    encode_error=encode_error,
    reply_id=lambda name: f"chatcmpl-{name[:24]}",
    sdk_path="/v1",
)
