"""Gemini's generateContent: our messages to their JSON, their JSON to our reply. `serve/dialects/` has the other way.

The path names the model. The system text is a field of the body, and everything between two replies (the results of all
calls, then notices) is one turn of the user. So messages are merged as they join: system texts, which begin with a byte
that JSON never contains, at the front of the parts, and a user's parts at the end of the open turn.

Chosen: a word as `effort` is a `thinkingLevel` (Gemini 3 and later), a whole number a `thinkingBudget` (Gemini 2.5).
Chosen: tools carry their schema as `parametersJsonSchema`, which is JSON Schema; `parameters` supports only a part of
it. Chosen: a filter's word for why it stopped the reply, or kept the prompt from the model, is `content_filter`; other
reasons that are not ours stay as they are (MALFORMED_FUNCTION_CALL, UNEXPECTED_TOOL_CALL, ...). Chosen: usage counts
what the prompt's tools used as input, and thoughts, which the API reports apart, as output. The API does not state its
remaining limits, and has no switch for parallel calls. Source: https://ai.google.dev/api/generate-content,
https://ai.google.dev/gemini-api/docs/{thought-signatures,thinking}.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Sampling, Tool, ToolCall, Usage
from evalkit.wire.allowance import Allowance
from evalkit.wire.dialect import Dialect, Quirks, plain_settings, splice
from evalkit.wire.extras import GEMINI_FIELDS
from evalkit.wire.fields import (
    call_ids,
    failure_beside,
    first_object,
    object_of,
    object_text,
    odd,
    sampling_objections,
    text_of,
    tool_objections,
)
from evalkit.wire.history import NOTHING_SAID, SYSTEM, UNNAMED, extend_turns
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.lenient import MalformedReplyError, dumps_any, loads_kept
from evalkit.wire.streams import Assembler, StreamForm, joined, loads_event, raise_error
from evalkit.wire.usage import larger, stated, usage_of
from evalkit.wire.verdicts import accepted_with, judge, judge_error

# The parts of a model's turn in Gemini's format, in both directions; client and server share it.
#
# evalkit reads text and calls. A part may contain more (`thoughtSignature`), and some parts contain nothing else
# (thoughts). All of it must be sent back on the same part, in the same order. The opaque part is therefore the turn's
# layout, a JSON list: an object is a part as it came; a pair `[n, members]` a text of n characters with the other
# members of its part; a pair `[null, members]` the next call, likewise. With only text and calls there is no opaque
# part, and text comes before calls.
#
# Chosen: a call that came without an id, or with one that is taken, is named after its place. The name goes back with
# it, since the API pairs calls and results by it. Chosen: arguments that are left out are an empty object, because
# the format has no other way to write one.

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.:-]")
_START = re.compile(r"[a-zA-Z_]")


def accepted_name(name: str) -> str:
    """A tool's name as the API takes it: it begins with a letter or `_`."""
    name = _NOT_IN_NAMES.sub("_", name)
    return (name if _START.match(name) else "_" + name)[:64] if name else UNNAMED


def _further(members: Mapping[str, Any] | None) -> bytes:
    return b"," + dumps_any(members)[1:-1] if members else b""


def text_part(text: str, members: Mapping[str, Any] | None = None) -> bytes:
    """A text as a part, with what else the part holds."""
    return b'{"text":%b%b}' % (dumps_any(text), _further(members))


NO_CONTENT = text_part(NOTHING_SAID)
"""A turn needs a part beside thoughts, and a part a text."""


def write_parts(text: str, calls: Sequence[ToolCall], opaque: bytes) -> bytes:
    """The parts of a model's turn, separated by commas; empty if there are none."""
    layout = loads_kept(opaque) if opaque else [(len(text), None)]
    parts: list[bytes] = []
    offset, left = 0, iter(calls)
    for entry in layout:
        if isinstance(entry, dict):
            parts.append(dumps_any(entry))
            continue
        size, members = entry
        if size is None:
            parts += (_call_part(call, members) for call in islice(left, 1))
        elif size or members:
            parts.append(text_part(text[offset : offset + size], members))
            offset += size
    return b",".join(parts + [_call_part(call, None) for call in left])


def returned_parts(message: Message) -> bytes:
    """The parts of a model's turn as the API takes them back; one at least is more than a thought."""
    calls = [replace(call, name=accepted_name(call.name)) for call in message.calls]
    parts = write_parts(message.text, calls, message.opaque)
    if message.text or calls or not all(_is_thought(entry) for entry in loads_kept(message.opaque or b"[]")):
        return parts
    return parts + b"," + NO_CONTENT if parts else NO_CONTENT


def _is_thought(entry: Any) -> bool:
    """Whether a part of the layout is a thought, or an empty text."""
    return bool(entry.get("thought")) if isinstance(entry, dict) else not entry[0]


def read_parts(content: Sequence[Any]) -> tuple[str, tuple[ToolCall, ...], bytes]:
    """(text, calls, opaque part) of a turn's parts. Anything that is not a part is skipped."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    layout: list[Any] = []
    ids = iter(call_ids(_given_ids(content)))
    for part in content:
        if not isinstance(part, dict) or not part:
            continue
        call, text = part.get("functionCall"), part.get("text")
        if isinstance(call, dict):
            calls.append(_call(call, next(ids)))
            layout.append([None, _without(part, "functionCall")])
        elif isinstance(text, str) and not part.get("thought"):
            texts.append(text)
            layout.append([len(text), _without(part, "text")])
        else:
            layout.append(part)
    plain = not any(isinstance(entry, dict) or entry[1] for entry in layout)
    return "".join(texts), tuple(calls), b"" if plain else dumps_any(layout)


def _given_ids(content: Sequence[Any]) -> list[str]:
    calls = [part.get("functionCall") for part in content if isinstance(part, dict)]
    return [text_of(call, "id") for call in calls if isinstance(call, dict)]


def _call(call: dict[str, Any], call_id: str) -> ToolCall:
    value = call.get("args")
    return ToolCall(
        id=call_id, name=text_of(call, "name"), arguments="{}" if value is None else dumps_any(value).decode("utf-8")
    )


def _call_part(call: ToolCall, members: Mapping[str, Any] | None) -> bytes:
    return b'{"functionCall":{"id":%b,"name":%b,"args":%b}%b}' % (
        dumps_any(call.id),
        dumps_any(call.name or UNNAMED),
        object_text(call.arguments),
        _further(members),
    )


def _without(part: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    return {key: value for key, value in part.items() if key != name} or None


# A streamed reply of Gemini, assembled to the body that it has unstreamed.
#
# Each event is a whole response with the next parts. There is no end mark: a reply has ended if its reason to finish
# came, and the connection was closed in good order. Usage counts if some comes with that reason, or after it; of
# several statements the largest.
#
# Chosen: adjacent parts that hold nothing but text are one part, thoughts and answer apart. A part with a signature
# stays as it came, since the API wants it back on the same part; it may come alone, with an empty text. Source:
# https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/thought-signatures.

_PLAIN = frozenset({"text", "thought"})


class GeminiAssembler(Assembler):
    """Of Gemini. It learns of no events alike: each counts the tokens so far, so every one is taken."""

    __slots__ = ("_candidate", "_counted", "_ended", "_parts", "_top", "_usage")

    def __init__(self) -> None:
        super().__init__()
        self._top: dict[str, Any] = {}
        self._candidate: dict[str, Any] | None = None
        self._parts: list[Any] = []
        """Parts; of a text in pieces, a pair of its first part and the pieces."""
        self._usage: Any = None
        self._counted = False
        """Whether usage came with the reason to finish, or after it."""
        self._ended = False

    def take(self, name: bytes, data: bytes) -> None:
        """The next event."""
        del name
        value = loads_event(data)
        if not isinstance(value, dict):
            return
        raise_error(value)
        candidate = first_object(value, "candidates")
        if candidate is not None:
            self.begun = True
            self._candidate = {**(self._candidate or {}), **candidate}
            parts = object_of(candidate, "content").get("parts")
            for part in parts if isinstance(parts, list) else ():
                self._add(part)
            self._ended = self._ended or bool(candidate.get("finishReason"))
        blocked = text_of(object_of(value, "promptFeedback"), "blockReason")
        self._ended = self._ended or bool(blocked)
        if value.get("usageMetadata"):
            self._usage = larger(self._usage, value["usageMetadata"])
            self._counted = self._ended
        self._top |= {key: member for key, member in value.items() if key not in ("candidates", "usageMetadata")}

    def may_end(self) -> bool:
        """Whether the reason to finish came."""
        return self._ended

    def value(self) -> Any:
        """The body."""
        body = dict(self._top)
        if self._candidate is not None:
            parts = [_part(part) for part in self._parts]
            content = {**object_of(self._candidate, "content"), "parts": parts}
            body["candidates"] = [{**self._candidate, "content": content}]
        return {**body, "usageMetadata": self._usage} if self._counted else body

    def _add(self, part: Any) -> None:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str) or part.keys() - _PLAIN:
            self._parts.append(part)
            self.size += 1 + (len(text) if isinstance(text, str) else 0)
            return
        last = self._parts[-1] if self._parts else None
        if isinstance(last, tuple) and last[0].get("thought") == part.get("thought"):
            last[1].append(text)
        else:
            self._parts.append((part, [text]))
        self.size += len(text)


def _part(part: Any) -> Any:
    return {**part[0], "text": joined(part[1])} if isinstance(part, tuple) else part


GEMINI_STREAM = StreamForm(assembler=GeminiAssembler, path="/models/{model}:streamGenerateContent?alt=sse")


_USER = b'{"role":"user","parts":['
_CHOICES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_FINISHES = {"MAX_TOKENS": "length"} | dict.fromkeys(
    ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"), "content_filter"
)
_UNEXPLAINED = ("OTHER",)
_ODD = odd("finishReason", *_FINISHES, "STOP", "MALFORMED_FUNCTION_CALL")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_RULE = "a letter or _, then letters, digits and _ . : - only, at most 64"
_KEY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
_BUDGET = re.compile(r"-1|[0-9]{1,9}")
_LEVEL = re.compile(r"[a-zA-Z_]+")


def _head(_model: str, sampling: Sampling, quirks: Quirks) -> bytes:
    """The shared part in two lines: up to the end of `generationConfig`, where a seed may follow, then what only a body
    with tools may have."""
    extra = orjson.loads(sampling.extra) if sampling.extra else {}
    config: dict[str, Any] = {"maxOutputTokens": sampling.max_tokens}
    config |= plain_settings(sampling, quirks, top_p="topP")
    further = extra.pop("generationConfig", {})
    thinking = further.pop("thinkingConfig", {})
    if sampling.effort and "effort" not in quirks.refuses:
        budget = _BUDGET.fullmatch(sampling.effort)
        thinking |= {"thinkingBudget": int(sampling.effort)} if budget else {"thinkingLevel": sampling.effort}
    config |= further | ({"thinkingConfig": thinking} if thinking else {})
    choice = {"functionCallingConfig": {"mode": _CHOICES[sampling.tool_choice]}}
    with_tools = b"" if "tool_choice" in quirks.refuses else b',"toolConfig":' + orjson.dumps(choice)
    return orjson.dumps({**extra, "generationConfig": config})[:-2] + b"\n" + with_tools


def _encode_tools(tools: Sequence[Tool]) -> bytes:
    if not tools:
        return b""
    return orjson.dumps([{"functionDeclarations": [_tool(tool) for tool in tools]}])


def _tool(tool: Tool) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": schema}


def _encode_message(message: Message) -> bytes:
    if message.role == "assistant":
        return b'{"role":"model","parts":[%b]}' % returned_parts(message)
    if message.role == "tool":
        part = b'{"functionResponse":{"id":%b,"name":%b,"response":{"output":%b}}}' % (
            dumps_any(message.call_id),
            dumps_any(accepted_name(message.name)),
            dumps_any(message.text),
        )
    else:
        part = text_part(message.text) if message.text else b""
        if message.role == "system":
            return SYSTEM + part
    return _USER + (part or NO_CONTENT) + b"]}"


def _body(head: bytes, tools: bytes, messages: Sequence[bytes], seed: int | None) -> bytes:
    plain, _, with_tools = head.partition(b"\n")
    before = [plain, b"}" if seed is None else b',"seed":%d}' % seed]
    if tools:
        before += with_tools, b',"tools":', tools
    system = bool(messages) and messages[0].startswith(SYSTEM)
    if system:
        before += b',"systemInstruction":{"parts":[', messages[0][1:], b"]}"
    before.append(b',"contents":[')
    return splice(b"".join(before), messages[1:] if system else messages, b"]}")


def _headers(key: str) -> Mapping[str, str]:
    return {"x-goog-api-key": key} if key else {}


def _read(value: Any) -> Reply:
    """The first candidate; a blocked prompt has none, and gets no answer."""
    raw = value if isinstance(value, dict) else {}
    candidate = first_object(raw, "candidates")
    if candidate is None:
        if not text_of(object_of(raw, "promptFeedback"), "blockReason"):
            raise MalformedReplyError(f"gemini: no candidate in {dumps_any(value)[:300]!r}")
        candidate = {"finishReason": "SAFETY"}
    parts = object_of(candidate, "content").get("parts")
    text, calls, opaque = read_parts(parts if isinstance(parts, list) else ())
    reason = text_of(candidate, "finishReason")
    if reason in ("", "STOP", "FINISH_REASON_UNSPECIFIED"):
        reason = "tool_calls" if calls else "stop"
    usage = object_of(raw, "usageMetadata")
    return Reply(
        text=text,
        calls=calls,
        finish=_FINISHES.get(reason, reason),
        usage=_read_usage(usage, bool(text or calls or opaque)),
        model=text_of(raw, "modelVersion"),
        response_id=text_of(raw, "responseId"),
        opaque=opaque,
        tier=text_of(usage, "serviceTier") or text_of(usage, "trafficType"),
    )


def _read_usage(raw: Mapping[str, Any], says: bool) -> Usage:
    """What the provider counted.

    The API's JSON leaves out what is 0 (thoughts of a model that does not think, an empty answer), so an absent part
    of the output is known only through the stated total: total less input. Of the prompt's tools and of the cache an
    absent figure means 0: no request of ours asks for such tools, and the cache makes nothing dearer.
    """
    prompt, used = stated(raw, "promptTokenCount"), _stated_or_absent(raw, "toolUsePromptTokenCount")
    read = None if prompt is None or used is None else prompt + used
    shown, thought, total = (
        stated(raw, name) for name in ("candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
    )
    written, known = None, (shown or 0) + (thought or 0)
    if shown is not None and thought is not None:
        written = known
    elif read and total is not None and total - read >= known:
        written = total - read
        thought = written - (shown or 0) if thought is None and shown is not None else thought
    return usage_of(
        tokens_in=read,
        tokens_out=written,
        cached_read=_stated_or_absent(raw, "cachedContentTokenCount"),
        cached_write=0,
        reasoning=thought,
        says=says,
        total=total,
    )


def _stated_or_absent(raw: Mapping[str, Any], name: str) -> int | None:
    """As `stated`; 0 if there is no such field."""
    return stated(raw, name) if name in raw else 0


def _judge(response: HttpResponse) -> Verdict:
    """As for all dialects; and a candidate may have ended by no doing of its model: then there is nothing in it."""
    if not _ODD.search(response.body):
        return judge(response)
    candidate = first_object(accepted_with(response, b""), "candidates")
    if candidate is None or object_of(candidate, "content").get("parts"):
        return judge(response)
    reason = candidate.get("finishReason")
    said = text_of(candidate, "finishMessage")
    error = failure_beside("error" if reason in _UNEXPLAINED else reason, None)
    if not error:
        return judge(response)
    error = {"message": said or f"The provider ended the reply with {reason!r}."}
    return judge_error(response, error, 500, begun=True)


def _allowances(_headers: Mapping[str, str]) -> tuple[Allowance | None, Allowance | None]:
    return None, None


def _objections(sampling: Sampling, tools: Sequence[Tool]) -> Sequence[str]:
    objections = sampling_objections(sampling, GEMINI_FIELDS, highest={"temperature": 2, "top_p": 1})
    if sampling.effort and not (_BUDGET.fullmatch(sampling.effort) or _LEVEL.fullmatch(sampling.effort)):
        objections.append(f"effort must be a level (`low`) or a number of thinking tokens, not {sampling.effort!r}.")
    return objections + tool_objections(tools, name=_NAME, rule=_RULE, key=_KEY)


GEMINI = Dialect(
    name="gemini",
    path="/models/{model}:generateContent",
    # As for OpenAI Responses: a signature has more bytes than the text after it had tokens.
    overhead_tokens=512,
    head=_head,
    encode_tools=_encode_tools,
    encode_message=_encode_message,
    extend=partial(extend_turns, user=_USER),
    body=_body,
    headers=_headers,
    read=_read,
    judge=_judge,
    allowances=_allowances,
    objections=_objections,
    extra_fields=GEMINI_FIELDS,
    stream=GEMINI_STREAM,
    lacks=frozenset({"parallel_calls"}),
    # https://ai.google.dev/gemini-api/docs/flex-inference
    tier_field="serviceTier",
    served_header="x-gemini-service-tier",
)
