"""Refusals of what the model itself wrote: a call that its provider parsed before it answered, and could not.

They come as errors, but nothing is wrong with the request: another draw often parses. If none does, the call is the
model's own malformed one, and an episode goes on with it as with any other.

Groq's documents do not say whether such a generation is billed. Its tokens were made, so it counts as billed.
"""

import re
from dataclasses import dataclass

from evalkit.dialogue import Reply, ToolCall
from evalkit.wire.fields import object_of, text_of
from evalkit.wire.http import Verdict
from evalkit.wire.lenient import MalformedReplyError, dumps_any, loads_lenient

DRAWS = 3
"""Times that one step is asked in all, if every draw is refused so."""
BAD_CALL = "bad_call"
"""The kind of such a verdict, and its outcome in `http.py`."""
FINISH = "malformed_call"
"""Of the reply that stands for such a call."""

_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wording:
    """How one server says it; within a status of 400 or more, in lower case."""

    code: str = ""
    """Its error's code."""
    message: str = ""
    """A regular expression for its message."""
    source: str


WORDINGS = (
    _Wording(
        code="tool_use_failed",
        source="Groq: console.groq.com/docs/tool-use; smolagents #1119, agno #4090, pipecat #1168",
    ),
    _Wording(code="output_parse_failed", source="Groq's gpt-oss: its error beside `failed_generation`"),
    _Wording(
        message=r"\bmodel(?:'s)? (?:has )?(?:generated|produced|returned|emitted|output|response)\b[^.]{0,60}?"
        r"(?:(?:invalid|malformed|unparsable|incomplete) (?:tool|function)[ _]?calls?"
        r"|(?:could not|couldn't|cannot|failed to) be parsed)",
        source="of this kind, where a server says that its model wrote it; never of a request's own messages",
    ),
    _Wording(
        message=r"failed to (?:generate tool_?calls?|call a function)",
        source="Cerebras: cerebras-cloud-sdk-node #4, llxprt-code #221; Groq's words",
    ),
    _Wording(
        message=r"invalid json: (?:eof while parsing|[^\n]{0,200}\[type=json_invalid, input_value=)"
        r"|validation errors? for list\[function-wrap",
        source="vLLM, `tool_choice` required: inference-perf #695, vLLM #27921, PR #36883; bielik-tools #9",
    ),
    _Wording(message=r"tool error: .*eof while parsing", source="TGI: text-generation-inference #2240"),
    _Wording(message=r"failed to parse fc related info", source="SGLang: sglang #4300"),
    _Wording(message=r"failed to parse input at pos \d", source="llama.cpp: llama.cpp #20532, #23838, #24644"),
    _Wording(message=r"error parsing tool call", source="Ollama: ollama #12064, #12884, #17638"),
)


def bad_call(status: int, code: str, message: str) -> Verdict | None:
    """The verdict on an error, if it refuses what the model wrote. `code`: in lower case."""
    if status < 400 or status in (401, 403, 404, 429):
        return None
    low = message.lower()
    for wording in WORDINGS:
        if (wording.code and wording.code in code) or (wording.message and re.search(wording.message, low, re.DOTALL)):
            return Verdict(action="draw_again", kind=BAD_CALL, message=message[:_SHOWN_CHARS], outcome=BAD_CALL)
    return None


def malformed_reply(body: bytes) -> Reply:
    """The reply that such an error stands for: one call, whose arguments are a list of what the model wrote, as far as
    the error has it. No environment takes that for an object, however it mends what is broken."""
    try:
        value = loads_lenient(body)[0]
    except MalformedReplyError:
        value = {}
    value = value if isinstance(value, dict) else {}
    error = object_of(value, "error") or value
    wrote = text_of(error, "failed_generation") or _first(_QUOTED, text_of(error, "message") or text_of(value, "error"))
    call = ToolCall(id="call_0", name=_first(_NAME, wrote), arguments=dumps_any([wrote]).decode())
    return Reply(calls=(call,), finish=FINISH)


_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,200})"|<function=([^\s{(<>/\[,]{1,200})')
"""Where models write a call's name: as JSON, or as Llama's mark."""
_QUOTED = re.compile(
    r"raw='(.*)', err=|input_value='(.*)', input_type=|Failed to parse input at pos \d+: (.*)", re.DOTALL
)
"""What a server's message quotes of it (Ollama, Pydantic, llama.cpp)."""


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(filter(None, found.groups()), "") if found else ""
