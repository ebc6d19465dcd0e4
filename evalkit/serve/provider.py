"""The simulated provider as a pure core: (state, request, now) -> (outcome, and when). No socket, no clock, no file.

Both the HTTP server (`server.py`) and a transport within the process use it. The order in which a request is judged is
that of real providers: key, body, model, context, limits; then the faults of `faults.py`; then the policy answers.

The state is one mutable object, changed by `handle` and `leave` alone; the same calls in the same order, with the same
times, give the same outcomes. The answer to a request does not even depend on that order: replies come from the
request's seed, latencies and faults from its id. Limits, slots and the prompt cache do depend on it, if they are used.

Pure: when a request will be done is known when it arrives, because what came before it is known.
"""

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from evalkit.dialogue import Reply, Request, Usage
from evalkit.policy.answer import answer
from evalkit.policy.table import served
from evalkit.seeds import Stream, derive
from evalkit.serve import limits
from evalkit.serve.bill import BillLine, BillTotals
from evalkit.serve.cache import Cache, CacheShare
from evalkit.serve.dialects.served import CREATED_S, retry_headers
from evalkit.serve.faults import (
    HTML,
    PIECES,
    REFUSALS,
    STREAM_FAULTS,
    changed_body,
    changed_reply,
    is_failure,
    may_be_billed,
    pick,
)
from evalkit.serve.heeding import heeding
from evalkit.serve.options import SimulatorOptions
from evalkit.serve.outcome import JSON, Arrival, RefusedRequest, ServedOutcome
from evalkit.serve.routes import Route, check_calls, check_key, failed, page, route_of, unknown_model
from evalkit.serve.streams import as_unstreamed, streamed
from evalkit.wire.tokens import BYTES_PER_TOKEN, cut, input_tokens, output_tokens


@dataclass(slots=True, kw_only=True)
class Slots:
    """Places where requests are worked on. Mutable; changed by `work` alone."""

    free_at_s: list[float]
    """When each place is free, as a heap."""

    def work(self, now_s: float, for_s: float) -> float:
        """Take the place that is free first. Gives the seconds from now until the work of `for_s` is done.

        The work is completed even if its client has disconnected.
        """
        ready_s = max(now_s, self.free_at_s[0]) + for_s
        heapq.heapreplace(self.free_at_s, ready_s)
        return ready_s - now_s


def open_slots(count: int, now_s: float) -> Slots:
    """So many places, all free."""
    return Slots(free_at_s=[now_s] * count)


BASE_PATH = "/v1"
"""At which every dialect is spoken."""
_MOST_ID_CHARACTERS = 200


@dataclass(slots=True, kw_only=True)
class Simulator:
    """The provider's state. Make it with `open_simulator`."""

    options: SimulatorOptions
    started_s: float
    epoch_s: float
    """Added to a `now`, it gives Unix time."""
    limits: Mapping[str, limits.ServedLimits]
    """By model; one object for all models if limits are shared."""
    slots: Slots | None
    cache: Cache | None
    totals: BillTotals = field(default_factory=BillTotals)


def open_simulator(options: SimulatorOptions, now_s: float, unix_s: float = CREATED_S) -> Simulator:
    """A provider that starts now, with full buckets. `unix_s`: now in Unix time, for the dates in headers."""
    alike = [_limits(options, now_s) for _ in options.models]
    return Simulator(
        options=options,
        started_s=now_s,
        epoch_s=unix_s - now_s,
        limits=dict(zip(options.models, alike[:1] * len(alike) if options.shared_limits else alike, strict=True)),
        slots=None if options.slots is None else open_slots(options.slots, now_s),
        cache=None if options.cache_s is None else Cache(ttl_s=options.cache_s),
    )


def _limits(options: SimulatorOptions, now_s: float) -> limits.ServedLimits:
    rates = {
        "requests": options.rpm,
        "tokens": options.tpm,
        "input_tokens": options.itpm,
        "output_tokens": options.otpm,
    }
    buckets = {kind: limits.bucket(rate, options.burst_s, now_s) for kind, rate in rates.items() if rate is not None}
    return limits.ServedLimits(buckets=buckets, most_in_flight=options.in_flight)


def handle(simulator: Simulator, arrival: Arrival, now_s: float) -> ServedOutcome:
    """Decide everything about a request at its arrival. `now_s` never goes back from call to call."""
    route = route_of(arrival.path)
    if route is None or arrival.method != "POST":
        return page(arrival, simulator.options.models, simulator.options.key, simulator.totals.json())
    return _ask(simulator, route, arrival, now_s)


def leave(simulator: Simulator, outcome: ServedOutcome) -> None:
    """Called when a request whose outcome had a line of the bill is over: answered, broken, or left by its client."""
    assert outcome.line is not None
    simulator.totals.leave()
    if outcome.admitted:
        simulator.limits[outcome.line.model].in_flight -= 1


def _ask(simulator: Simulator, route: Route, arrival: Arrival, now_s: float) -> ServedOutcome:
    """A request to a model: its outcome with its line on the bill."""
    options, n = simulator.options, simulator.totals.requests + 1
    request_id = arrival.headers.get("x-client-request-id", "")[:_MOST_ID_CHARACTERS]
    # A request without an id has its place in the order of arrival instead: then a retry may meet another fault.
    draw_key = request_id or f"#{n}"
    draws = Stream(options.seed, "provider", draw_key)
    route, arrival = as_unstreamed(route, arrival)
    verdict = _judge(simulator, route, arrival, draw_key, draws, now_s)
    outcome, usage, delay_s, over_s = verdict.outcome, verdict.usage or Usage(), 0.0, verdict.outcome.over_s
    if verdict.works:
        for_s = options.latency.draw(draws)
        delay_s = simulator.slots.work(now_s, for_s) if simulator.slots else for_s
        if outcome.streamed and not over_s:  # a body that drips begins when its latency is over
            # What keeps a connection alive is there from the beginning.
            over_s = for_s if verdict.word == "stream_comments" else for_s * (1 - options.stream_first)
            delay_s -= over_s
    headers = outcome.headers
    if route.served.id_header:
        name = hashlib.sha256(f"{options.seed}/{draw_key}".encode()).hexdigest()
        headers = {**headers, route.served.id_header: f"req_{name[:24]}"}
    outcome = replace(outcome, headers=headers, delay_s=delay_s, over_s=over_s)
    seen_s = now_s - simulator.started_s
    line = BillLine(
        n=n,
        seen_s=seen_s,
        answered_s=None if outcome.ending == "stall" else seen_s + outcome.done_s,
        request_id=request_id,
        model=verdict.model,
        status=outcome.status,
        outcome=verdict.word,
        billed=verdict.usage is not None,
        tokens_in=usage.input,
        tokens_out=usage.output,
        tokens_cached=usage.cached_read,
        tokens_cache_write=usage.cached_write,
        cost=options.price_of(verdict.model).of(usage) if verdict.usage else 0,
        limit=verdict.limit,
        seed=verdict.seed,
    )
    simulator.totals.add(line)
    return replace(outcome, line=line)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """The fate of a request, before its latency is known."""

    outcome: ServedOutcome
    word: str
    """`BillLine.outcome`."""
    works: bool = True
    """Whether it has a latency: replies, server errors and connections that break later have one; refusals are sent at
    once."""
    limit: str = ""
    model: str = ""
    seed: int | None = None
    usage: Usage | None = None
    """None: nothing is billed."""


def _judge(
    simulator: Simulator, route: Route, arrival: Arrival, draw_key: str, draws: Stream, now_s: float
) -> _Decision:
    tokens_in = input_tokens(len(arrival.body))
    try:
        model, request = _read(simulator, route, arrival, tokens_in)
    except RefusedRequest as refusal:
        return _Decision(outcome=_refused(simulator, route, refusal, now_s), word=refusal.code, works=False)
    about = _Decision(outcome=_BROKEN, word="", model=model, seed=request.seed)
    share = CacheShare()
    if simulator.cache is not None:
        pieces = route.served.prompt_pieces(orjson.loads(arrival.body))
        share = simulator.cache.share(model, pieces, now_s, by_marks=route.served.caches_by_marks)
    try:
        _admit(simulator, route, model, tokens_in, share, now_s)
    except RefusedRequest as refusal:
        outcome = _refused(simulator, route, refusal, now_s, model)
        return replace(about, outcome=outcome, word="rate_limit", works=False, limit=refusal.limit)
    faults = simulator.options.faults
    fault = pick(faults, draws.uniform()) if faults else ""
    if route.wish is None and fault in STREAM_FAULTS:
        fault = ""
    failure = _fault(simulator, route, fault, now_s, model) if is_failure(fault) else None
    if failure is not None and not (simulator.options.bill_failures and may_be_billed(fault)):
        return replace(about, outcome=failure, word=fault, works=failure.status >= 500)
    if simulator.cache is not None:
        simulator.cache.keep(model, share, now_s)
    reply = changed_reply(_thinking(_said(simulator, model, request), request, simulator.options.reasoning), fault)
    usage = Usage(
        input=tokens_in,
        output=output_tokens(reply),
        reasoning=-(-len(reply.reasoning) // BYTES_PER_TOKEN),
        cached_read=min(share.read, tokens_in),
        cached_write=min(share.write, tokens_in - min(share.read, tokens_in)),
    )
    simulator.limits[model].spend(usage.output)
    name = hashlib.sha256(f"{model}/{request.seed}/{len(arrival.body)}".encode()).hexdigest()
    reply = replace(
        reply,
        usage=usage,
        model=model,
        fingerprint=f"fp_{derive('fingerprint', model):08x}",
        response_id=route.served.reply_id(name),
    )
    outcome = failure or _answered(simulator, route, reply, fault, draw_key, now_s)
    return replace(about, outcome=outcome, word=fault or "ok", usage=usage)


def _said(simulator: Simulator, model: str, request: Request) -> Reply:
    """The model's reply."""
    if simulator.options.heeds is None:
        return answer(model, served(model), request)
    return cut(heeding(request, simulator.options.heeds, simulator.totals.requests), request.sampling.max_tokens)


def _thinking(reply: Reply, request: Request, tokens: int) -> Reply:
    """The reply with reasoning of that many tokens before it, or of as many as its limit leaves."""
    room = min(tokens, request.sampling.max_tokens - output_tokens(reply))
    if room <= 0:
        return reply
    words = " ".join(f"Thought {i} on message {len(request.messages)}." for i in range(1 + room // 4))
    return replace(reply, reasoning=words[: room * BYTES_PER_TOKEN])


def _read(simulator: Simulator, route: Route, arrival: Arrival, tokens_in: int) -> tuple[str, Request]:
    """Key, body, model and context, in this order; raises RefusedRequest at the first that is wrong."""
    options = simulator.options
    check_key(route, options.key, arrival.headers)
    try:
        model, request = route.served.decode_request(arrival.body, route.model)
    except ValueError as flaw:
        raise RefusedRequest(status=400, code="invalid_body", message=f"The body cannot be read: {flaw}") from flaw
    if options.strict_calls and route.served.dialect.verbatim_calls:
        check_calls(request)
    objection = route.served.objection(arrival.headers, request)
    if objection:
        raise RefusedRequest(status=400, code="invalid_body", message=objection)
    if request.seed == 0:
        request = replace(request, seed=_seed(arrival))
    if model not in options.models:
        raise unknown_model(model, options.models)
    most, wanted = options.context_tokens, tokens_in + request.sampling.max_tokens
    if most is not None and wanted > most:
        message = (
            f"This model's maximum context length is {most} tokens. You requested {wanted}: "
            f"{tokens_in} in the messages and {request.sampling.max_tokens} in the completion."
        )
        raise RefusedRequest(status=400, code="context_length_exceeded", message=message)
    return model, request


def _seed(arrival: Arrival) -> int:
    """The seed of a request that has none. Its id, `EPISODE/STEP/ATTEMPT`, gives the seed that evalkit's client would
    have sent, so replicates differ and a retry repeats; without such an id the body does."""
    step, _, attempt = arrival.headers.get("x-client-request-id", "").rpartition("/")
    if "/" in step and attempt:
        return derive(step)
    return int.from_bytes(hashlib.sha256(arrival.body).digest()[:4], "big")


def _admit(simulator: Simulator, route: Route, model: str, tokens_in: int, share: CacheShare, now_s: float) -> None:
    """Accept the request, or raise the 429 that says when it will fit."""
    counted = tokens_in if route.served.limits_cached_input else tokens_in - min(share.read, tokens_in)
    amounts = {"requests": 1, "tokens": tokens_in, "input_tokens": counted, "output_tokens": 1}
    short = simulator.limits[model].admit(amounts, now_s)
    if short is None:
        return
    if short.wait_s is None:
        message = f"Too many requests in flight for {model}. Please try again when some have been answered."
    else:
        kind = short.kind.replace("_", " ")
        message = f"Rate limit reached for {model} on {kind}. Please try again in {limits.show_span(short.wait_s)}."
    raise RefusedRequest(status=429, code="rate_limit_exceeded", message=message, wait_s=short.wait_s, limit=short.kind)


_BROKEN = ServedOutcome(status=0, headers={}, body=b"", ending="reset", admitted=True)


def _answered(
    simulator: Simulator, route: Route, reply: Reply, fault: str, draw_key: str, now_s: float
) -> ServedOutcome:
    """A reply that was made, and a fault that keeps it from arriving, if there is one."""
    if fault == "reset":
        return _BROKEN
    if fault == "stall":
        return replace(_BROKEN, ending="stall")
    options, body = simulator.options, route.served.encode_reply(reply)
    limit_headers = _limit_headers(simulator, route, reply.model, now_s)
    if route.wish is None or fault == "html_200":
        headers = {**(_HTML if fault == "html_200" else JSON), **limit_headers}
        outcome = ServedOutcome(status=200, headers=headers, body=changed_body(body, fault), admitted=True)
    else:
        draws = Stream(options.seed, "stream", draw_key)
        outcome = streamed(route.served, body, route.wish, fault, draws, options.stream_tokens)
        outcome = replace(outcome, headers={**outcome.headers, **limit_headers})
    size = len(outcome.body)
    if fault == "truncated":
        return replace(outcome, ending="truncated", pieces=((0.0, size // 2),))
    if fault == "drip":
        pieces = tuple((i / (PIECES - 1), size * (i + 1) // PIECES) for i in range(PIECES))
        return replace(outcome, pieces=pieces, over_s=options.drip_s)
    return outcome


_HTML = {"content-type": "text/html; charset=utf-8"}


def _fault(simulator: Simulator, route: Route, fault: str, now_s: float, model: str) -> ServedOutcome:
    """An injected fault in place of a reply."""
    if fault == "early_reset":
        return _BROKEN
    if fault == "html_502":
        return ServedOutcome(status=502, headers=_HTML, body=HTML, admitted=True)
    kind = REFUSALS[fault]
    wait_s = simulator.options.retry_after_s if kind.asks_to_wait else None
    refusal = RefusedRequest(status=kind.status, code=kind.code, message=kind.message, wait_s=wait_s)
    return replace(_refused(simulator, route, refusal, now_s, model), admitted=True)


def _refused(
    simulator: Simulator, route: Route, refusal: RefusedRequest, now_s: float, model: str = ""
) -> ServedOutcome:
    """A refusal with its headers; with those of the limits if the model is known."""
    wall_s = now_s + simulator.epoch_s
    outcome = failed(refusal, route)
    asking = retry_headers(route.served, refusal.wait_s, simulator.options.retry_after_form, wall_s)
    limit_headers = _limit_headers(simulator, route, model, now_s) if model else {}
    return replace(outcome, headers={**outcome.headers, **limit_headers, **asking})


def _limit_headers(simulator: Simulator, route: Route, model: str, now_s: float) -> dict[str, str]:
    limits = simulator.limits[model]
    if not limits.buckets:
        return {}
    return route.served.limit_headers(limits.standings(), now_s + simulator.epoch_s)
