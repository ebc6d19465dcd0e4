"""Anthropic Messages: our messages to their JSON, their JSON to our reply. `serve/dialects/` has the other direction.

The system text is a field of the body, and everything between two replies (tool results, then notices) is one user
message of several blocks. So messages are merged as they join: system texts, which begin with a byte that JSON never
contains, at the front of the parts, and a user's blocks at the end of the open turn.

Prompt caching is requested at four places, the most that the API allows: after the tools, after the system text, and at
the end of the last two user messages. The newer one is written for the next request. The older one is where the last
request wrote, so that it is found again, however many blocks were added since.

Chosen: usage counts all input tokens as `input`; the API reports what was read from the cache and written to it apart.
Source: https://platform.claude.com/docs/en/api/messages, .../build-with-claude/{handling-stop-reasons,effort}.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Sampling, Tool, Usage
from evalkit.wire.allowance import Allowance, checked_allowance, date_of, instant_of, until_s
from evalkit.wire.anthropic_content import ID, NO_CONTENT, read_content, returned_content, text_block
from evalkit.wire.anthropic_stream import ANTHROPIC_STREAM
from evalkit.wire.dialect import GEO, CacheLife, Dialect, Quirks, plain_settings, splice
from evalkit.wire.extras import ANTHROPIC_FIELDS
from evalkit.wire.fields import failure_beside, object_of, odd, sampling_objections, text_of, tool_objections
from evalkit.wire.history import SYSTEM, extend_turns, fitting_id
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.lenient import MalformedReplyError, dumps_any
from evalkit.wire.streams import stated_status
from evalkit.wire.usage import stated, usage_of
from evalkit.wire.verdicts import accepted_with, judge, judge_error

VERSION = "2023-06-01"
"""The format's version, sent with every request."""

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_USER = b'{"role":"user","content":['
_CACHE_MARKS = 2
"""User messages that end in one."""
_CACHED = b',"cache_control":{"type":"ephemeral"}}'
_HOUR = CacheLife(lambda body: body.replace(_CACHED, _CACHED[:-2] + b',"ttl":"1h"}}'), 3600.0, write_times=2)
"""All that is cached lasts an hour: what is kept for longer must stand before what is not. In a text the mark's quotes
would be escaped. Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching, 2026-11-29."""
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""Stop reasons in evalkit's terms; `refusal`, `pause_turn` and unknown ones stay as they are."""
_ANYWHERE = ("", "global", "not_available")
"""Where replies say they were made, at the list price. Source: .../docs/en/manage-claude/data-residency."""
_CONTENT = b'"content"'
_ODD = odd("stop_reason", *_FINISHES, "refusal", "pause_turn")


def head(model: str, sampling: Sampling, quirks: Quirks, *, version: str = "") -> bytes:
    """The shared part in two lines: what every body has, then what only a body with tools may have. With `version` it
    names that and not the model."""
    named = {"anthropic_version": version} if version else {"model": model}
    plain: dict[str, Any] = {**named, "max_tokens": sampling.max_tokens}
    plain |= plain_settings(sampling, quirks)
    if sampling.effort and "effort" not in quirks.refuses:
        plain["output_config"] = {"effort": sampling.effort}
    extra = orjson.loads(sampling.extra) if sampling.extra else {}
    choice = _choice(sampling, quirks)
    return orjson.dumps(plain | extra)[:-1] + b"\n" + (b',"tool_choice":' + orjson.dumps(choice) if choice else b"")


def _choice(sampling: Sampling, quirks: Quirks) -> dict[str, Any]:
    """`tool_choice`. It also states whether calls may be parallel, so a model that cannot be forced gets `auto`."""
    choice: dict[str, Any] = {}
    if "tool_choice" not in quirks.refuses:
        choice["type"] = _CHOICES[sampling.tool_choice]
    if sampling.parallel_calls is not None and "parallel_calls" not in quirks.refuses and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": not sampling.parallel_calls}
    return choice


def _encode_tools(tools: Sequence[Tool]) -> bytes:
    if not tools:
        return b""
    encoded = orjson.dumps([_tool(tool) for tool in tools])
    return encoded[:-2] + _CACHED + b"]"


def _tool(tool: Tool) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": {"type": "object", **tool.parameters}}


def _encode_message(message: Message) -> bytes:
    if message.role == "assistant":
        return b'{"role":"assistant","content":[%b]}' % returned_content(message)
    block = text_block(message.text) if message.text.strip() else b""
    if message.role == "system":
        return SYSTEM + block
    if message.role == "tool":
        # Of a result with a blank text only the id is sent: `content` may be left out.
        content = b',"content":' + dumps_any(message.text) if block else b""
        block = b'{"type":"tool_result","tool_use_id":%b%b}' % (dumps_any(fitting_id(message.call_id, ID)), content)
    return _USER + (block or NO_CONTENT) + b"]}"


def _body(head: bytes, tools: bytes, messages: Sequence[bytes], _seed: int | None) -> bytes:
    """The seed is not sent: the API has no such field."""
    before = [head.replace(b"\n", b"", 1), b',"tools":', tools] if tools else [head[: head.index(b"\n")]]
    system = bool(messages) and messages[0].startswith(SYSTEM)
    if system:
        before += b',"system":[', messages[0][1:-1], _CACHED, b"]"
    before.append(b',"messages":[')
    chat = list(messages[system:])
    left = _CACHE_MARKS
    for index in range(len(chat) - 1, -1, -1):
        if chat[index].startswith(_USER):
            # The last block's content is followed by its brace, then the turn's bracket and brace.
            chat[index] = chat[index][:-3] + _CACHED + b"]}"
            left -= 1
            if not left:
                break
    return splice(b"".join(before), chat, b"]}")


def _headers(key: str) -> Mapping[str, str]:
    """The version's header always: without it the API refuses every request."""
    return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}


def _read(value: Any) -> Reply:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        raise MalformedReplyError(f"anthropic_messages: no content in {dumps_any(value)[:300]!r}")
    text, calls, opaque = read_content(content)
    reason, usage = text_of(value, "stop_reason"), object_of(value, "usage")
    geo = text_of(usage, GEO)
    return Reply(
        text=text,
        calls=calls,
        finish=_FINISHES.get(reason, reason) or ("tool_calls" if calls else "stop"),
        usage=_read_usage(usage, bool(text or calls or opaque)),
        model=text_of(value, "model"),
        response_id=text_of(value, "id"),
        opaque=opaque,
        tier=text_of(usage, "service_tier") + ("" if geo in _ANYWHERE else f"/{geo}"),
    )


def _read_usage(raw: Mapping[str, Any], says: bool) -> Usage:
    """What the provider counted. `input` is the sum of three figures, so it is unknown if one of them is unknown."""
    kept = object_of(raw, "cache_creation")
    brief, hour = (stated(kept, f"ephemeral_{life}_input_tokens") for life in ("5m", "1h"))
    plain, read, written = (
        stated(raw, name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    whole = None if plain is None or read is None or written is None else plain + read + written
    usage = usage_of(
        tokens_in=whole,
        tokens_out=stated(raw, "output_tokens"),
        cached_read=read,
        cached_write=written,
        reasoning=stated(object_of(raw, "output_tokens_details"), "thinking_tokens"),
        says=says,
    )
    return replace(usage, lasting=min(usage.cached_write, max(hour or 0, usage.cached_write - (brief or 0))))


def _judge(response: HttpResponse) -> Verdict:
    """As for all dialects; and a body of status 200 may hold an error in a reply's place, or a reason to stop that is
    none of the model's."""
    if _CONTENT in response.body and not _ODD.search(response.body):
        return judge(response)
    value = accepted_with(response, b"")
    begun = isinstance(value.get("content"), list)
    error = failure_beside(value.get("stop_reason"), value.get("error") if value.get("type") == "error" else None)
    return judge_error(response, error, stated_status(error) or 500, begun=begun) if error else judge(response)


def _allowances(headers: Mapping[str, str]) -> tuple[Allowance | None, Allowance | None]:
    return _allowance(headers, "requests"), _allowance(headers, "tokens")


def _allowance(headers: Mapping[str, str], what: str) -> Allowance | None:
    """`reset` is a moment, so it is measured against the response's own date; without one nothing is known."""
    start = f"anthropic-ratelimit-{what}"
    reset_s = until_s(instant_of(headers.get(f"{start}-reset")), date_of(headers.get("date")))
    if reset_s is None:
        return None
    return checked_allowance(headers.get(f"{start}-limit", ""), headers.get(f"{start}-remaining", ""), reset_s)


def _objections(sampling: Sampling, tools: Sequence[Tool]) -> Sequence[str]:
    objections = sampling_objections(sampling, ANTHROPIC_FIELDS, highest={"temperature": 1, "top_p": 1})
    return objections + tool_objections(tools, key=_KEY) or _thinking_objections(sampling, tools)


def _thinking_objections(sampling: Sampling, tools: Sequence[Tool]) -> list[str]:
    """What a model refuses when `extra` turns thinking on; checked after `extra` is known to be an object."""
    thinking = orjson.loads(sampling.extra).get("thinking", {}) if sampling.extra else {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return []
    objections: list[str] = []
    if sampling.tool_choice == "required" and tools:
        objections.append('extra: with thinking, a tool call cannot be forced: set `tool_choice = "auto"`.')
    if sampling.temperature not in (None, 1):
        objections.append(
            f"extra: with thinking, temperature must be 1, not {sampling.temperature}: set `temperature = 1`."
        )
    budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and budget >= sampling.max_tokens:
        objections.append(
            f"extra: thinking.budget_tokens must be less than max_tokens, which is {sampling.max_tokens}."
        )
    return objections


ANTHROPIC_MESSAGES = Dialect(
    cached_reads_count=False,  # https://platform.claude.com/docs/en/api/rate-limits
    efforts=("low", "medium", "high", "xhigh", "max"),
    name="anthropic_messages",
    path="/messages",
    # A request with tools is charged some hundreds of tokens for a system text of the provider's own.
    overhead_tokens=1024,
    head=head,
    encode_tools=_encode_tools,
    encode_message=_encode_message,
    extend=partial(extend_turns, user=_USER),
    body=_body,
    headers=_headers,
    read=_read,
    judge=_judge,
    allowances=_allowances,
    objections=_objections,
    extra_fields=ANTHROPIC_FIELDS,
    stream=ANTHROPIC_STREAM,
    lacks=frozenset({"seed"}),
    caches={"1h": _HOUR},
    tier_field="service_tier",
    follows=frozenset({GEO}),
)
