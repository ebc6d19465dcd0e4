"""A provider for tests: evalkit's own simulated provider, in every dialect, with all that can go wrong.

What it adds to `evalkit.serve`: the dialects and ways of real providers, clouds, prompt caches, limits on input and
output, thoughts, settings that replies heed, and two dozen faults more.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from evalkit.dialogue import Reply, Request, Usage
from evalkit.seeds import Stream
from evalkit.serve.formats import Cutter, Event, StreamWish
from evalkit.serve.outcome import JSON, Arrival, RefusedRequest, ServedOutcome, pick
from evalkit.serve.provider import (
    BAD_KEY,
    BROKEN,
    FLEX,
    FLEX_SLOWER,
    ArrivedRequest,
    Decision,
    Simulator,
    seed_of,
    unknown_model,
)
from evalkit.serve.streams import PIECES, as_unstreamed, framed, sent_as
from evalkit.wire.fields import object_text
from evalkit.wire.tokens import BYTES_PER_TOKEN, output_tokens
from tests.provider.cache import Cache, CacheShare
from tests.provider.dialects import CREATED_S, SERVED_DIALECTS, SpokenDialect, Whole, model_in
from tests.provider.faults import (
    ASK_TO_WAIT,
    FAULTS,
    HTML,
    HUGE_BYTES,
    REFUSALS,
    STREAM_FAULTS,
    changed_reply,
    may_be_billed,
    unmetered,
)
from tests.provider.options import DoubleOptions
from tests.provider.totals import BillTotals

_HTML = {"content-type": "text/html; charset=utf-8"}
_COMMENTS = (b": keep-alive", b":", b": PROCESSING")
_BEFORE_FIRST = 3
"""Comments before the first event, where there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard(ArrivedRequest):
    """A request in any dialect."""

    served: SpokenDialect
    path_model: str
    """The model that the path names; empty if the body does."""


class Double(Simulator):
    """A provider that started at `now_s`; `unix_s`: the same in Unix time, for the dates in headers."""

    options: DoubleOptions

    def __init__(self, options: DoubleOptions, now_s: float, unix_s: float = CREATED_S) -> None:
        super().__init__(options, now_s)
        self.totals = BillTotals()
        self.epoch_s = unix_s - now_s
        self.cache = None if options.cache_s is None else Cache(ttl_s=options.cache_s)
        self._share = CacheShare()
        """Of the request that is being decided."""

    def handle(self, arrival: Arrival, now_s: float) -> ServedOutcome:
        outcome = super().handle(arrival, now_s)
        if outcome.line is not None:
            self.totals.add(outcome.line)
        return outcome

    def leave(self, outcome: ServedOutcome) -> None:
        super().leave(outcome)
        self.totals.leave()

    def rates(self) -> Mapping[str, float | None]:
        return {**super().rates(), "input_tokens": self.options.itpm, "output_tokens": self.options.otpm}

    def asked(self, arrival: Arrival, draw_key: str, now_s: float) -> Heard | None:
        for served in SERVED_DIALECTS.values():
            for base in served.base_paths:
                path = arrival.path.removeprefix(base)
                if not arrival.path.startswith(f"{base}/"):
                    continue
                found, heard = served.model_of(path), arrival
                wish = None
                if found is not None and not served.stream_path and served.dialect.stream is not None:
                    wish, heard = as_unstreamed(arrival)
                if found is None and served.dialect.stream is not None and served.dialect.stream.path:
                    # Where the path alone asks for a stream; on Vertex the body of Anthropic's format does too.
                    found = model_in(served.dialect.stream.path.partition("?")[0], path)
                    wish, heard = (StreamWish(), arrival) if served.stream_path else as_unstreamed(arrival)
                if found is not None:
                    tier, heard = _without_tier(heard)
                    return Heard(
                        served=served,
                        arrival=heard,
                        wish=wish,
                        tier=tier,
                        draw_key=draw_key,
                        now_s=now_s,
                        path_model=found,
                    )
        return None

    def _let_in(self, served: SpokenDialect, arrival: Arrival) -> None:
        key = self.options.key
        if key and not any(arrival.headers.get(name) == value for name, value in served.keys(key)):
            raise RefusedRequest(status=served.bad_key_status, code=served.bad_key_code, message=BAD_KEY)

    def read(self, asked: ArrivedRequest) -> tuple[str, Request]:
        heard, options = _heard(asked), self.options
        self._let_in(heard.served, heard.arrival)
        try:
            model, request = heard.served.decode(heard.arrival.body, heard.path_model)
        except ValueError as flaw:
            raise RefusedRequest(status=400, code="invalid_body", message=f"The body cannot be read: {flaw}") from flaw
        if options.strict_calls and heard.served.dialect.name.startswith("openai_"):
            _check_calls(request)
        objection = heard.served.objection(heard.arrival.headers, request)
        if objection:
            raise RefusedRequest(status=400, code="invalid_body", message=objection)
        if model not in self.limits:
            raise unknown_model(model, tuple(self.limits))
        most, wanted = options.context_tokens, heard.tokens_in + request.sampling.max_tokens
        if most is not None and wanted > most:
            message = (
                f"This model's maximum context length is {most} tokens. You requested {wanted}: "
                f"{heard.tokens_in} in the messages and {request.sampling.max_tokens} in the completion."
            )
            raise RefusedRequest(status=400, code="context_length_exceeded", message=message)
        return model, request if request.seed else replace(request, seed=seed_of(heard.arrival))

    def amounts(self, asked: ArrivedRequest, model: str) -> Mapping[str, float]:
        served, tokens_in = _heard(asked).served, asked.tokens_in
        if self.cache is not None:
            pieces = served.prompt_pieces(orjson.loads(asked.arrival.body))
            self._share = self.cache.share(model, pieces, asked.now_s, by_marks=served.caches_by_marks)
        counted = tokens_in if served.limits_cached_input else tokens_in - min(self._share.read, tokens_in)
        return {**super().amounts(asked, model), "input_tokens": counted, "output_tokens": 1}

    def fault(self, asked: ArrivedRequest, draws: Stream) -> str:
        faults = self.options.faults
        fault = pick(faults, draws.uniform(), FAULTS) if faults else ""
        return "" if asked.wish is None and fault in STREAM_FAULTS else fault

    def served_by(self, asked: ArrivedRequest) -> str:
        tier, draws = super().served_by(asked), Stream(self.options.seed, "tier", asked.draw_key)
        return "default" if tier and draws.uniform() < self.options.downgraded else tier

    def decided(self, asked: ArrivedRequest, about: Decision, request: Request, fault: str) -> Decision:
        if asked.tier == FLEX and Stream(self.options.seed, "full", asked.draw_key).uniform() < self.options.flex_full:
            refusal = RefusedRequest(status=429, code="resource_unavailable", message="Resource Unavailable")
            outcome = replace(self.refused(asked, refusal, about.model), admitted=True)
            return replace(about, outcome=outcome, word="full", works=False)
        decision = super().decided(asked, about, request, fault)
        if decision.usage is None and self.options.bill_failures and may_be_billed(fault):
            return replace(self.replied(asked, about, request, fault), outcome=decision.outcome)
        return decision

    def failure(self, asked: ArrivedRequest, model: str, fault: str) -> ServedOutcome | None:
        if fault == "early_reset":
            return BROKEN
        if fault == "html_502":
            return ServedOutcome(status=502, headers=_HTML, body=HTML, admitted=True)
        if fault not in REFUSALS:
            return None
        kind = REFUSALS[fault]
        wait_s = self.options.retry_after_s if fault in ASK_TO_WAIT else None
        refusal = RefusedRequest(status=kind.status, code=kind.code, message=kind.message, wait_s=wait_s)
        return replace(self.refused(asked, refusal, model), admitted=True)

    def said(self, model: str, request: Request, fault: str) -> Reply:
        reply = super().said(model, request, fault)
        return changed_reply(_thinking(reply, request, self.options.reasoning), fault)

    def used(self, asked: ArrivedRequest, model: str, usage: Usage) -> Usage:
        if self.cache is not None:
            self.cache.keep(model, self._share, asked.now_s)
        read = min(self._share.read, usage.input)
        return replace(usage, cached_read=read, cached_write=min(self._share.write, usage.input - read))

    def answered(self, asked: ArrivedRequest, body: bytes, model: str, fault: str) -> ServedOutcome:
        body = _naming(body, self.served_by(asked))
        if fault == "html_200":
            headers = {**_HTML, **self.limit_headers(asked, model)}
            return ServedOutcome(status=200, headers=headers, body=HTML, admitted=True)
        outcome = super().answered(asked, unmetered(body) if fault == "unmetered" else body, model, fault)
        if fault in ("empty", "huge"):
            return replace(outcome, body=outcome.body.ljust(HUGE_BYTES) if fault == "huge" else b"", pieces=())
        if fault != "drip":
            return outcome
        pieces = tuple((i / (PIECES - 1), len(outcome.body) * (i + 1) // PIECES) for i in range(PIECES))
        return replace(outcome, pieces=pieces, over_s=self.options.drip_s)

    def streamed(self, asked: ArrivedRequest, body: bytes, fault: str) -> ServedOutcome:
        draws = Stream(self.options.seed, "stream", asked.draw_key)
        return streamed(_heard(asked), body, fault, draws, self.options.stream_tokens)

    def times(self, asked: ArrivedRequest, decision: Decision, for_s: float) -> tuple[float, float]:
        if decision.tier == FLEX:
            for_s *= self.options.flex_slower / FLEX_SLOWER
        if decision.outcome.over_s:  # a body that drips begins when its latency is over
            return for_s, decision.outcome.over_s
        # What keeps a connection alive is there from the beginning.
        return (0.0, for_s) if decision.word == "stream_comments" else super().times(asked, decision, for_s)

    def refused(self, asked: ArrivedRequest, refusal: RefusedRequest, model: str) -> ServedOutcome:
        outcome = super().refused(asked, refusal, model)
        if not _heard(asked).served.wait_in_body or refusal.wait_s is None:
            return outcome
        value = orjson.loads(outcome.body)
        span = f"{math.ceil(refusal.wait_s * 1000) / 1000:g}s"
        value["error"]["details"] += [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": span}]
        return replace(outcome, headers=JSON, body=orjson.dumps(value))

    def limit_headers(self, asked: ArrivedRequest, model: str) -> Mapping[str, str]:
        if not model or not self.limits[model].buckets:
            return {}
        return _heard(asked).served.limit_headers(self.limits[model].standings(), asked.now_s + self.epoch_s)

    def id_headers(self, asked: ArrivedRequest, name: str) -> Mapping[str, str]:
        header = _heard(asked).served.id_header
        return {header: name} if header else {}


_MEMBER = rb'"(?:service_?[tT]ier|inference_geo)"\s*:\s*"(\w+)"'
_FIELDS = re.compile(rb",\s*%b|%b\s*,?\s*" % (_MEMBER, _MEMBER))
_HEADER = "x-vertex-ai-llm-shared-request-type"
_OWN_WORDS = {"standard": "default", "standard_only": "default", "on_demand": "default"}


def _without_tier(arrival: Arrival) -> tuple[str, Arrival]:
    """The tier that a request names in any dialect, in OpenAI's words, and the request without it."""
    fields = _FIELDS.finditer(arrival.body)
    named = [(one[1] or one[2]).decode() for one in fields if b"inference_geo" not in one[0]]
    word = named[0] if named else arrival.headers.get(_HEADER, "")
    return _OWN_WORDS.get(word, word), replace(arrival, body=_FIELDS.sub(b"", arrival.body))


def _naming(body: bytes, tier: str) -> bytes:
    """A reply that names its tier where its dialect does."""
    value = orjson.loads(body)
    if not tier:
        return body
    if "object" in value:
        return orjson.dumps({**value, "service_tier": tier})
    said = {"default": "standard"}.get(tier, tier)
    if "usageMetadata" in value:
        return orjson.dumps({**value, "usageMetadata": {**value["usageMetadata"], "serviceTier": said}})
    return orjson.dumps({**value, "usage": {**value["usage"], "service_tier": said, "inference_geo": "global"}})


def _heard(asked: ArrivedRequest) -> Heard:
    assert isinstance(asked, Heard)
    return asked


def _check_calls(request: Request) -> None:
    """Raises RefusedRequest, in the words of llama.cpp's server, if the arguments of an earlier call are no object."""
    texts = (call.arguments for message in request.messages for call in message.calls)
    if any(object_text(text) != text.encode() for text in texts):
        message = "Failed to parse tool call arguments as JSON"
        raise RefusedRequest(status=500, code="server_error", message=message)


def _thinking(reply: Reply, request: Request, tokens: int) -> Reply:
    """The reply with reasoning of that many tokens before it, or of as many as its limit leaves."""
    room = min(tokens, request.sampling.max_tokens - output_tokens(reply))
    if room <= 0:
        return reply
    words = " ".join(f"Thought {i} on message {len(request.messages)}." for i in range(1 + room // 4))
    return replace(reply, reasoning=words[: room * BYTES_PER_TOKEN])


def streamed(heard: Heard, body: bytes, fault: str, draws: Stream, tokens: int) -> ServedOutcome:
    """A 200 body as a stream whose deltas have so many tokens on average, and what `fault` makes of it."""
    served, wish, whole = heard.served, heard.wish, orjson.loads(body)
    assert wish is not None
    if fault != "stream_joined":
        events = list(served.stream.events(whole, wish, Cutter(draws, tokens)))
    elif served.joined is not None:
        events = list(served.joined(whole, wish))
    else:
        events = list(served.stream.events(whole, wish, Whole()))
    ends = fault != "stream_error"
    if not ends:
        kind = REFUSALS["500"]
        error = orjson.loads(served.encode_error(kind.status, kind.code, kind.message))
        events = [*events[: draws.below(len(events))], *served.stream_errors(error, whole)]
    mixed = _kept_alive(served, events, draws) if fault == "stream_comments" else events
    frames = framed(served.stream, mixed, ends=ends)
    if served.line_end != b"\n" or fault == "stream_crlf":
        frames = [frame.replace(b"\n", b"\r\n") for frame in frames]
    outcome = sent_as(frames)
    if fault == "stream_silent":
        return replace(outcome, body=b"", pieces=(), ending="stall")
    if fault in ("stream_end", "stream_reset", "stream_stall"):
        size = 1 + draws.below(len(outcome.body) - 1)
        before = [piece for piece in outcome.pieces if piece[1] < size]
        pieces = (*before, (outcome.pieces[len(before)][0], size))
        endings: Mapping[str, Any] = {"stream_end": "complete", "stream_reset": "reset", "stream_stall": "stall"}
        return replace(outcome, body=outcome.body[:size], pieces=pieces, ending=endings[fault])
    return outcome


def _kept_alive(served: SpokenDialect, events: Sequence[Event], draws: Stream) -> list[Event | bytes]:
    """The events with comments and pings between them."""
    idle: list[Event | bytes] = [*_COMMENTS, *([] if served.ping is None else [served.ping])]
    mixed = idle[:_BEFORE_FIRST]
    for event in events[:-1]:
        mixed.append(event)
        mixed += [idle[draws.below(len(idle))] for _ in range(draws.below(2))]
    return [*mixed, *events[-1:]]
