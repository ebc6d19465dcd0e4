"""The simulated provider as a pure core: (state, request, now) -> (outcome, and when). No socket, no clock, no file.

Both the HTTP server (`server.py`) and a transport within the process use it. The order in which a request is judged is
that of real providers: key, body, model, context, rate limits; then the faults of `faults.py`; then the policy answers.

The state is one mutable object, changed by `handle` and `leave` alone; the same calls in the same order, with the same
times, give the same outcomes. What a request is answered does not even depend on that order: replies come from the
request's seed, latencies and faults from its id.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import orjson

from evalkit.dialogue import Reply, Request, Usage
from evalkit.policy.answer import answer
from evalkit.policy.table import player
from evalkit.seeds import Stream, derive
from evalkit.serve import limits
from evalkit.serve.bill import BillLine, Totals
from evalkit.serve.faults import STATUS_FAULTS, pick
from evalkit.serve.options import SimulatorOptions
from evalkit.wire.dialect import Dialect
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.table import DIALECTS
from evalkit.wire.tokens import input_tokens, output_tokens

BASE_PATH = "/v1"
CREATED = 1_700_000_000
"""The time every model claims to have been made: a real one would differ from run to run."""
_MOST_ID_CHARACTERS = 200

Ending = Literal["complete", "reset", "stall", "truncated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Looked up by names in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What becomes of a request, and when."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    delay_s: float = 0.0
    """From arrival until `ending` happens."""
    ending: Ending = "complete"
    """`reset`: the connection breaks, nothing is sent. `stall`: nothing happens until the client goes. `truncated`: the
    headers announce the whole body, `sent` bytes of it come, and the connection is closed."""
    sent: int = 0
    """For `truncated`: how many bytes of the body are sent."""
    line: BillLine | None = None
    """The bill's line, to be written before anything is sent; None for requests that ask no model. Who gets one must
    call `leave` when the request is over."""


@dataclass(slots=True, kw_only=True)
class Simulator:
    """The provider's state. Make it with `open_simulator`."""

    options: SimulatorOptions
    started_s: float
    requests: dict[str, limits.Bucket] = field(default_factory=dict)
    """By model; empty without a limit."""
    tokens: dict[str, limits.Bucket] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)


class _Refusal(Exception):
    """A request that gets an error instead of a reply."""

    def __init__(self, *, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers: Mapping[str, str] = headers or {}


def open_simulator(options: SimulatorOptions, now_s: float) -> Simulator:
    """A provider that starts now, with full buckets."""
    simulator = Simulator(options=options, started_s=now_s)
    for model in options.models:
        if options.rpm is not None:
            simulator.requests[model] = limits.bucket(options.rpm, options.burst_s, now_s)
        if options.tpm is not None:
            simulator.tokens[model] = limits.bucket(options.tpm, options.burst_s, now_s)
    return simulator


def handle(simulator: Simulator, arrival: Arrival, now_s: float) -> Outcome:
    """Decide everything about a request at its arrival. `now_s` never goes back from call to call."""
    route = _route(arrival.path)
    if route is None or arrival.method != "POST":
        return _page(simulator, arrival)
    return _ask(simulator, route, arrival, now_s)


@dataclass(frozen=True, slots=True)
class _Route:
    """Who is asked in which dialect."""

    dialect: Dialect
    model: str
    """The model that the path names; empty where the body does."""


def _route(path: str) -> _Route | None:
    """What a path asks for; None where it asks no model."""
    if path.startswith(BASE_PATH):
        for dialect in DIALECTS.values():
            model = dialect.model_of(path.removeprefix(BASE_PATH))
            if model is not None:
                return _Route(dialect, model)
    return None


def leave(simulator: Simulator) -> None:
    """A request whose outcome had a bill's line is over: answered, broken, or left by its client."""
    simulator.totals.leave()


def _page(simulator: Simulator, arrival: Arrival) -> Outcome:
    """Whatever asks no model: the list of models, the statistics, and mistakes."""
    path = arrival.path.rstrip("/")
    if _route(arrival.path) is not None:
        return _failed(_Refusal(status=405, code="method_not_allowed", message=f"{arrival.path} takes POST only."))
    if arrival.method in ("GET", "HEAD"):
        if path == "/stats":
            return _json(simulator.totals.json())
        if path == f"{BASE_PATH}/models":
            cards = [_card(model) for model in simulator.options.models]
            return _json(orjson.dumps({"object": "list", "data": cards}))
        model = path.removeprefix(f"{BASE_PATH}/models/")
        if model in simulator.options.models:
            return _json(orjson.dumps(_card(model)))
    asked = [BASE_PATH + dialect.path for dialect in DIALECTS.values()]
    known = ", ".join((*asked, f"{BASE_PATH}/models", "/stats"))
    return _failed(
        _Refusal(status=404, code="unknown_url", message=f"Unknown: {arrival.method} {arrival.path}. Known: {known}.")
    )


def _card(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": CREATED, "owned_by": "evalkit"}


def _ask(simulator: Simulator, route: _Route, arrival: Arrival, now_s: float) -> Outcome:
    """A request to a model: its outcome with its line on the bill."""
    options, n = simulator.options, simulator.totals.requests + 1
    request_id = arrival.headers.get("x-client-request-id", "")[:_MOST_ID_CHARACTERS]
    # A request without an id has its place in the order of arrival instead: then a retry may meet another fault.
    draws = Stream(options.seed, "provider", request_id or f"#{n}")
    verdict = _judge(simulator, route, arrival, draws, now_s)
    outcome, usage = verdict.outcome, verdict.usage
    # What is refused is refused at once; replies, server errors and broken connections take their time.
    if verdict.word != "early_reset" and not 400 <= outcome.status < 500:
        outcome = replace(outcome, delay_s=options.latency.draw(draws))
    seen_s = now_s - simulator.started_s
    line = BillLine(
        n=n,
        seen_s=seen_s,
        answered_s=None if outcome.ending == "stall" else seen_s + outcome.delay_s,
        request_id=request_id,
        model=verdict.model,
        status=outcome.status,
        outcome=verdict.word,
        billed=usage is not None,
        tokens_in=usage.input if usage else 0,
        tokens_out=usage.output if usage else 0,
        cost=options.price_of(verdict.model).of(usage) if usage else 0,
        seed=verdict.seed,
    )
    simulator.totals.add(line)
    return replace(outcome, line=line)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """What becomes of a request, before its latency is known."""

    outcome: Outcome
    word: str
    """`BillLine.outcome`."""
    model: str = ""
    seed: int | None = None
    usage: Usage | None = None
    """None: nothing is billed."""


def _judge(simulator: Simulator, route: _Route, arrival: Arrival, draws: Stream, now_s: float) -> _Verdict:
    dialect = route.dialect
    tokens_in = input_tokens(len(arrival.body))
    try:
        model, request = _read(simulator, route, arrival, tokens_in)
    except _Refusal as refusal:
        return _Verdict(outcome=_failed(refusal, dialect), word=refusal.code)
    try:
        _admit(simulator, model, tokens_in, now_s)
    except _Refusal as refusal:
        return _Verdict(outcome=_failed(refusal, dialect), word="rate_limit", model=model, seed=request.seed)
    faults = simulator.options.faults
    fault = pick(faults, draws.uniform()) if faults else ""
    if fault in STATUS_FAULTS:
        refused = _failed(_fault_refusal(simulator.options, fault), dialect)
        return _Verdict(outcome=refused, word=fault, model=model, seed=request.seed)
    if fault == "early_reset":
        return _Verdict(outcome=_BROKEN, word=fault, model=model, seed=request.seed)
    reply = _reply(model, request, tokens_in, len(arrival.body))
    if model in simulator.tokens:
        simulator.tokens[model].take(reply.usage.output)
    outcome = _answered(simulator, dialect, reply, fault)
    return _Verdict(outcome=outcome, word=fault or "ok", model=model, seed=request.seed, usage=reply.usage)


def _read(simulator: Simulator, route: _Route, arrival: Arrival, tokens_in: int) -> tuple[str, Request]:
    """Key, body, model and context, in this order; raises _Refusal at the first that is wrong."""
    options = simulator.options
    if options.key:
        for name, value in route.dialect.headers(options.key).items():
            if arrival.headers.get(name.lower()) != value:
                raise _Refusal(status=401, code="invalid_api_key", message="Incorrect API key provided, or none.")
    try:
        model, request = route.dialect.decode_request(arrival.body, route.model)
    except ValueError as flaw:
        raise _Refusal(status=400, code="invalid_body", message=f"The body cannot be read: {flaw}") from flaw
    if request.seed == 0:
        # Without a seed the body stands for it: so the same question still gets the same answer.
        request = replace(request, seed=int.from_bytes(hashlib.sha256(arrival.body).digest()[:4], "big"))
    if model not in options.models:
        message = f"The model `{model}` does not exist. Served: {', '.join(options.models)}."
        raise _Refusal(status=404, code="model_not_found", message=message)
    most, wanted = options.context_tokens, tokens_in + request.sampling.max_tokens
    if most is not None and wanted > most:
        message = (
            f"This model's maximum context length is {most} tokens. You requested {wanted}: "
            f"{tokens_in} in the messages and {request.sampling.max_tokens} in the completion."
        )
        raise _Refusal(status=400, code="context_length_exceeded", message=message)
    return model, request


def _admit(simulator: Simulator, model: str, tokens_in: int, now_s: float) -> None:
    """Take the request from the model's buckets, or raise the 429 that says when it will fit.

    A refused request takes nothing. The reply's tokens are taken once they are known, so that bucket may go below zero.
    """
    wanted = [
        (bucket, amount)
        for buckets, amount in ((simulator.requests, 1), (simulator.tokens, tokens_in))
        if (bucket := buckets.get(model))
    ]
    for bucket, _ in wanted:
        bucket.refill(now_s)
    wait_s = max((bucket.wait_s(amount) for bucket, amount in wanted), default=0.0)
    if wait_s > 0:
        message = f"Rate limit reached for {model}. Please try again in {limits.show_span(wait_s)}."
        headers = {**_limit_headers(simulator, model), **_retry_after(wait_s)}
        raise _Refusal(status=429, code="rate_limit_exceeded", message=message, headers=headers)
    for bucket, amount in wanted:
        bucket.take(amount)


def _reply(model: str, request: Request, tokens_in: int, body_bytes: int) -> Reply:
    reply = answer(model, player(model), request)
    name = hashlib.sha256(f"{model}/{request.seed}/{body_bytes}".encode()).hexdigest()
    return replace(
        reply,
        usage=Usage(input=tokens_in, output=output_tokens(reply)),
        model=model,
        fingerprint=f"fp_{derive('fingerprint', model):08x}",
        response_id=f"chatcmpl-{name[:24]}",
    )


def _answered(simulator: Simulator, dialect: Dialect, reply: Reply, fault: str) -> Outcome:
    """A reply that was made, and what keeps it from arriving."""
    if fault == "reset":
        return _BROKEN
    if fault == "stall":
        return replace(_BROKEN, ending="stall")
    body = dialect.encode_reply(reply)
    headers = {**_JSON, "x-request-id": f"req_{reply.response_id}", **_limit_headers(simulator, reply.model)}
    if fault == "truncated":
        return Outcome(status=200, headers=headers, body=body, ending="truncated", sent=len(body) // 2)
    return Outcome(status=200, headers=headers, body=body)


_JSON = {"content-type": "application/json"}
_BROKEN = Outcome(status=0, headers={}, body=b"", ending="reset")
_ASKS_TO_WAIT = frozenset({"429", "503", "529"})
_WORDS = {
    "429": "Too many requests, by chance.",
    "500": "The server had an error while processing the request.",
    "502": "Bad gateway.",
    "503": "The service is temporarily unavailable.",
    "529": "Overloaded.",
}


def _fault_refusal(options: SimulatorOptions, fault: str) -> _Refusal:
    wait_s = options.retry_after_s if fault in _ASKS_TO_WAIT else None
    return _Refusal(
        status=int(fault),
        code="rate_limit_exceeded" if fault == "429" else "server_error",
        message=_WORDS[fault],
        headers={} if wait_s is None else _retry_after(wait_s),
    )


def _retry_after(wait_s: float) -> dict[str, str]:
    """Whole seconds, rounded up, as HTTP has it, and milliseconds beside them."""
    return {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(wait_s * 1000))}


def _limit_headers(simulator: Simulator, model: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for kind, buckets in (("requests", simulator.requests), ("tokens", simulator.tokens)):
        if model in buckets:
            found.update(limits.headers(kind, buckets[model]))
    return found


def _json(body: bytes) -> Outcome:
    return Outcome(status=200, headers=_JSON, body=body)


def _failed(refusal: _Refusal, dialect: Dialect = OPENAI_CHAT) -> Outcome:
    body = dialect.encode_error(refusal.status, refusal.code, refusal.message)
    return Outcome(status=refusal.status, headers={**_JSON, **refusal.headers}, body=body)
