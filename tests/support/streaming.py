"""The events in which a provider would stream a body, for each dialect, cut wherever a test says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from evalkit.wire.dialect import Dialect
from evalkit.wire.http import HttpResponse
from evalkit.wire.streams import ReplyStream, StreamedBody
from evalkit.wire.table import DIALECTS

Event = tuple[str, bytes]
"""(name, data)"""
Cut = Callable[[str], Sequence[str]]
"""A text in pieces."""


def whole(text: str) -> Sequence[str]:
    """One piece."""
    return [text]


def every(size: int) -> Cut:
    """Pieces of so many characters."""
    return lambda text: [text[i : i + size] for i in range(0, len(text), size)]


def chat_events(body: Mapping[str, Any], cut: Cut) -> Iterator[Event]:
    """OpenAI Chat Completions."""
    top = {name: value for name, value in body.items() if name not in ("choices", "usage")}
    top["object"] = "chat.completion.chunk"
    choice = body["choices"][0]
    message = choice["message"]

    def chunk(delta: Mapping[str, Any], finish: Any = None) -> Event:
        return "", orjson.dumps({**top, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": None})
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        if isinstance(message.get(name), str):
            for piece in cut(message[name]):
                yield chunk({name: piece})
    for detail in message.get("reasoning_details") or ():
        field = next(name for name in ("text", "summary", "data") if name in detail)
        head = {name: value for name, value in detail.items() if name != "signature"}
        for piece in cut(detail[field]):
            yield chunk({"reasoning_details": [{**head, field: piece}]})
        if "signature" in detail:
            yield chunk({"reasoning_details": [{**detail, field: ""}]})
    yield from map(chunk, _chat_calls(message.get("tool_calls") or (), cut))
    yield chunk({}, choice["finish_reason"])
    if "usage" in body:
        yield "", orjson.dumps({**top, "choices": [], "usage": body["usage"]})
    yield "", b"[DONE]"


def _chat_calls(calls: Sequence[Mapping[str, Any]], cut: Cut) -> Iterator[Mapping[str, Any]]:
    """The calls, their arguments interleaved."""
    for place, call in enumerate(calls):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": place, "function": function}]}
    left = [list(cut(call["function"]["arguments"])) for call in calls]
    while any(left):
        for place, pieces in enumerate(left):
            if pieces:
                yield {"tool_calls": [{"index": place, "function": {"arguments": pieces.pop(0)}}]}


def responses_events(body: Mapping[str, Any], cut: Cut) -> Iterator[Event]:
    """OpenAI Responses."""

    def event(kind: str, **more: Any) -> Event:
        return kind, orjson.dumps({"type": kind, "sequence_number": 1, **more})

    yield event("response.created", response={**body, "status": "in_progress", "output": []})
    for place, item in enumerate(body["output"]):
        yield event("response.output_item.added", output_index=place, item={"type": item["type"]})
        for part in item.get("content") or () if item["type"] == "message" else ():
            for piece in cut(part.get("text") or ""):
                yield event("response.output_text.delta", output_index=place, delta=piece)
        yield event("response.output_item.done", output_index=place, item=item)
    yield event(f"response.{body.get('status', 'completed')}", response=body)


def anthropic_events(body: Mapping[str, Any], cut: Cut) -> Iterator[Event]:
    """Anthropic Messages."""

    def event(kind: str, **more: Any) -> Event:
        return kind, orjson.dumps({"type": kind, **more})

    usage = {**body.get("usage", {}), "output_tokens": 1}
    usage.pop("output_tokens_details", None)
    yield event("message_start", message={**body, "content": [], "stop_reason": None, "usage": usage})
    yield event("ping")
    for place, block in enumerate(body["content"]):
        yield event("content_block_start", index=place, content_block=_opened(block))
        for delta in _anthropic_deltas(block, cut):
            yield event("content_block_delta", index=place, delta=delta)
        yield event("content_block_stop", index=place)
    late = {name: value for name, value in body.get("usage", {}).items() if name.startswith("output")}
    yield event("message_delta", delta={"stop_reason": body.get("stop_reason")}, usage=late)
    yield event("message_stop")


def _opened(block: Mapping[str, Any]) -> Mapping[str, Any]:
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    known = block["type"] in ("text", "thinking", "tool_use")
    return {name: empty.get(name, value) if known else value for name, value in block.items()}


def _anthropic_deltas(block: Mapping[str, Any], cut: Cut) -> Iterator[Mapping[str, Any]]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in cut(block["text"]))
    elif block["type"] == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "tool_use":
        text = orjson.dumps(block["input"]).decode()
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ["", *cut(text)])


def gemini_events(body: Mapping[str, Any], cut: Cut) -> Iterator[Event]:
    """Gemini: no names, and nothing after the reason to finish."""
    top = {name: value for name, value in body.items() if name not in ("candidates", "usageMetadata")}
    usage = body.get("usageMetadata", {})
    candidate = body["candidates"][0]

    def event(parts: Sequence[Mapping[str, Any]], **more: Any) -> Event:
        content = {"role": "model", "parts": parts}
        inner = {"content": content, "index": 0, **more}
        return "", orjson.dumps({"candidates": [inner], **top, "usageMetadata": {**usage, "candidatesTokenCount": 1}})

    for part in candidate["content"]["parts"]:
        if isinstance(part.get("text"), str) and not part.keys() - {"text", "thought"}:
            for piece in cut(part["text"]):
                yield event([{**part, "text": piece}])
        else:
            yield event([part])
    last = {"content": {"role": "model", "parts": []}, "finishReason": candidate["finishReason"], "index": 0}
    yield "", orjson.dumps({"candidates": [last], **top, **({"usageMetadata": usage} if usage else {})})


EVENTS: Mapping[str, Callable[[Mapping[str, Any], Cut], Iterator[Event]]] = {
    "openai_chat": chat_events,
    "openai_responses": responses_events,
    "anthropic_messages": anthropic_events,
    "gemini": gemini_events,
}


def sse(events: Iterator[Event] | Sequence[Event], *, end: bytes = b"\n", comment: bytes = b"") -> bytes:
    """The events as they are sent. `comment`: before each of them."""
    stream = b""
    for name, data in events:
        lines = ([b": " + comment, b""] if comment else []) + ([b"event: " + name.encode()] if name else [])
        stream += b"".join(line + end for line in [*lines, b"data: " + data, b""])
    return stream


def streamed(dialect: str, body: Any, cut: Cut = whole, **how: Any) -> bytes:
    """A body as its dialect streams it."""
    return sse(EVENTS[dialect](body, cut), **how)


def assembled(dialect: Dialect | str, pieces: Sequence[bytes], *, cap: int = 2**20, **end: Any) -> StreamedBody:
    """What pieces of a stream come to."""
    dialect = DIALECTS[dialect] if isinstance(dialect, str) else dialect
    assert dialect.stream is not None
    stream = ReplyStream(dialect.stream, cap)
    for piece in pieces:
        if stream.over:
            break
        stream.feed(piece)
    return stream.end(**end)


def response_of(came: StreamedBody) -> HttpResponse:
    """The response that the transport makes of it."""
    return HttpResponse(status=came.status, headers={}, body=came.body, failure=came.failure, detail=came.detail)
