"""Streams of the shapes that were recorded from providers and servers: each written here anew, with their order of
events, empty and further fields, padding and usage.

The shapes are those of the recordings in the tests of OpenAI's and Anthropic's SDKs for Python, of the events in the
tests of Google's, and, as far as we know them, of what vLLM's, LiteLLM's and llama.cpp's servers write.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson
import pytest

from evalkit.wire.table import DIALECTS
from tests.support.streaming import assembled, response_of


class Expected(NamedTuple):
    """Of a reply."""

    text: str
    calls: tuple[tuple[str, str, str], ...]
    finish: str
    tokens: tuple[int, int]
    reasoning: str = ""


def chat(*deltas: Any, finish: str, more: Mapping[str, Any] | None = None, index: int = 0) -> Iterator[dict[str, Any]]:
    """Chunks with these deltas, the last with the reason to finish. `more`: further members of each choice."""
    for place, delta in enumerate(deltas):
        reason = finish if place == len(deltas) - 1 else None
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason, **(more or {})}
        yield {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]}


def used(tokens_in: int, tokens_out: int, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage, **more}


def begun(place: int, own: str, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return {"tool_calls": [{"index": place, "id": own, "type": "function", "function": function}]}


def argued(place: int, *pieces: str) -> list[dict[str, Any]]:
    return [{"tool_calls": [{"index": place, "function": {"arguments": piece}}]} for piece in pieces]


def lines(*events: Any) -> bytes:
    said = [event if isinstance(event, bytes) else b"data: " + orjson.dumps(event) for event in events]
    return b"".join(one + b"\n\n" for one in said)


def named(*events: Mapping[str, Any], pad: bool = False) -> bytes:
    """Anthropic's: names, a blank in the ping's data, and blanks before the last brace of some."""
    stream = b""
    for place, event in enumerate(events):
        data = b'{"type": "ping"}' if event["type"] == "ping" else orjson.dumps(event)
        blanks = b" " * (place * 5 % 16) if pad and event["type"] != "ping" else b""
        stream += b"event: %b\ndata: %b%b}\n\n" % (event["type"].encode(), data[:-1], blanks)
    return stream


def opened(place: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": place, "content_block": block}


def added(place: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": place, "delta": delta}


def message(*events: Mapping[str, Any], reason: str, output: int, **late: int) -> list[Mapping[str, Any]]:
    usage = {"input_tokens": 377, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    head: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**head, "stop_sequence": None, "usage": usage}},
        events[0],
        {"type": "ping"},
        *events[1:],
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output, **late}},
        {"type": "message_stop"},
    ]


DONE = b"data: [DONE]"
ROLE: dict[str, Any] = {"role": "assistant", "content": "", "refusal": None}
TEXT = [{"content": piece} for piece in ("It", " is", " 4", "2", ".")]
THOUGHT = [{"reasoning_content": piece} for piece in ("So", " it", " is", ".")]
CALLED = (("call_1", "look", '{"at":"a"}'), ("call_2", "wait", '{"s":2}'))
TWO = [
    begun(0, "call_1", "look"),
    *argued(0, '{"', "at", '":"', "a", '"}'),
    begun(1, "call_2", "wait"),
    *argued(1, '{"s":', "2}"),
]
TIMINGS = {"timings": {"prompt_n": 9, "predicted_n": 5, "predicted_ms": 1.5}}
LITELLM = {"choices": [{"index": 0, "delta": {}, "finish_reason": None}]}
PADDED = [
    {**chunk, "usage": None, "obfuscation": "aB3xY9zQ"[: place % 8]}
    for place, chunk in enumerate(chat(ROLE, *TEXT, {}, finish="stop"))
]
GEMINI = [
    {
        "candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0, **more}],
        "usageMetadata": {
            "promptTokenCount": 9,
            "totalTokenCount": 9 + count,
            **({"candidatesTokenCount": count} if count else {}),
        },
        "modelVersion": "m",
        "responseId": "r1",
    }
    for count, part, more in (
        (0, {"text": "So it is.", "thought": True}, {}),
        (2, {"text": "It is"}, {}),
        (4, {"text": " 42."}, {}),
        (5, {"text": "", "thoughtSignature": "c2ln"}, {"finishReason": "STOP"}),
    )
]

RECORDED: dict[str, tuple[str, bytes, Expected]] = {
    "openai-text": (
        "openai_chat",
        lines(*chat(ROLE, *TEXT, {}, finish="stop"), used(14, 5), DONE),
        Expected("It is 42.", (), "stop", (14, 5)),
    ),
    "openai-padded": (
        "openai_chat",
        lines(*PADDED, {**used(14, 5), "obfuscation": ""}, DONE),
        Expected("It is 42.", (), "stop", (14, 5)),
    ),
    "openai-calls": (
        "openai_chat",
        lines(*chat({**ROLE, "content": None}, *TWO, {}, finish="tool_calls"), used(149, 60), DONE),
        Expected("", CALLED, "tool_calls", (149, 60)),
    ),
    "openai-refusal": (
        "openai_chat",
        lines(
            *chat(ROLE, *({"refusal": piece} for piece in ("I", " will", " not.")), {}, finish="stop"),
            used(79, 12),
            DONE,
        ),
        Expected("I will not.", (), "refusal", (79, 12)),
    ),
    "openai-choices": (
        "openai_chat",
        lines(
            *(
                chunk
                for trio in zip(*(chat(ROLE, *TEXT, {}, finish="stop", index=i) for i in range(3)), strict=True)
                for chunk in trio
            ),
            used(79, 42),
            DONE,
        ),
        Expected("It is 42.", (), "stop", (79, 42)),
    ),
    "vllm-reasoning": (
        "openai_chat",
        lines(
            *chat(
                {"role": "assistant", "content": ""},
                *THOUGHT,
                *TEXT,
                {"content": ""},
                finish="stop",
                more={"stop_reason": None, "token_ids": None},
            ),
            used(14, 9, prompt_token_ids=None),
            DONE,
        ),
        Expected("It is 42.", (), "stop", (14, 9), "So it is."),
    ),
    "litellm-usage-in-a-choice": (
        "openai_chat",
        lines(
            *chat({"content": "It", "role": "assistant"}, *TEXT[1:], {}, finish="stop"),
            {**used(14, 5), **LITELLM},
            DONE,
        ),
        Expected("It is 42.", (), "stop", (14, 5)),
    ),
    "llamacpp-timings": (
        "openai_chat",
        lines(
            *chat({"role": "assistant", "content": None}, *TWO, {}, finish="tool_calls"), used(9, 5, **TIMINGS), DONE
        ),
        Expected("", CALLED, "tool_calls", (9, 5)),
    ),
    "anthropic-call": (
        "anthropic_messages",
        named(
            *message(
                opened(0, type="thinking", thinking="", signature=""),
                *(added(0, type="thinking_delta", thinking=piece) for piece in ("So it", " is.")),
                added(0, type="signature_delta", signature="c2ln"),
                {"type": "content_block_stop", "index": 0},
                opened(1, type="text", text=""),
                *(added(1, type="text_delta", text=piece) for piece in ("It", " is", " 42.")),
                {"type": "content_block_stop", "index": 1},
                opened(2, type="tool_use", id="toolu_1", name="look", input={}),
                *(added(2, type="input_json_delta", partial_json=piece) for piece in ("", '{"at', '":"', 'a"', "}")),
                {"type": "content_block_stop", "index": 2},
                reason="tool_use",
                output=65,
            ),
            pad=True,
        ),
        Expected("It is 42.", (("toolu_1", "look", '{"at":"a"}'),), "tool_calls", (377, 65)),
    ),
    "anthropic-cut-call": (
        "anthropic_messages",
        named(
            *message(
                opened(0, type="tool_use", id="toolu_1", name="look", input={}),
                *(added(0, type="input_json_delta", partial_json=piece) for piece in ("", '{"at": [', '"a')),
                {"type": "content_block_stop", "index": 0},
                reason="max_tokens",
                output=124,
            )
        ),
        Expected("", (("toolu_1", "look", '{"_raw":"{\\"at\\": [\\"a"}'),), "length", (377, 124)),
    ),
    "anthropic-other-model": (
        "anthropic_messages",
        named(
            *message(
                opened(0, type="fallback", to={"model": "n"}, trigger={"type": "refusal", "category": None}),
                {"type": "content_block_stop", "index": 0},
                opened(1, type="text", text=""),
                added(1, type="text_delta", text="It is 42."),
                {"type": "content_block_stop", "index": 1},
                reason="end_turn",
                output=8,
                input_tokens=31,
            ),
            pad=True,
        ),
        Expected("It is 42.", (), "stop", (31, 8)),
    ),
    "gemini-signature": (
        "gemini",
        lines(*GEMINI).replace(b"\n\n", b"\r\n\r\n"),
        Expected("It is 42.", (), "stop", (9, 5)),
    ),
}


@pytest.mark.parametrize("shape", RECORDED)
@pytest.mark.parametrize("step", [1, 50, 10**6])
def test_a_stream_of_a_recorded_shape_is_read(shape: str, step: int) -> None:
    name, stream, expected = RECORDED[shape]
    came = assembled(name, [stream[i : i + step] for i in range(0, len(stream), step)])
    verdict, reply, _ = DIALECTS[name].understand(response_of(came))
    assert reply is not None, verdict
    calls = tuple((call.id, call.name, call.arguments) for call in reply.calls)
    tokens = (reply.usage.input, reply.usage.output)
    assert (reply.text, calls, reply.finish, tokens) == expected[:4]
    assert not expected.reasoning or reply.reasoning == expected.reasoning
    assert not {"input", "output"} & set(reply.usage.unknown)
