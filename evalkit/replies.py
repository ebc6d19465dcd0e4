"""A reply as the log holds it: canonical JSON with what the agent answered, without its cost.

`{"calls":[[id,name,arguments],...],"finish":"tool_calls","opaque":"...","reasoning":"...","text":"..."}`, keys sorted,
`opaque` and `reasoning` left out where they are empty. Tokens, served model and response id have their own columns: an
environment must not depend on them, otherwise replay would differ from play.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from evalkit.dialogue import Reply, ToolCall
from evalkit.errors import CorruptLogError

MOST_BYTES = 8 << 20
"""Of a reply, in a provider's format or in the log's: ten times the longest of a model. The log has to store it, and
every later request may contain it."""


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


def composed(value: object) -> tuple[Reply, bytes]:
    """A reply that code has put together, as the log gives it back, and its JSON. The code's own types are not trusted.

    value  a Reply, a sequence of ToolCalls, or a text

    Raises TypeError for other types, also within it; ValueError for text that is not valid Unicode, or more than
    `MOST_BYTES`.
    """
    made = value
    if isinstance(value, str):
        made = Reply(text=value)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        made = Reply(calls=tuple(value), finish="tool_calls" if value else "stop")
    if not isinstance(made, Reply):
        raise TypeError(f"reply: expected a Reply, a list of ToolCalls or a string, got {type(value).__name__}")
    texts = (made.text, made.finish, made.reasoning)
    if not all(isinstance(text, str) for text in texts) or not isinstance(made.opaque, bytes):
        raise TypeError("reply: text, finish and reasoning of a Reply must be strings, opaque must be bytes")
    for call in made.calls:
        if not isinstance(call, ToolCall):
            raise TypeError(f"reply: expected ToolCalls, got {type(call).__name__}")
        if not all(isinstance(text, str) for text in (call.id, call.name, call.arguments)):
            raise TypeError(
                "reply: id, name and arguments of a ToolCall must be strings; arguments is JSON: json.dumps(...)"
            )
    try:
        data = encode_reply(made)
    except (TypeError, UnicodeError) as flaw:
        raise ValueError(f"the reply is not valid text: {flaw}") from flaw
    if len(data) > MOST_BYTES:
        raise ValueError(f"the reply has {len(data):,} bytes; at most {MOST_BYTES:,} are taken, as of a model's")
    return decode_reply(data), data


def decode_reply(data: bytes) -> Reply:
    """The reply from which `encode_reply` made `data`; tokens and served model are at their defaults.

    Raises CorruptLogError if it is not of that form.
    """
    try:
        held = _DECODER.decode(data)
    except msgspec.ValidationError as flaw:
        raise CorruptLogError(f"a logged reply does not have the form that evalkit writes: {data[:80]!r}") from flaw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as flaw:
        raise CorruptLogError(f"a logged reply is not JSON ({flaw}): {data[:80]!r}") from flaw
    return Reply(
        text=held.text,
        calls=tuple([ToolCall(id=id_, name=name, arguments=arguments) for id_, name, arguments in held.calls]),
        finish=held.finish,
        opaque=held.opaque.encode(),
        reasoning=held.reasoning,
    )


class _WrittenReply(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    finish: str
    calls: list[tuple[str, str, str]]
    opaque: str = ""
    reasoning: str = ""


_DECODER = msgspec.json.Decoder(_WrittenReply)
