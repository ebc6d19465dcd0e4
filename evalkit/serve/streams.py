"""Streamed answers: whether one is wanted, and a reply's body as the bytes of a stream, with the faults of streams.

The places of cuts and faults are drawn by the request's id, as its latency is. A stream is sent in a few pieces of
whole events, over the part of the latency that comes after the first byte.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from evalkit.seeds import Stream
from evalkit.serve.dialects.served import ServedDialect
from evalkit.serve.dialects.streamed import Cutter, Event, EventFormat, StreamWish
from evalkit.serve.faults import PIECES, REFUSALS, changed_body
from evalkit.serve.outcome import JSON, Arrival, Ending, ServedOutcome
from evalkit.serve.routes import Route
from evalkit.wire.lenient import dumps_any

_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_WISH = rb'"stream"\s*:\s*true'
_OPTIONS = rb'"stream_options"\s*:\s*\{[^{}]*\}'
_WISHES = [re.compile(rb",\s*%b|%b\s*,?\s*" % (member, member)) for member in (_WISH, _OPTIONS)]
_COMMENTS = (b": keep-alive", b":", b": PROCESSING")
_BEFORE_FIRST = 3
"""Comments before the first event, where there are any."""
_ENDINGS: dict[str, Ending] = {"stream_end": "complete", "stream_reset": "reset", "stream_stall": "stall"}


def as_unstreamed(route: Route, arrival: Arrival) -> tuple[Route, Arrival]:
    """The route with the wish for a stream, if there is one, and the request as it is without it: a streamed request
    has the same reply, ids and usage as the same request unstreamed.

    The members are taken out of the raw body, since its length and digest count. In a text their quotes are escaped;
    a tool's property of that name and value is as long.
    """
    if route.wish is not None:
        return replace(route, wish=StreamWish(as_list="alt=sse" not in arrival.query.split("&"))), arrival
    if b'"stream"' not in arrival.body or route.served.stream.path or route.served.dialect.stream is None:
        return route, arrival
    try:
        value = orjson.loads(arrival.body)
    except orjson.JSONDecodeError:
        return route, arrival
    if not isinstance(value, dict) or value.get("stream") is not True:
        return route, arrival
    options, body = value.get("stream_options"), arrival.body
    for wish in _WISHES:
        body = wish.sub(b"", body, count=1)
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return replace(route, wish=StreamWish(usage=usage)), replace(arrival, body=body)


def streamed(
    served: ServedDialect, body: bytes, wish: StreamWish, fault: str, draws: Stream, tokens: int
) -> ServedOutcome:
    """A 200 body as a stream whose deltas have so many tokens on average, and what `fault` makes of it."""
    form, whole = served.stream, orjson.loads(changed_body(body, fault) if fault == "unmetered" else body)
    events = list(form.events(whole, wish, Cutter(draws, tokens, joined=fault == "stream_joined")))
    ends = fault != "stream_error"
    if not ends:
        kind = REFUSALS["500"]
        error = orjson.loads(served.encode_error(kind.status, kind.code, kind.message))
        events = [*events[: draws.below(len(events))], *form.errors(error, whole)]
    if wish.as_list:
        frames = _listed(events, ends)
    else:
        frames = _framed(form, _kept_alive(form, events, draws) if fault == "stream_comments" else events, ends)
    if fault == "stream_crlf":
        frames = [frame.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for frame in frames]
    outcome = ServedOutcome(
        status=200,
        headers=JSON if wish.as_list else _HEADERS,
        body=b"".join(frames),
        pieces=_paced(frames),
        streamed=True,
        admitted=True,
    )
    if fault == "stream_silent":
        return replace(outcome, body=b"", pieces=(), ending="stall")
    if fault in ("empty", "invalid_json", "huge"):
        return replace(outcome, body=changed_body(outcome.body, fault), pieces=())
    if fault in _ENDINGS:
        return _cut(outcome, 1 + draws.below(len(outcome.body) - 1), _ENDINGS[fault])
    return outcome


def _kept_alive(form: EventFormat, events: Sequence[Event], draws: Stream) -> list[Event | bytes]:
    """The events with comments and pings between them."""
    idle: list[Event | bytes] = [*_COMMENTS]
    if form.ping is not None:
        idle.append(form.ping)
    mixed = idle[:_BEFORE_FIRST]
    for event in events[:-1]:
        mixed.append(event)
        mixed += [idle[draws.below(len(idle))] for _ in range(draws.below(2))]
    return [*mixed, *events[-1:]]


def _framed(form: EventFormat, events: Sequence[Event | bytes], ends: bool) -> list[bytes]:
    """Each event, or line, as server-sent events have it, and the mark of the end."""
    frames, number, end = [], 0, form.line_end
    for event in events:
        if isinstance(event, bytes):
            frames.append(event + end + end)
            continue
        data: Any = {**event, "sequence_number": number} if form.numbered else event
        name = b"event: %b%b" % (event["type"].encode(), end) if form.named else b""
        frames.append(b"%bdata: %b%b%b" % (name, dumps_any(data), end, end))
        number += 1
    if ends and form.end_mark:
        frames.append(b"data: %b%b%b" % (form.end_mark, end, end))
    return frames


def _listed(events: Sequence[Event], ends: bool) -> list[bytes]:
    """The events as one JSON list."""
    frames = [(b",\r\n" if index else b"[") + dumps_any(event) for index, event in enumerate(events)]
    return [*frames, b"]"] if ends else frames


def _paced(frames: Sequence[bytes]) -> tuple[tuple[float, int], ...]:
    """The pieces of a body of such frames, as `ServedOutcome.pieces` has them."""
    count, pieces, end, taken = min(PIECES, len(frames)), [], 0, 0
    for piece in range(count):
        upto = (piece + 1) * len(frames) // count
        end += sum(map(len, frames[taken:upto]))
        taken = upto
        pieces.append((piece / (count - 1) if count > 1 else 1.0, end))
    return tuple(pieces)


def _cut(outcome: ServedOutcome, size: int, ending: Ending) -> ServedOutcome:
    """The stream that ends so after that many bytes."""
    before = [piece for piece in outcome.pieces if piece[1] < size]
    pieces = (*before, (outcome.pieces[len(before)][0], size))
    return replace(outcome, body=outcome.body[:size], pieces=pieces, ending=ending)
