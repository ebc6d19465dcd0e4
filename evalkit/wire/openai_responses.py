"""OpenAI Responses (`POST /responses`): the client's direction. `serve/dialects/` has the other one.

The server stores nothing: every request has `store: false` and contains the whole chat as items. The thoughts of a
reasoning model are sent back encrypted, as the items in which they were received, within a reply's opaque part.

Chosen: `strict: false` with every tool, since this API makes schemas strict where nothing is said (and optional
arguments mandatory with it), and an environment wants to see malformed calls, as in the other dialects.
Chosen: a system text is a message of role `system`, as in Chat Completions, and not `instructions`: the API hands it to
reasoning models as developer's, and compatible servers know the role.
Chosen: the opaque part holds all items of a reply where one of them must go back as it came (reasoning, items of types
we do not know, a message in phases, another order than text, then calls); elsewhere it is empty and the items are
written again. Reasoning without encrypted or plain content is left out, since nobody could find it, and so is
reasoning that nothing follows, which the API refuses.
The API has no `seed`: none is sent.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.wire.allowance import read_allowances
from evalkit.wire.dialect import Dialect, Quirks, bearer, plain_settings, splice
from evalkit.wire.extras import OPENAI_RESPONSES_FIELDS
from evalkit.wire.fields import (
    call_ids,
    failure_beside,
    is_failure,
    object_of,
    odd,
    sampling_objections,
    text_arguments,
    text_of,
    tool_objections,
)
from evalkit.wire.history import NOTHING_SAID, fitting_id, plain_name, words_of
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.lenient import MalformedReplyError, dumps_any, loads_kept
from evalkit.wire.openai_chat import RETAINED, two_lines
from evalkit.wire.streams import Assembler, ErrorEvent, StreamForm, loads_event, stated_status
from evalkit.wire.thoughts import item_text, thoughts_of
from evalkit.wire.usage import stated, usage_of
from evalkit.wire.verdicts import accepted_with, judge, judge_error

# A streamed reply of OpenAI Responses, assembled to the body that it has unstreamed.
#
# The last event holds the whole response, so what comes before it is not decoded. Some servers leave the output out
# of it; then the items are those that ended before.
#
# Source: https://platform.openai.com/docs/api-reference/responses-streaming.

_BEFORE = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Events before the model begins."""
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_ITEM = "response.output_item.done"
_PIECES = re.compile(
    rb'(?:(?:event: response\.[a-z_.]*\.delta\ndata: |data: \{"type":"response\.[a-z_.]*\.delta")[^\n]*+\n\n)++'
)
"""Events that hold nothing which does not come again."""
_TYPE = re.compile(rb'\s*+\{\s*+"type"\s*+:\s*+"([a-z_.]++)"')


class ResponsesAssembler(Assembler):
    """Of Responses. It learns of no events alike, since it hardly reads any."""

    __slots__ = ("_items", "_response")

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, Any] = {}
        self._response: dict[str, Any] = {}

    def skim(self, block: bytes, at: int) -> tuple[int, int]:
        """Pieces of texts."""
        found = _PIECES.match(block, at)
        if found is None:
            return at, 0
        self.begun = True
        return found.end(), block.count(b"\n\n", at, found.end())

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        known = name or _type_in(data)
        value: Any = None
        kind = known.decode("ascii", "replace")
        if not kind:
            value = loads_event(data)
            kind = text_of(value, "type") if isinstance(value, dict) else ""
        if kind != _ITEM and kind not in _ENDS and kind != "error":
            self.begun = self.begun or (kind.startswith("response.") and kind not in _BEFORE)
            return
        value = loads_event(data) if value is None else value
        if not isinstance(value, dict):
            raise MalformedReplyError(f"openai_responses: {kind} without an object")
        if kind == "error":
            raise ErrorEvent(object_of(value, "error") or value)
        self.begun = True
        if kind == _ITEM:
            self._items[len(self._items)] = value.get("item")
            self.size += len(data)
            return
        self._response, self.done = dict(object_of(value, "response")), True

    def value(self) -> Any:
        """The body."""
        if not self._response.get("output") and self._items:
            return {**self._response, "output": list(self._items.values())}
        return self._response


def _type_in(data: bytes) -> bytes:
    """An event's type, if its data begin with it."""
    found = _TYPE.match(data)
    return found[1] if found else b""


RESPONSES_STREAM = StreamForm(assembler=ResponsesAssembler, fields=b'"stream":true,')


LEAST_TOKENS = 16
"""The API refuses a smaller `max_output_tokens`."""

_ID = re.compile(r".{1,64}", re.DOTALL)
"""Longer ids are refused, also those that the API gave itself. Source: Roo-Code PR #10763."""

_ENCRYPTED = "reasoning.encrypted_content"

_ODD = odd("status", "completed")
_FAILED, _PENDING = frozenset({"failed", "cancelled"}), frozenset({"queued", "in_progress"})

_FINISHES: Mapping[str, str] = {"max_output_tokens": "length", "max_tokens": "length", "": "incomplete"}
"""Why a response is incomplete, in evalkit's terms; others are kept as they are."""


def _head(model: str, sampling: Sampling, quirks: Quirks) -> bytes:
    plain: dict[str, Any] = {"model": model, "max_output_tokens": sampling.max_tokens, "store": False}
    if "encrypted_reasoning" not in quirks.refuses:
        plain["include"] = [_ENCRYPTED]
    plain |= plain_settings(sampling, quirks)
    extra = orjson.loads(sampling.extra) if sampling.extra else {}
    if sampling.effort and "effort" not in quirks.refuses:
        plain["reasoning"] = {"effort": sampling.effort, **extra.pop("reasoning", {})}
    return two_lines(plain | extra, sampling, quirks)


def _encode_tools(tools: Sequence[Tool]) -> bytes:
    if not tools:
        return b""
    return orjson.dumps(
        [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ]
    )


def _encode_message(message: Message) -> bytes:
    """The message's items, joined by commas; never empty."""
    if message.role == "tool":
        call_id = fitting_id(message.call_id, _ID)
        return orjson.dumps({"type": "function_call_output", "call_id": call_id, "output": message.text})
    items = _as_kept(message) if message.opaque else _items(message)
    return b",".join(dumps_any(item) for item in items)


def _as_kept(message: Message) -> list[dict[str, Any]]:
    """The items of the opaque part. Calls are those of the message, whose ids and arguments a server may need in
    another form, and if nothing was said, an empty message says so."""
    items: list[dict[str, Any]] = loads_kept(message.opaque)
    calls = iter(message.calls)
    silent = not message.calls and not message.text.strip()
    for item in items:
        if item.get("type") == "function_call":
            item.update(next((_call_fields(call) for call in calls), {}))
        elif item.get("type") == "message" and silent:
            item["content"] = [{"type": "output_text", "text": NOTHING_SAID, "annotations": []}]
    return items


def _call_fields(call: ToolCall) -> dict[str, str]:
    # Several servers parse the history's arguments and refuse an empty text.
    return {
        "call_id": fitting_id(call.id, _ID),
        "name": plain_name(call.name),
        "arguments": call.arguments or "{}",
    }


def _items(message: Message) -> list[dict[str, Any]]:
    """The items of a message that need not be sent back as received: its text, then its calls."""
    text = words_of(message) if message.role == "assistant" else message.text
    items: list[dict[str, Any]] = []
    if text or not message.calls:
        items.append({"type": "message", "role": message.role, "content": text})
    return items + [{"type": "function_call", **_call_fields(call)} for call in message.calls]


def _body(head: bytes, tools: bytes, messages: Sequence[bytes], seed: int | None) -> bytes:
    del seed  # the API has none
    before = head + b',"tools":' + tools if tools else head[: head.index(b"\n")]
    return splice(before + b',"input":[', messages, b"]}")


def _read(value: Any) -> Reply:
    output = value.get("output") if isinstance(value, dict) else None
    if not isinstance(output, list) or value.get("status") == "failed":
        raise MalformedReplyError(f"openai_responses: no output in {dumps_any(value)[:300]!r}")
    items = [item for item in output if isinstance(item, dict)]
    text, refusal = _read_text(items)
    calls, items = _read_calls(items)
    opaque = _keep(items)
    kept = bool(opaque) and bool(thoughts_of(Reply(opaque=opaque)).text)
    return Reply(
        text=text or refusal,
        calls=calls,
        finish="refusal" if refusal else _finish(value, calls),
        usage=_read_usage(object_of(value, "usage"), bool(text or refusal or calls or opaque)),
        model=text_of(value, "model"),
        response_id=text_of(value, "id"),
        opaque=opaque,
        reasoning="" if kept else _shown(items),
        tier=text_of(value, "service_tier"),
    )


def _shown(items: Sequence[Mapping[str, Any]]) -> str:
    """What the model thought, of items that do not go back."""
    return "\n\n".join(filter(None, (item_text(item) for item in items if item.get("type") == "reasoning")))


def _finish(value: Mapping[str, Any], calls: Sequence[ToolCall]) -> str:
    status = text_of(value, "status")
    if status == "incomplete":
        reason = text_of(object_of(value, "incomplete_details"), "reason")
        return _FINISHES.get(reason, reason)
    if status in ("", "completed"):
        return "tool_calls" if calls else "stop"
    return status


def _read_text(items: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """(text, refusal) of all messages, joined."""
    texts: list[str] = []
    refusals: list[str] = []
    for item in items:
        if item.get("type") == "message":
            for part in _parts(item):
                texts.append(text_of(part, "text"))
                refusals.append(text_of(part, "refusal") if part.get("type") == "refusal" else "")
    return "".join(texts), "".join(refusals)


def _parts(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "output_text", "text": content}]
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _read_calls(items: Sequence[dict[str, Any]]) -> tuple[tuple[ToolCall, ...], list[dict[str, Any]]]:
    """The calls in order, and all items with each call written as it must be sent back."""
    calls: list[ToolCall] = []
    ids = iter(call_ids([text_of(item, "call_id") for item in items if item.get("type") == "function_call"]))
    written: list[dict[str, Any]] = []
    for item in items:
        if item.get("type") != "function_call":
            written.append(item)
            continue
        call = ToolCall(id=next(ids), name=text_of(item, "name"), arguments=text_arguments(item))
        calls.append(call)
        written.append({**item, "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"})
    return tuple(calls), written


def _keep(items: Sequence[dict[str, Any]]) -> bytes:
    """The opaque part: the items to send back, as JSON; empty if they can be rebuilt."""
    kept = [_without_status(item) for item in items if not _lost(item)]
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    kinds = [item.get("type") for item in kept]
    plain = kinds == ["message"] * ("message" in kinds) + ["function_call"] * kinds.count("function_call")
    if plain and not any(item.get("phase") for item in kept):
        return b""
    if len(kept) < len(items):
        # An id would refer the server to the reasoning that came with it, and that is missing now.
        kept = [{name: value for name, value in item.items() if name != "id"} for item in kept]
    return dumps_any(kept)


def _lost(item: Mapping[str, Any]) -> bool:
    """Whether an item is useless unless the server stored it: reasoning that has only an id, or no type."""
    if item.get("type") == "reasoning":
        return not (item.get("encrypted_content") or item.get("content"))
    return not text_of(item, "type")


def _without_status(item: dict[str, Any]) -> dict[str, Any]:
    """Reasoning as requests may hold it: the API refuses the status it gave it, and wants a summary."""
    if item.get("type") != "reasoning":
        return item
    return {"summary": [], **{name: value for name, value in item.items() if name != "status"}}


def _read_usage(raw: Mapping[str, Any], says: bool) -> Usage:
    """What the provider counted."""
    inner, outer = object_of(raw, "input_tokens_details"), object_of(raw, "output_tokens_details")
    return usage_of(
        tokens_in=stated(raw, "input_tokens"),
        tokens_out=stated(raw, "output_tokens"),
        cached_read=stated(inner, "cached_tokens"),
        cached_write=stated(inner, "cache_write_tokens"),
        reasoning=stated(outer, "reasoning_tokens"),
        says=says,
        total=stated(raw, "total_tokens"),
    )


def _judge(response: HttpResponse) -> Verdict:
    """As for all dialects; and a response that was accepted but failed, was cancelled or is not there yet comes with
    status 200. What does not say why it failed may succeed the next time."""
    if not _ODD.search(response.body):
        return judge(response)
    value = accepted_with(response, b"")
    status = text_of(value, "status")
    why = object_of(value, "incomplete_details").get("reason") if status == "incomplete" else status
    if status == "incomplete" and not is_failure(why):
        return judge(response)
    error = failure_beside(why, value.get("error") if status in _FAILED else None)
    if not error and status in _PENDING and not value.get("output"):
        error = {"message": f"The response has not ended ({status})."}
    return judge_error(response, error, stated_status(error) or 500, begun=True) if error else judge(response)


def _objections(sampling: Sampling, tools: Sequence[Tool]) -> Sequence[str]:
    highest = {"temperature": 2, "top_p": 1}
    objections = sampling_objections(sampling, OPENAI_RESPONSES_FIELDS, least_tokens=LEAST_TOKENS, highest=highest)
    return objections + tool_objections(tools)


OPENAI_RESPONSES = Dialect(
    efforts=("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    name="openai_responses",
    path="/responses",
    # As for Chat Completions; and an encrypted item has more bytes than its content had tokens.
    overhead_tokens=512,
    head=_head,
    encode_tools=_encode_tools,
    encode_message=_encode_message,
    body=_body,
    headers=bearer,
    read=_read,
    judge=_judge,
    allowances=read_allowances,
    objections=_objections,
    extra_fields=OPENAI_RESPONSES_FIELDS,
    stream=RESPONSES_STREAM,
    lacks=frozenset({"seed"}),
    cache_key="prompt_cache_key",
    caches=RETAINED,
    tier_field="service_tier",
)
