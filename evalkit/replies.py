"""A reply as the log holds it: canonical JSON with what the agent answered, without its cost.

`{"calls":[[id,name,arguments],...],"finish":"tool_calls","opaque":"...","reasoning":"...","text":"..."}`, keys sorted,
`opaque` and `reasoning` left out where they are empty. Tokens, served model and response id have their own columns: an
environment must not depend on them, otherwise replay would differ from play.
"""

from typing import Any

import orjson

from evalkit.dialogue import Reply, ToolCall
from evalkit.errors import CorruptLogError


def encode_reply(reply: Reply) -> bytes:
    """The reply's JSON; equal replies give equal bytes.

    The dialect has made sure that its text is valid. Raises TypeError for text that is not Unicode (half a surrogate
    pair), UnicodeDecodeError for an opaque part that is not UTF-8: both would be bugs of the dialect.
    """
    value: dict[str, Any] = {
        "calls": [(call.id, call.name, call.arguments) for call in reply.calls],
        "finish": reply.finish,
        "text": reply.text,
    }
    if reply.opaque:
        value["opaque"] = reply.opaque.decode()
    if reply.reasoning:
        value["reasoning"] = reply.reasoning
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def decode_reply(data: bytes) -> Reply:
    """The reply from which `encode_reply` made `data`; tokens and served model are at their defaults.

    Raises CorruptLogError if it is not of that form.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as flaw:
        raise CorruptLogError(f"a logged reply is not JSON ({flaw}): {data[:80]!r}") from flaw
    if not isinstance(value, dict) or not value.keys() <= _KEYS:
        raise _malformed(data)
    text, finish, opaque, reasoning, calls = (
        value.get("text"),
        value.get("finish"),
        value.get("opaque", ""),
        value.get("reasoning", ""),
        value.get("calls"),
    )
    if not (isinstance(text, str) and isinstance(finish, str) and isinstance(opaque, str) and isinstance(calls, list)):
        raise _malformed(data)
    if not isinstance(reasoning, str):
        raise _malformed(data)
    return Reply(
        text=text,
        calls=tuple([_call(call, data) for call in calls]),
        finish=finish,
        opaque=opaque.encode(),
        reasoning=reasoning,
    )


_KEYS = frozenset({"calls", "finish", "opaque", "reasoning", "text"})


def _call(value: object, data: bytes) -> ToolCall:
    if not (isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)):
        raise _malformed(data)
    return ToolCall(id=value[0], name=value[1], arguments=value[2])


def _malformed(data: bytes) -> CorruptLogError:
    return CorruptLogError(f"a logged reply does not have the form that evalkit writes: {data[:80]!r}")
