"""A reply as the log holds it: canonical JSON with what the agent answered, without its cost.

`{"calls":[[id,name,arguments],...],"finish":"tool_calls","opaque":"...","reasoning":"...","text":"..."}`, keys sorted,
`opaque` and `reasoning` left out where they are empty. Tokens, served model and response id have their own columns: an
environment must not depend on them, otherwise replay would differ from play.
"""

from typing import Any

import msgspec
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
