"""A model that makes every kind of mistake, in each provider's own form, whole or as a stream. By no code of
evalkit's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
Call = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the model writes in one reply."""

    thought: str = ""
    text: str = ""
    calls: list[Call] = field(default_factory=list)
    """(id, name, arguments)."""
    cut: bool = False
    """Whether `max_tokens` ended it."""


def mistakes(step: int, tool: str) -> Said:
    """The reply of one step. Words alone, which end some episodes, come last. Each round of mistakes begins one later:
    where chats are short, each is sometimes the last of its chat, and sometimes goes back."""
    one = f"id{step:07d}"
    kinds = (
        Said(thought="First this.", calls=[(one, tool, "{}")]),
        Said(thought="Hm.", calls=[(one, f"functions.{tool}", "{}")]),
        Said(calls=[(one, "multi_tool_use.parallel", '{"tool_uses": []}'), (one, "<|channel|>x", "{}")]),
        Said(thought="Cut.", calls=[(one, tool, '{"key": [1, "tw')], cut=True),
        Said(text="Several.", calls=[(f"call_{step}_{'x' * 70}", tool, "[1]"), (f"{one}c", "", '"text"')]),
        Said(thought="Twice.", calls=[(one, tool, "{}"), ("", "größe " * 20, "")]),
        Said(thought="All of it went into thinking.", cut=True),
        Said(text="\n"),
        Said(),
        Said(thought="Well.", text="I am done."),
    )
    return kinds[(step + step // len(kinds)) % len(kinds)]


def chat(said: Said, *, details: bool) -> JSON:
    """Of Chat Completions. `details`: in OpenRouter's form."""
    message: JSON = {"role": "assistant", "content": said.text or None, "reasoning_content": said.thought}
    if details:
        message |= {"reasoning_details": [{"type": "reasoning.text", "text": said.thought}]} if said.thought else {}
        del message["reasoning_content"]
    if said.calls:
        message["tool_calls"] = [
            {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}
            for own, name, arguments in said.calls
        ]
    finish = "length" if said.cut else "tool_calls" if said.calls else "stop"
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    return {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


def chat_events(body: JSON) -> Iterator[JSON | str]:
    (choice,) = body["choices"]
    message = choice["message"]
    deltas: list[JSON] = [{"role": "assistant", "content": ""}]
    deltas += [
        {name: message[name]} for name in ("reasoning_content", "reasoning_details", "content") if message.get(name)
    ]
    for index, call in enumerate(message.get("tool_calls", ())):
        start = {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": start}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]})
    for delta in deltas:
        yield {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {"id": "r", "choices": [], "usage": body["usage"]}
    yield "[DONE]"


def responses(said: Said) -> JSON:
    """Of Responses; thoughts are encrypted. `followed` marks those that may go back: the API ignores unknown fields."""
    output: list[JSON] = []
    if said.thought:
        output.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": f"?{said.thought}"})
        output[0]["followed"] = bool(said.text or said.calls)
    if said.text or not said.thought:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
    output += [
        {"type": "function_call", "id": f"fc_{at}", "call_id": own, "name": name, "arguments": arguments}
        for at, (own, name, arguments) in enumerate(said.calls)
    ]
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    ended: JSON = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return {
        "id": "r",
        "model": "m",
        "output": output,
        "usage": usage,
        **(ended if said.cut else {"status": "completed"}),
    }


def responses_events(body: JSON) -> Iterator[JSON | str]:
    yield {"type": "response.created", "response": {"id": "r"}}
    for item in body["output"]:
        yield {"type": "response.output_item.done", "item": item}
    yield {"type": f"response.{body['status']}", "response": body}


def anthropic(said: Said) -> JSON:
    """Of Messages; what is no object cannot be a call's input, and a cut thought has no signature."""
    content: list[JSON] = []
    if said.thought:
        alone = said.cut and not said.calls
        content.append({"type": "thinking", "thinking": said.thought, "signature": "" if alone else f"?{said.thought}"})
    if said.text:
        content.append({"type": "text", "text": said.text})
    for at, (_, name, arguments) in enumerate(said.calls):
        own = f"{said.calls[0][0]}_{at}"  # the API's ids are never missing or taken
        content.append({"type": "tool_use", "id": own, "name": name, "input": _object(arguments)})
    stop = "max_tokens" if said.cut else "tool_use" if said.calls else "end_turn"
    usage = {"input_tokens": 9, "output_tokens": 9, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return {"id": "r", "model": "m", "role": "assistant", "content": content, "stop_reason": stop, "usage": usage}


def anthropic_events(body: JSON) -> Iterator[JSON | str]:
    yield {"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}
    for index, block in enumerate(body["content"]):
        place = {"index": index}
        empty: dict[str, JSON] = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        yield {"type": "content_block_start", **place, "content_block": {**block, **empty[block["type"]]}}
        deltas: dict[str, list[JSON]] = {
            "text": [{"type": "text_delta", "text": block.get("text")}],
            "thinking": [
                {"type": "thinking_delta", "thinking": block.get("thinking")},
                {"type": "signature_delta", "signature": block.get("signature")},
            ],
            "tool_use": [{"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}],
        }
        for delta in deltas[block["type"]]:
            yield {"type": "content_block_delta", **place, "delta": delta}
        yield {"type": "content_block_stop", **place}
    yield {"type": "message_delta", "delta": {"stop_reason": body["stop_reason"]}, "usage": body["usage"]}
    yield {"type": "message_stop"}


def gemini(said: Said) -> JSON:
    """Of generateContent: a thought's signature stands with what follows it, and calls have no ids."""
    parts: list[JSON] = [{"text": said.thought, "thought": True}] if said.thought else []
    signed = {"thoughtSignature": f"?{said.thought}"} if said.thought else {}
    if said.text:
        parts.append({"text": said.text, **signed})
        signed = {}
    for _, name, arguments in said.calls:
        parts.append({"functionCall": {"name": name, "args": _object(arguments)}, **signed})
        signed = {}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    content = {"role": "model", "parts": parts} if parts else {"role": "model"}
    candidate = {"content": content, "finishReason": "MAX_TOKENS" if said.cut else "STOP"}
    return {"responseId": "r", "modelVersion": "m", "candidates": [candidate], "usageMetadata": usage}


def gemini_events(body: JSON) -> Iterator[JSON | str]:
    (candidate,) = body["candidates"]
    for part in candidate["content"].get("parts", ()):
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}}]}
    yield {**body, "candidates": [{**candidate, "content": {"role": "model"}}]}


def _object(arguments: str) -> JSON:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {"value": value}


def stream(events: Iterator[JSON | str]) -> bytes:
    """Server-sent events."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        lines.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join(lines).encode()
