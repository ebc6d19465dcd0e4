"""Deliberate faults: their kinds, and the draw that decides. It is keyed by the request's id, so that the same request
has the same fault in every run, and its retry, which has another id, may have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import orjson

from evalkit.dialogue import Reply
from evalkit.wire.billed import counts_as_billed
from evalkit.wire.tokens import cut, output_tokens

STREAM_FAULTS: Mapping[str, str] = {
    "stream_silent": "of a stream only the headers come, then silence until the client gives up; billed",
    "stream_stall": "a stream falls silent anywhere, until the client gives up; billed",
    "stream_end": "a stream ends in an orderly way anywhere before its end mark; billed",
    "stream_reset": "the connection of a stream is reset anywhere; billed",
    "stream_error": "an error event anywhere in place of the rest of a stream; billed",
    "stream_comments": "comments and pings before and between a stream's events, over the whole latency; billed",
    "stream_joined": "a stream's deltas come joined, in as few events as its format allows; billed",
    "stream_crlf": "a stream's lines end in CRLF; billed",
}
"""Faults that only a streamed reply can have; a reply that comes whole comes as if there were none."""

FAULTS: Mapping[str, str] = {
    "429": "refused as if a limit were reached; not billed",
    "500": "server error; not billed",
    "502": "bad gateway; not billed",
    "503": "unavailable; not billed",
    "529": "overloaded; not billed",
    "early_reset": "connection reset before any work was done; not billed",
    "reset": "connection reset after the reply was made; billed",
    "stall": "the reply is made but never sent: silence until the client gives up; billed",
    "truncated": "the connection is closed in the middle of the body; billed",
    "html_502": "a gateway's HTML page with status 502; not billed",
    "html_200": "an HTML page with status 200 in place of the reply; billed",
    "empty": "status 200 and no body; billed",
    "invalid_json": "status 200 and the first half of the body, as if it were complete; billed",
    "huge": "the reply followed by blanks, 10 MB in total; billed",
    "drip": "the body is sent in 20 pieces, over the time that `drip` sets; billed",
    "content_filter": "400: a content filter stops the prompt; not billed",
    "context_length": "400: the prompt is reported as too long; not billed",
    "refusal": "the model refuses to answer; billed",
    "length": "the reply is cut in the middle, as if `max_tokens` were reached; billed",
    "unmetered": "the reply does not state its usage; billed",
    "408": "the server stopped waiting; not billed",
    "504": "a gateway timed out; not billed",
    "524": "a proxy timed out; not billed",
    **STREAM_FAULTS,
}
"""Every fault and what it means. With `bill_failures` those that may have been billed (`wire/billed.py`) are billed."""

HUGE_BYTES = 10_000_000
PIECES = 20
"""Pieces of a `drip` body."""
HTML = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>\n"


@dataclass(frozen=True, slots=True)
class Refused:
    """A fault that is an error instead of a reply."""

    status: int
    code: str
    message: str
    asks_to_wait: bool = False


REFUSALS: Mapping[str, Refused] = {
    "429": Refused(429, "rate_limit_exceeded", "Too many requests, by chance.", asks_to_wait=True),
    "500": Refused(500, "server_error", "The server had an error while processing the request."),
    "502": Refused(502, "server_error", "Bad gateway."),
    "503": Refused(503, "server_error", "The service is temporarily unavailable.", asks_to_wait=True),
    "529": Refused(529, "server_error", "Overloaded.", asks_to_wait=True),
    "408": Refused(408, "server_error", "The request was not read in time."),
    "504": Refused(504, "server_error", "The server behind the gateway did not answer in time."),
    "524": Refused(524, "server_error", "A timeout occurred."),
    "content_filter": Refused(400, "content_filter", "The prompt was stopped by the content filtering policy."),
    "context_length": Refused(400, "context_length_exceeded", "The prompt exceeds the model's maximum context length."),
}
"""Faults that are answers with an error in the dialect's words."""


def is_failure(fault: str) -> bool:
    """Whether a fault replaces a reply before one is made."""
    return fault in ("early_reset", "html_502") or fault in REFUSALS


def may_be_billed(fault: str) -> bool:
    """Whether a fault that brings no reply, and so is not billed, counts as billed for a client that meets it."""
    if fault == "early_reset":
        return counts_as_billed("reset", {})
    if fault == "html_502":
        return counts_as_billed("502", {})
    return fault in REFUSALS and counts_as_billed(str(REFUSALS[fault].status), {})


def pick(probabilities: Mapping[str, float], draw: float) -> str:
    """The fault for a uniform `draw` in [0, 1), or an empty string for none."""
    for kind in FAULTS:
        draw -= probabilities.get(kind, 0.0)
        if draw < 0:
            return kind
    return ""


def changed_reply(reply: Reply, fault: str) -> Reply:
    """The model's other reply, if the fault is the model's; else the reply itself."""
    if fault == "refusal":
        return replace(reply, text="I cannot help with that.", calls=(), finish="refusal")
    if fault == "length":
        return replace(cut(reply, max(1, output_tokens(reply) // 2)), finish="length")
    return reply


def changed_body(body: bytes, fault: str) -> bytes:
    """The damaged body, if the fault damages it; else the body itself."""
    if fault == "html_200":
        return HTML
    if fault == "empty":
        return b""
    if fault == "invalid_json":
        return body[: len(body) // 2]
    if fault == "huge":
        return body.ljust(HUGE_BYTES)
    if fault == "unmetered":
        value = orjson.loads(body)
        return orjson.dumps({name: member for name, member in value.items() if name not in ("usage", "usageMetadata")})
    return body
