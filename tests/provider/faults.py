"""Everything that can go wrong at a provider, beyond the faults that evalkit's own knows."""

from collections.abc import Mapping
from dataclasses import replace

import orjson

from evalkit.dialogue import Reply
from evalkit.serve.outcome import RefusedRequest
from evalkit.wire.http import counts_as_billed
from evalkit.wire.tokens import cut, output_tokens

STREAM_FAULTS = (
    "stream_silent",  # only the headers come, then silence until the client gives up
    "stream_stall",  # silent from anywhere on, until the client gives up
    "stream_end",  # an orderly end anywhere before the end mark
    "stream_reset",  # the connection is reset anywhere
    "stream_error",  # an error event anywhere in place of the rest
    "stream_comments",  # comments and pings before and between the events, over the whole latency
    "stream_joined",  # deltas come joined, in as few events as the format allows
    "stream_crlf",  # lines end in CRLF
)
"""Faults that only a streamed reply can have; a reply that comes whole comes as if there were none."""

FAULTS = (
    *("429", "500", "502", "503", "529", "early_reset", "reset", "stall", "truncated"),
    "html_502",  # a gateway's HTML page
    "html_200",  # an HTML page with status 200 in place of the reply
    *("empty", "invalid_json"),
    "huge",  # the reply followed by blanks
    "drip",  # the body in many pieces, over the time that `drip` sets
    *("content_filter", "context_length", "refusal"),
    "length",  # the reply is cut in the middle, as if `max_tokens` were reached
    "unmetered",  # the reply does not state its usage
    *("408", "504", "524", *STREAM_FAULTS),
)
"""All of them, in the order in which a draw picks one."""

HUGE_BYTES = 10_000_000
HTML = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>\n"

REFUSALS: Mapping[str, RefusedRequest] = {
    kind: RefusedRequest(status=status, code=code, message=message)
    for kind, (status, code, message) in {
        "429": (429, "rate_limit_exceeded", "Too many requests, by chance."),
        "500": (500, "server_error", "The server had an error while processing the request."),
        "502": (502, "server_error", "Bad gateway."),
        "503": (503, "server_error", "The service is temporarily unavailable."),
        "529": (529, "server_error", "Overloaded."),
        "408": (408, "server_error", "The request was not read in time."),
        "504": (504, "server_error", "The server behind the gateway did not answer in time."),
        "524": (524, "server_error", "A timeout occurred."),
        "content_filter": (400, "content_filter", "The prompt was stopped by the content filtering policy."),
        "context_length": (400, "context_length_exceeded", "The prompt exceeds the model's maximum context length."),
    }.items()
}
"""Faults that are answers with an error in the dialect's words."""
ASK_TO_WAIT = ("429", "503", "529")


def may_be_billed(fault: str) -> bool:
    """Whether a fault that brings no reply, and so is not billed, counts as billed for a client that meets it."""
    if fault == "early_reset":
        return counts_as_billed("reset", {})
    return counts_as_billed("502" if fault == "html_502" else str(REFUSALS[fault].status), {})


def changed_reply(reply: Reply, fault: str) -> Reply:
    """The model's other reply, if the fault is the model's; else the reply itself."""
    if fault == "refusal":
        return replace(reply, text="I cannot help with that.", calls=(), finish="refusal")
    if fault == "length":
        return replace(cut(reply, max(1, output_tokens(reply) // 2)), finish="length")
    return reply


def unmetered(body: bytes) -> bytes:
    """A 200 body without its usage."""
    value = orjson.loads(body)
    return orjson.dumps({name: member for name, member in value.items() if name not in ("usage", "usageMetadata")})
