"""What dialects share: fields of a reply, read whatever they contain; arguments as objects; and checks before anything
is sent."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from evalkit.dialogue import Sampling, Tool
from evalkit.wire.extras import ExtraFields, field_objections
from evalkit.wire.lenient import dumps_any

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_RULE = "letters, digits, _ and - only, at most 64"


def text_of(raw: Mapping[str, Any], name: str) -> str:
    """A field as text; empty if it is not text."""
    value = raw.get(name)
    return value if isinstance(value, str) else ""


def object_of(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field as an object; empty if it is not an object."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def first_object(raw: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The first entry of a field that is a list; None if it is no object, or there is none."""
    value = raw.get(name)
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, dict) else None


def text_arguments(raw: Mapping[str, Any]) -> str:
    """A call's arguments as text; JSON of what is none, and empty without any."""
    value = raw.get("arguments")
    return value if isinstance(value, str) else "" if value is None else dumps_any(value).decode()


def is_object(text: str) -> bool:
    """Whether a text is JSON of an object."""
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def call_ids(given_ids: Sequence[str]) -> list[str]:
    """An id for each call of a reply, all different: its own, or one made from its place if it has none or an earlier
    call has the same. Results are sent back with these ids, so providers refuse duplicates."""
    ids: dict[str, None] = {}
    given_set = set(given_ids)
    for index, own in enumerate(given_ids):
        name = own
        if not own or own in ids:
            name = f"call_{index}"
            while name in given_set or name in ids:
                name += "_"
        ids[name] = None
    return list(ids)


RAW = "_raw"
"""The member that contains a call's arguments if they are not a JSON object."""


def object_text(arguments: str) -> bytes:
    """A call's arguments for a format that takes nothing but an object: a text that is one stands as it is, none at all
    is `{}`, and any other, which only a cut or disobedient reply has, is `{"_raw": text}`."""
    if not arguments:
        return b"{}"
    return arguments.encode() if is_object(arguments) else dumps_any({RAW: arguments})


def sampling_objections(
    sampling: Sampling, fields: ExtraFields, *, least_tokens: int = 1, highest: Mapping[str, float] | None = None
) -> list[str]:
    """What a request cannot contain, in sentences. `fields` are those that `extra` may set; `highest` bounds numbers of
    the sampling."""
    objections: list[str] = []
    if sampling.max_tokens < least_tokens:
        objections.append(f"max_tokens must be at least {least_tokens}, not {sampling.max_tokens}.")
    for name in ("temperature", "top_p"):
        value = getattr(sampling, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            objections.append(f"{name} must be a number of at least 0, not {value}.")
    for name, most in (highest or {}).items():
        value = getattr(sampling, name)
        if value is not None and value > most:
            objections.append(f"{name} must be at most {most:g}, not {value}.")
    return objections + field_objections(sampling.extra, fields)


def tool_objections(
    tools: Sequence[Tool], *, name: re.Pattern[str] = _NAME, rule: str = _RULE, key: re.Pattern[str] | None = None
) -> list[str]:
    """What providers refuse in tools, in sentences: names that are not like `name` (`rule` says it in words) or are
    given twice, schemas that are not plain objects at the top, and arguments whose names are not like `key`."""
    objections: list[str] = []
    seen: set[str] = set()
    for tool in tools:
        if not name.fullmatch(tool.name):
            objections.append(f"The tool name {tool.name!r} is not allowed: {rule}.")
        if tool.name in seen:
            objections.append(f"Two tools are called {tool.name!r}.")
        seen.add(tool.name)
        objections += _schema_objections(tool, key)
    return objections


def _schema_objections(tool: Tool, key: re.Pattern[str] | None) -> list[str]:
    schema = tool.parameters
    if schema.get("type", "object") != "object":
        return [f"The arguments of {tool.name!r} must be an object, not {schema['type']!r}."]
    objections = [
        f"The schema of {tool.name!r} may not have {word!r} at its top."
        for word in ("oneOf", "anyOf", "allOf", "not", "enum")
        if word in schema
    ]
    properties = schema.get("properties", {})
    if key is not None and isinstance(properties, Mapping):
        bad = [argument for argument in properties if not key.fullmatch(argument)]
        objections += [
            f"The argument name {argument!r} of {tool.name!r} is not allowed: it must match {key.pattern}."
            for argument in bad
        ]
    return objections


# Why a reply ended, where a provider says so in a word of its own: which words tell of a failure of its own, and
# which of a filter.
#
# A reply that ended so is not what the model would have said: the attempt has failed, whatever text stands beside it.
# The words that formats document for what a model does (`stop`, a call that it wrote badly, a refusal) are none.
#
# Sources: docs.z.ai (`network_error`, `sensitive`), api-docs.deepseek.com (`insufficient_system_resource`), vLLM and
# SGLang (`abort`), docs.cohere.com (`ERROR`, `ERROR_TOXIC`, `TIMEOUT`), ai.google.dev (`OTHER`, `MALFORMED_RESPONSE`;
# of its filters `PROHIBITED_CONTENT`, `BLOCKLIST`, `RECITATION`, `SPII`); github.com/firebase/genkit/pull/6259,
# github.com/UKGovernmentBEIS/inspect_ai/issues/1534.

_FILTERED = re.compile(
    r"(?:content|safety|output|input)[ _-]?filter|sensitive|safety|toxic|moderat|policy|guardrail"
    r"|prohibited|blocklist|block_reason|blocked|recitation|spii|unsafe|harmful"
)
_FAILED = re.compile(
    r"error(?!_(?:toxic|limit))|abort|cancel|overload|time[ _-]?out|timed[ _-]?out|network|disconnect|unavailable"
    r"|interrupt|fail|exception|insufficient[ _-]system|rate[ _-]?limit|capacity|malformed_response"
)
_MODELS_OWN = ("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls")
_MOST_CHARS = 100


def odd(field: str, *ordinary: str) -> re.Pattern[bytes]:
    """Finds, in a body, a field that holds another word than the ordinary ones, or none."""
    known = "|".join(f'"{word}"' for word in ordinary)
    return re.compile(rf'"{field}"\s*+:\s*+(?!{known}|null)'.encode())


def is_filtered(word: Any) -> bool:
    """Whether a word says that a filter has ended the reply."""
    low = word.lower() if isinstance(word, str) else ""
    return bool(_FILTERED.search(low)) and not any(own in low for own in _MODELS_OWN)


def is_failure(word: Any) -> bool:
    """Whether a word says that the reply was ended by no doing of its model."""
    low = word.lower()[:_MOST_CHARS] if isinstance(word, str) else ""
    return bool(_FAILED.search(low)) and not is_filtered(low) and not any(own in low for own in _MODELS_OWN)


def failure_beside(word: Any, error: Any) -> Mapping[str, Any]:
    """The error of a reply that failed; empty if it did not. `word`: why it ended, or an object that says so; `error`:
    what the provider states beside."""
    if isinstance(error, dict) and any(error.get(name) for name in ("message", "code", "type", "status")):
        return error
    if isinstance(error, str) and error:
        return {"message": error}
    if isinstance(word, dict):  # SGLang's own form
        kind = word.get("type")
        status = {"code": word["status_code"]} if word.get("status_code") else {}
        return {"message": word.get("message") or kind, "type": kind, **status} if is_failure(kind) else {}
    return {"message": f"The provider ended the reply with {word!r}.", "type": word} if is_failure(word) else {}
