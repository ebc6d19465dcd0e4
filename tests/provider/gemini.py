"""Gemini's generateContent as a server speaks it: their request to ours, our reply to their JSON.

For the test double. Strict where the real server is: no field is unknown, the user's turns and the model's
alternate and begin and end with the user's, no part is empty, and a turn with calls is followed by as many results,
each for one of them. A result without an id belongs to the first call of its name that is still open.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalkit.dialogue import Message, Reply, Request, Sampling, Tool, ToolCall, ToolChoice
from evalkit.serve.formats import Cutter, Event, EventFormat, ServedFormat, StreamWish, as_written, loaded
from evalkit.wire.fields import object_of
from evalkit.wire.gemini import GEMINI, read_parts, write_parts
from evalkit.wire.lenient import dumps_any

_FIELDS = frozenset({"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}) | frozenset(
    {"safetySettings", "cachedContent", "serviceTier", "store"}
)
_CONFIG = frozenset({"maxOutputTokens", "temperature", "topP", "topK", "seed", "candidateCount", "stopSequences"}) | {
    *("thinkingConfig", "presencePenalty", "frequencyPenalty", "responseMimeType", "responseSchema", "mediaResolution"),
    *("responseJsonSchema", "responseLogprobs", "logprobs", "responseModalities"),
}
_CHOICES: Mapping[str, ToolChoice] = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}
_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_RESULTS = ("output", "error", "result")
_MOST_SEED = 2**31


def decode_request(body: bytes, model: str = "") -> tuple[str, Request]:
    """(model, request). Raises ValueError saying what is wrong and where."""
    value = loaded(body)
    _check_names(value, _FIELDS, "")
    config = _object(value, "generationConfig")
    _check_names(config, _CONFIG, "generation_config.")
    system = _parts(value["systemInstruction"], "system_instruction") if "systemInstruction" in value else []
    messages = [Message(role="system", text=_text(part, "system_instruction")) for part in system]
    messages += _dialogue(_list(value, "contents"))
    seed = config.get("seed", 0)
    if type(seed) is not int or not -_MOST_SEED <= seed < _MOST_SEED:
        raise ValueError("generation_config.seed: must be a whole number of 32 bits")
    tools = [declaration for group in _list(value, "tools") for declaration in _declarations(group)]
    request = Request(
        messages=tuple(messages),
        tools=tuple(_tool(declaration, index) for index, declaration in enumerate(tools)),
        sampling=_sampling(config, _object(value, "toolConfig")),
        seed=seed,
    )
    return model, request


def _check_names(value: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    for name in value:
        if name not in known:
            raise ValueError(f'Invalid JSON payload received. Unknown name "{prefix}{name}": Cannot find field.')


def _sampling(config: Mapping[str, Any], tool_config: Mapping[str, Any]) -> Sampling:
    most = config.get("maxOutputTokens", Sampling().max_tokens)
    if type(most) is not int or most < 1:
        raise ValueError("generation_config.max_output_tokens: must be a whole number of at least 1")
    for name, highest in (("temperature", 2), ("topP", 1)):
        number = config.get(name, 0)
        if type(number) not in (int, float) or not 0 <= number <= highest:
            raise ValueError(f"generation_config.{name}: must be a number from 0 to {highest}")
    mode = object_of(tool_config, "functionCallingConfig").get("mode", "AUTO")
    if mode not in _CHOICES:
        raise ValueError(f"tool_config.function_calling_config.mode: {mode!r} is not one of {', '.join(_CHOICES)}")
    thinking = _object(config, "thinkingConfig")
    level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
    if level is not None and budget is not None:
        raise ValueError("thinking_config: only one of thinking_level and thinking_budget may be set")
    effort = level if budget is None else str(budget)
    if not isinstance(effort, str | None):
        raise ValueError("thinking_config.thinking_level: must be a string")
    return Sampling(
        temperature=config.get("temperature"),
        max_tokens=most,
        tool_choice=_CHOICES[mode],
        top_p=config.get("topP"),
        effort=effort or "",
    )


def _declarations(group: Any) -> list[Any]:
    if not isinstance(group, dict) or group.keys() != {"functionDeclarations"}:
        raise ValueError("tools: only function_declarations are served")
    return _list(group, "functionDeclarations")


def _tool(declaration: Any, index: int) -> Tool:
    path = f"tools[0].function_declarations[{index}]"
    if not isinstance(declaration, dict) or not isinstance(declaration.get("name"), str) or not declaration["name"]:
        raise ValueError(f"{path}.name: must be a string")
    if "parameters" in declaration and "parametersJsonSchema" in declaration:
        raise ValueError(f"{path}: only one of parameters and parameters_json_schema may be set")
    # Google's own SDK writes this one name with underscores; the API takes either.
    schema = declaration.get(
        "parametersJsonSchema", declaration.get("parameters_json_schema", declaration.get("parameters", {}))
    )
    if not isinstance(schema, dict):
        raise ValueError(f"{path}.parameters: must be an object")
    return Tool(name=declaration["name"], description=declaration.get("description") or "", parameters=schema)


def _dialogue(turns: Sequence[Any]) -> list[Message]:
    """All turns as messages; the next turn must answer the calls of a turn."""
    if len(turns) % 2 == 0:
        raise ValueError("contents: must not be empty, and the last turn must be the user's")
    messages: list[Message] = []
    remaining: Sequence[ToolCall] = ()
    for index, turn in enumerate(turns):
        path, role = f"contents[{index}]", ("user", "model")[index % 2]
        if not isinstance(turn, dict) or turn.get("role", "user") != role:
            raise ValueError(f"{path}.role: must be {role!r}: turns alternate, and the first is the user's")
        parts = _parts(turn, path)
        if role == "user":
            messages += _answers(parts, remaining, path)
        else:
            messages.append(_said(parts, path))
            remaining = messages[-1].calls
    return messages


def _answers(parts: Sequence[dict[str, Any]], remaining: Sequence[ToolCall], path: str) -> list[Message]:
    """A user's turn: a result for each call that still needs one, and texts."""
    messages: list[Message] = []
    missing = list(remaining)
    for i, part in enumerate(parts):
        result = part.get("functionResponse")
        if result is None:
            messages.append(Message(role="user", text=_text(part, f"{path}.parts[{i}]")))
            continue
        if not isinstance(result, dict) or not isinstance(result.get("name"), str) or not result["name"]:
            raise ValueError(f"{path}.parts[{i}].function_response.name: Name cannot be empty.")
        call = next((open_call for open_call in missing if _answers_call(result, open_call)), None)
        if call is None:
            raise ValueError(f"{path}.parts[{i}]: no function call is open that function_response answers")
        missing.remove(call)
        text = _result(_object(result, "response"))
        messages.append(Message(role="tool", text=text, call_id=call.id, name=call.name))
    if missing:
        raise ValueError(
            f"{path}: Please ensure that the number of function response parts is equal to the number of function "
            "call parts of the function call turn."
        )
    return messages


def _answers_call(result: Mapping[str, Any], call: ToolCall) -> bool:
    return (result.get("id", call.id), result["name"]) == (call.id, call.name)


def _result(response: Mapping[str, Any]) -> str:
    """A result's text: that of its one member by a usual name, else the object as JSON."""
    for name in _RESULTS:
        if response.keys() == {name} and isinstance(response[name], str):
            text: str = response[name]
            return text
    return dumps_any(response).decode()


def _said(parts: Sequence[dict[str, Any]], path: str) -> Message:
    for i, part in enumerate(parts):
        call = part.get("functionCall")
        if "functionCall" in part:
            if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
                raise ValueError(f"{path}.parts[{i}].function_call.name: Name cannot be empty.")
            if not isinstance(call.get("args", {}), dict):
                raise ValueError(f"{path}.parts[{i}].function_call.args: must be an object")
        elif not part.get("thought"):
            _text(part, f"{path}.parts[{i}]")
    text, calls, opaque = read_parts(parts)
    return Message(role="assistant", text=text, calls=tuple(as_written(call) for call in calls), opaque=opaque)


def _parts(turn: Any, path: str) -> list[dict[str, Any]]:
    parts = turn.get("parts") if isinstance(turn, dict) else None
    if not isinstance(parts, list) or not parts:
        raise ValueError(f"{path}.parts: contents.parts must not be empty.")
    for i, part in enumerate(parts):
        if not isinstance(part, dict) or not part:
            raise ValueError(f"{path}.parts[{i}]: must be an object with one initialized field")
    return parts


def _text(part: Mapping[str, Any], path: str) -> str:
    """A part's text; blank only where a signature came with it."""
    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError(f"{path}: only text, function calls and their responses are served")
    if not text and "thoughtSignature" not in part:
        raise ValueError(f"{path}: must have a text that is not empty")
    return text


def _object(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name, {})
    if not isinstance(member, dict):
        raise ValueError(f"{name}: must be an object")
    return member


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    items = value.get(name, [])
    if not isinstance(items, list):
        raise ValueError(f"{name}: must be a list")
    return items


def _layout(reply: Reply) -> bytes:
    """The parts of a reply with its thoughts before the others, and their signature on the first of these."""
    sealed = {"thoughtSignature": b64encode(b"sealed-%d" % len(reply.reasoning)).decode()}  # of a field of bytes
    parts: list[Any] = [[len(reply.text), sealed]] if reply.text or not reply.calls else []
    parts += [[None, None if parts or i else sealed] for i in range(len(reply.calls))]
    return dumps_any([{"text": reply.reasoning, "thought": True}, *parts])


def encode_reply(reply: Reply) -> bytes:
    """A 200 body."""
    usage = reply.usage
    counted = {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cached_read,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }
    return b'{"candidates":[{"content":{"role":"model","parts":[%b]},"finishReason":%b,"index":0}],%b}' % (
        write_parts(reply.text, reply.calls, _layout(reply) if reply.reasoning else reply.opaque),
        dumps_any(_REASONS.get(reply.finish, reply.finish)),
        dumps_any({"usageMetadata": counted, "modelVersion": reply.model, "responseId": reply.response_id})[1:-1],
    )


def _events(value: Mapping[str, Any], _wish: StreamWish, cut: Cutter) -> Iterator[Event]:
    """The chunks of a 200 body's value: each a response, the last with the finish reason and the whole usage."""
    (candidate,) = value["candidates"]
    content, usage = candidate["content"], value.get("usageMetadata")
    parts = [piece for part in content["parts"] for piece in _part_pieces(part, cut)] or [{"text": ""}]
    early = {**value, "usageMetadata": {**usage, "totalTokenCount": usage["promptTokenCount"]}} if usage else value
    for name in ("candidatesTokenCount", "thoughtsTokenCount") if usage else ():
        del early["usageMetadata"][name]
    for index, part in enumerate(parts):
        ends = index == len(parts) - 1
        said = {**candidate, "content": {**content, "parts": [part]}}
        if not ends:
            del said["finishReason"]
        yield {**(value if ends else early), "candidates": [said]}


def _part_pieces(part: Event, cut: Cutter) -> list[Event]:
    """A part whose text is cut; its signature comes with the last piece, or after it with an empty text."""
    if "text" not in part:
        return [part]
    signed = {name: member for name, member in part.items() if name == "thoughtSignature"}
    further = {name: member for name, member in part.items() if name not in ("text", "thoughtSignature")}
    texts = cut(part["text"]) or [""]
    if signed and texts != [""] and len(part["text"]) % 2:  # the real provider does either
        texts.append("")
    return [
        {"text": text, **further, **(signed if index == len(texts) - 1 else {})} for index, text in enumerate(texts)
    ]


_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def encode_error(status: int, code: str, message: str) -> bytes:
    """The body of an error; the code is the reason among its details."""
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper()}] if code else []
    name = _STATUSES.get(status, "UNKNOWN")
    return dumps_any({"error": {"code": status, "message": message, "status": name, "details": details}})


GEMINI_FORMAT = ServedFormat(
    dialect=GEMINI,
    decode_request=decode_request,
    encode_reply=encode_reply,
    stream=EventFormat(events=_events),
    encode_error=encode_error,
    reply_id=lambda name: name[:22],
    sdk_path="",
)
