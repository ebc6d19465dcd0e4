"""OpenAI Chat Completions, also spoken by vLLM, SGLang, llama.cpp, Ollama, DeepSeek, Together, OpenRouter and others.

The client's direction: our messages to their JSON, their JSON to our reply. `serve/dialects/` has the other one.

Chosen: of the fields beyond text and calls, a reply's opaque part keeps those that providers want back and no others:
`reasoning_details` (OpenRouter) always; `reasoning_content` beside tool calls, where thinking models need it within the
tool loop, and elsewhere as the model's entry says (`thinking_back`), since some servers refuse it and others every chat
without it; and a call's `extra_content` (thought signatures of Gemini's compatible endpoint).
Chosen: empty arguments are sent back as `{}`: several servers parse the history's arguments and refuse an empty text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.wire.allowance import read_allowances
from evalkit.wire.dialect import CacheLife, Dialect, Quirks, bearer, plain_settings, splice
from evalkit.wire.extras import OPENAI_CHAT_FIELDS
from evalkit.wire.fields import (
    call_ids,
    failure_beside,
    first_object,
    is_filtered,
    object_of,
    odd,
    sampling_objections,
    text_arguments,
    text_of,
    tool_objections,
)
from evalkit.wire.history import fitting_id, plain_name, returnable, words_of
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.lenient import MalformedReplyError, dumps_any, loads_kept
from evalkit.wire.openai_chat_stream import CHAT_STREAM
from evalkit.wire.streams import stated_status
from evalkit.wire.usage import stated, usage_of
from evalkit.wire.verdicts import accepted_with, judge, judge_error

_ERROR, _MESSAGE = b'"error"', b'"message"'
_ODD = odd("finish_reason", "stop", "length", "tool_calls", "function_call")
_HELD_BACK = re.compile(rb'"filtered"\s*:\s*true')
"""In what Azure says of a prompt or a reply. Source: learn.microsoft.com, `content-filter` of its OpenAI models."""
_USER, _RESULT = b'{"role":"user"', b'{"role":"tool"'
BRIDGE = b'{"role":"assistant","content":"OK."}'
"""What stands between results and a user's message where neither may follow the other. Source: pydantic-ai #1210,
avante.nvim PR #2695; mistral-common, `validator.py`, `_validate_message_order`."""
_ID = re.compile(r".{1,40}", re.DOTALL)
"""Longer ids are refused, also those that the API gave itself. Source: dify #28987, openclaw PR #875."""


def _head(model: str, sampling: Sampling, quirks: Quirks) -> bytes:
    plain: dict[str, Any] = {"model": model, quirks.max_tokens_field: sampling.max_tokens}
    plain |= plain_settings(sampling, quirks, effort="reasoning_effort")
    extra = orjson.loads(sampling.extra) if sampling.extra else {}
    return two_lines(plain | extra, sampling, quirks)


def two_lines(plain: Mapping[str, Any], sampling: Sampling, quirks: Quirks) -> bytes:
    """The shared part of a body in two lines, for OpenAI's other format too: `plain`, which every body has, then what
    only a body with tools may have."""
    with_tools: dict[str, Any] = {}
    if "tool_choice" not in quirks.refuses:
        with_tools["tool_choice"] = sampling.tool_choice
    if sampling.parallel_calls is not None and "parallel_calls" not in quirks.refuses:
        with_tools["parallel_tool_calls"] = sampling.parallel_calls
    first, second = orjson.dumps(plain)[:-1], orjson.dumps(with_tools)[1:-1]
    return first + b"\n" + (b"," + second if second else b"")


def _encode_tools(tools: Sequence[Tool]) -> bytes:
    if not tools:
        return b""
    return orjson.dumps(
        [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in tools
        ]
    )


def _encode_message(message: Message) -> bytes:
    if message.role == "tool":
        call_id = fitting_id(message.call_id, _ID)
        named = {"name": plain_name(message.name)} if message.named else {}
        return orjson.dumps({"role": "tool", "tool_call_id": call_id, **named, "content": message.text})
    if message.role == "assistant":
        return _encode_assistant(message)
    return orjson.dumps({"role": message.role, "content": message.text})


def _encode_assistant(message: Message) -> bytes:
    fields: dict[str, Any] = {"role": message.role, "content": words_of(message) or None}
    calls: list[dict[str, Any]] = [
        {
            "id": fitting_id(call.id, _ID),
            "type": "function",
            "function": {"name": plain_name(call.name), "arguments": call.arguments or "{}"},
        }
        for call in message.calls
    ]
    if message.opaque:
        kept = loads_kept(message.opaque)
        fields |= kept.get("message", {})
        for index, members in kept.get("calls", {}).items():
            calls[int(index)] |= members
    if calls:
        fields["tool_calls"] = calls
    return dumps_any(fields)


def _prepare(message: Message, quirks: Quirks) -> Message:
    """The message with its thoughts, or without, as the model's API wants it."""
    message = returnable(message, quirks.refuses)
    if message.role != "assistant" or quirks.thinking_back == "calls":
        return message
    kept = loads_kept(message.opaque) if message.opaque else {"message": {}, "calls": {}}
    if quirks.thinking_back == "never":
        kept["message"].pop("reasoning_content", None)
    else:
        thoughts = kept["message"].get("reasoning_content") or message.reasoning
        kept["message"]["reasoning_content"] = thoughts or (" " if quirks.thinking_back == "filled" else "")
    return replace(message, opaque=dumps_any(kept))


def _extend(parts: list[bytes], encoded: Iterable[bytes], quirks: Quirks) -> None:
    """Append messages. Where no user's may follow results, a short one of the agent's comes first, or its text joins
    the last result."""
    if quirks.after_results == "user":
        parts.extend(encoded)
        return
    for part in encoded:
        if part.startswith(_USER) and parts and parts[-1].startswith(_RESULT):
            if quirks.after_results == "joined":
                result = orjson.loads(parts[-1])
                result["content"] = f"{result['content']}\n\n{orjson.loads(part)['content']}".strip()
                parts[-1] = bytes(memoryview(orjson.dumps(result)))
                continue
            parts.append(BRIDGE)
        parts.append(part)


def _body(head: bytes, tools: bytes, messages: Sequence[bytes], seed: int | None) -> bytes:
    parts = [head, b',"tools":', tools] if tools else [head[: head.index(b"\n")]]
    if seed is not None:
        parts.append(b',"seed":%d' % seed)
    parts.append(b',"messages":[')
    return splice(b"".join(parts), messages, b"]}")


def _read(value: Any) -> Reply:
    try:
        choice = value["choices"][0]
        message = choice["message"]
        content = message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError) as flaw:
        raise MalformedReplyError(f"openai_chat: {flaw!r} in {dumps_any(value)[:300]!r}") from flaw
    calls, opaque = _read_calls(message)
    text = content if isinstance(content, str) else _text_of_parts(content) if content else ""
    finish = choice.get("finish_reason")
    finish = finish if isinstance(finish, str) and finish else ("tool_calls" if calls else "stop")
    finish = "content_filter" if is_filtered(finish) else finish
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        finish, text = "refusal", text or refusal
    return Reply(
        text=text,
        calls=calls,
        finish="tool_calls" if finish == "function_call" else finish,
        usage=_read_usage(object_of(value, "usage"), bool(text or calls or opaque)),
        model=text_of(value, "model"),
        fingerprint=text_of(value, "system_fingerprint"),
        response_id=text_of(value, "id"),
        opaque=opaque,
        reasoning=_read_reasoning(message, calls),
        tier=text_of(value, "service_tier"),
    )


def _read_reasoning(message: Mapping[str, Any], calls: Sequence[ToolCall]) -> str:
    """What the model thought, where the opaque part does not hold it."""
    if message.get("reasoning_details") or (calls and message.get("reasoning_content")):
        return ""
    return text_of(message, "reasoning_content") or text_of(message, "reasoning")


def _read_calls(message: Mapping[str, Any]) -> tuple[tuple[ToolCall, ...], bytes]:
    """The calls in order, and the opaque part. Anything that is not an object is skipped: it names no tool."""
    raw = message.get("tool_calls")
    raw_calls = [raw_call for raw_call in raw if isinstance(raw_call, dict)] if isinstance(raw, list) else []
    calls: list[ToolCall] = []
    ids = call_ids([text_of(raw_call, "id") for raw_call in raw_calls])
    kept_calls: dict[str, Any] = {}
    for index, raw_call in enumerate(raw_calls):
        function = object_of(raw_call, "function")
        call = ToolCall(id=ids[index], name=text_of(function, "name"), arguments=text_arguments(function))
        calls.append(call)
        if "extra_content" in raw_call:
            kept_calls[str(index)] = {"extra_content": raw_call["extra_content"]}
    kept: dict[str, Any] = {}
    if message.get("reasoning_details"):
        kept["reasoning_details"] = message["reasoning_details"]
    if calls and message.get("reasoning_content"):
        kept["reasoning_content"] = message["reasoning_content"]
    if not kept and not kept_calls:
        return tuple(calls), b""
    return tuple(calls), dumps_any({"message": kept, "calls": kept_calls})


def _read_usage(raw: Mapping[str, Any], says: bool) -> Usage:
    """What the provider counted. DeepSeek, Moonshot and proxies of Anthropic's models state cached tokens next to the
    others instead of within the details, SGLang those of thoughts."""
    within = isinstance(raw.get("prompt_tokens_details"), dict)
    inner, outer = object_of(raw, "prompt_tokens_details"), object_of(raw, "completion_tokens_details")
    return usage_of(
        tokens_in=stated(raw, "prompt_tokens"),
        tokens_out=stated(raw, "completion_tokens"),
        cached_read=stated(inner, "cached_tokens") if within else _first_stated(_CACHED_BESIDE, raw),
        cached_write=_first_stated(_CACHE_WRITES, raw, inner),
        reasoning=_first_stated(_THOUGHTS, outer, raw),
        says=says,
        total=stated(raw, "total_tokens"),
    )


_CACHED_BESIDE = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_CACHE_WRITES = ("cache_write_tokens", "cache_creation_input_tokens")
_THOUGHTS = ("reasoning_tokens",)


def _first_stated(names: Sequence[str], *tables: Mapping[str, Any]) -> int | None:
    """Of these fields, the first that is stated; each is that of the first table that has it."""
    for name in names:
        for table in tables:
            if name in table:
                tokens = stated(table, name)
                if tokens is not None:
                    return tokens
                break
    return None


def _text_of_parts(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "".join(text_of(part, "text") for part in parts if isinstance(part, dict))


def _judge(response: HttpResponse) -> Verdict:
    """As for all dialects; and a body of status 200 may hold an error in a reply's place, or a choice that failed. The
    text next to such an error is not a reply: the model did not finish it.

    Source: https://openrouter.ai/docs/api/reference/errors-and-debugging.
    """
    body = response.body
    if _ERROR not in body and not _ODD.search(body) and _MESSAGE in body:  # as in nearly all replies
        return judge(response)
    value = accepted_with(response, b"")
    choice = first_object(value, "choices")
    if choice is None:
        error = value if value.get("object") == "error" else object_of(value, "error")
        if error:
            return judge_error(response, error, stated_status(error) or 500, begun=False)
        return _all_filtered(value, "no choice") if value and _HELD_BACK.search(body) else judge(response)
    finish = choice.get("finish_reason")
    inner = object_of(choice, "message").get("error")
    error = failure_beside(finish, choice.get("error") or inner or value.get("error"))
    if error:
        return judge_error(response, error, stated_status(error) or 500, begun=True)
    if is_filtered(finish) and not isinstance(choice.get("message"), dict):
        return _all_filtered(value, str(finish))
    return judge(response)


def _all_filtered(value: Mapping[str, Any], why: str) -> Verdict:
    usage = _read_usage(object_of(value, "usage"), says=False)
    words = f"The provider's filter left nothing of the reply ({why})."
    return Verdict(action="end_episode", kind="content_filter", message=words, outcome="filtered", usage=usage)


def _objections(sampling: Sampling, tools: Sequence[Tool]) -> Sequence[str]:
    return sampling_objections(sampling, OPENAI_CHAT_FIELDS, highest={"temperature": 2, "top_p": 1}) + tool_objections(
        tools
    )


RETAINED = {"24h": CacheLife(lambda body: b'{"prompt_cache_retention":"24h",' + body[1:], 86400.0)}
"""Of OpenAI's models before GPT-5.6; the price is the same.
Source: https://developers.openai.com/api/docs/guides/prompt-caching, 2026-11-29."""
OPENAI_CHAT = Dialect(
    efforts=("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    name="openai_chat",
    path="/chat/completions",
    # Templates add a few tokens per message, and each message has over 20 bytes of JSON around its text. The constant
    # is for what a prompt contains once: begin marks, a default system text, the tool preamble.
    overhead_tokens=512,
    head=_head,
    encode_tools=_encode_tools,
    encode_message=_encode_message,
    extend=_extend,
    prepare=_prepare,
    follows=frozenset({"after_results", "thinking_back"}),
    body=_body,
    headers=bearer,
    read=_read,
    judge=_judge,
    allowances=read_allowances,
    objections=_objections,
    extra_fields=OPENAI_CHAT_FIELDS,
    stream=CHAT_STREAM,
    cache_key="prompt_cache_key",
    caches=RETAINED,
    tier_field="service_tier",
)
