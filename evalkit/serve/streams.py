"""Streamed answers: whether one is wanted, and a reply's body as the bytes of a stream.

The places of cuts are drawn by the request's id, as its latency is. A stream is sent in a few pieces of whole events,
over the part of the latency that comes after the first byte.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from evalkit.seeds import Stream
from evalkit.serve.formats import Cutter, Event, EventFormat, ServedFormat, StreamWish
from evalkit.serve.outcome import Arrival, ServedOutcome
from evalkit.wire.lenient import dumps_any

TOKENS = 8
"""In each delta, on average."""
PIECES = 20
"""Most pieces in which a body is sent."""
_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_WISH = rb'"stream"\s*:\s*true'
_OPTIONS = rb'"stream_options"\s*:\s*\{[^{}]*\}'
_WISHES = [re.compile(rb",\s*%b|%b\s*,?\s*" % (member, member)) for member in (_WISH, _OPTIONS)]


def as_unstreamed(arrival: Arrival) -> tuple[StreamWish | None, Arrival]:
    """The wish for a stream, if there is one, and the request as it is without it: a streamed request has the same
    reply, ids and usage as the same request unstreamed.

    The members are taken out of the raw body, since its length and digest count. In a text their quotes are escaped;
    a tool's property of that name and value is as long.
    """
    if b'"stream"' not in arrival.body:
        return None, arrival
    try:
        value = orjson.loads(arrival.body)
    except orjson.JSONDecodeError:
        return None, arrival
    if not isinstance(value, dict) or value.get("stream") is not True:
        return None, arrival
    options, body = value.get("stream_options"), arrival.body
    for wish in _WISHES:
        body = wish.sub(b"", body, count=1)
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return StreamWish(usage=usage), replace(arrival, body=body)


def streamed(served: ServedFormat, body: bytes, wish: StreamWish, draws: Stream) -> ServedOutcome:
    """A 200 body as a stream."""
    return sent_as(framed(served.stream, list(served.stream.events(orjson.loads(body), wish, Cutter(draws, TOKENS)))))


def framed(form: EventFormat, events: Sequence[Event | bytes], *, ends: bool = True) -> list[bytes]:
    """Each event, or line, as server-sent events have it, and the mark of the end where it `ends` well."""
    frames, number = [], 0
    for event in events:
        if isinstance(event, bytes):
            frames.append(event + b"\n\n")
            continue
        data: Any = {**event, "sequence_number": number} if form.numbered else event
        name = b"event: %b\n" % event["type"].encode() if form.named else b""
        frames.append(b"%bdata: %b\n\n" % (name, dumps_any(data)))
        number += 1
    if ends and form.end_mark:
        frames.append(b"data: %b\n\n" % form.end_mark)
    return frames


def sent_as(frames: Sequence[bytes]) -> ServedOutcome:
    """A stream of these frames."""
    count, pieces, end, taken = min(PIECES, len(frames)), [], 0, 0
    for piece in range(count):
        upto = (piece + 1) * len(frames) // count
        end += sum(map(len, frames[taken:upto]))
        taken = upto
        pieces.append((piece / (count - 1) if count > 1 else 1.0, end))
    body = b"".join(frames)
    return ServedOutcome(status=200, headers=_HEADERS, body=body, pieces=tuple(pieces), streamed=True, admitted=True)
