"""The simulated provider as a pure core: (state, request, now) -> (outcome, and when). No socket, no clock, no file.

Both the HTTP server (`server.py`) and a transport within the process use it. The order in which a request is judged is
that of real providers: key, body, model, limits; then the faults that were asked for; then the policy answers.

The state is one mutable object, changed by `handle` and `leave` alone; the same calls in the same order, with the same
times, give the same outcomes. The answer to a request does not even depend on that order: replies come from the
request's seed, latencies and faults from its id. Limits do depend on it, if there are any.

Pure: when a request will be done is known when it arrives, because what came before it is known.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from evalkit.dialogue import Reply, Request, Usage
from evalkit.money import Price
from evalkit.policy.conversation import answer
from evalkit.policy.table import served, served_names
from evalkit.seeds import Stream, derive
from evalkit.serve import limits
from evalkit.serve.formats import BASE_PATH, ServedFormat, StreamWish
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT, limit_headers
from evalkit.serve.options import SimulatorOptions
from evalkit.serve.outcome import JSON, Arrival, BillLine, RefusedRequest, ServedOutcome, pick
from evalkit.serve.streams import as_unstreamed, streamed
from evalkit.wire.tokens import BYTES_PER_TOKEN, input_tokens, output_tokens

RETRY_AFTER_S = 1.0
"""What an injected 429 tells the client to wait."""
STREAM_FIRST = 0.5
"""The part of its latency after which a stream's first byte is sent; its events are spread over the rest."""
_MOST_ID_CHARACTERS = 200
_LIMITS = RefusedRequest(
    status=429, code="rate_limit_exceeded", message="Too many requests, by chance.", wait_s=RETRY_AFTER_S
)
_FAILURE = RefusedRequest(
    status=500, code="server_error", message="The server had an error while processing the request."
)
TIER_TIMES: Mapping[str, str] = {"default": "1", "flex": "0.5", "priority": "2"}
"""What the tiers cost, beside the standard one; a request that names none is served by that."""
FLEX, FLEX_SLOWER = "flex", 3.0
"""How many times as long a reply of the cheap one takes."""
_MEMBER = rb'"service_tier"\s*:\s*"(\w+)"'
_TIER = re.compile(rb",\s*%b|%b\s*,?\s*" % (_MEMBER, _MEMBER))
BROKEN = ServedOutcome(status=0, headers={}, body=b"", ending="reset", admitted=True)
"""A connection that breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedRequest:
    """A request to a model, as it arrived."""

    served: ServedFormat
    arrival: Arrival
    """As it is without the wish for a stream."""
    wish: StreamWish | None
    """How the answer is streamed; None: it comes whole."""
    tier: str = ""
    """By which it asks to be served; empty: it names none."""
    draw_key: str
    """What its draws are keyed by: its id."""
    now_s: float

    @property
    def tokens_in(self) -> int:
        """Tokens of its prompt."""
        return input_tokens(len(self.arrival.body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The fate of a request, before its latency is known."""

    outcome: ServedOutcome
    word: str
    """`BillLine.outcome`."""
    works: bool = True
    """Whether it has a latency: replies, server errors and connections that break later have one; refusals are sent at
    once."""
    limit: str = ""
    model: str = ""
    tier: str = ""
    """By which it is served."""
    seed: int | None = None
    usage: Usage | None = None
    """None: nothing is billed."""


class Simulator:
    """A provider that started at `now_s` with full buckets; mutable."""

    def __init__(self, options: SimulatorOptions, now_s: float) -> None:
        self.options, self.started_s = options, now_s
        self._asked = 0
        """Requests to a model so far."""
        models = options.models or served_names()
        self.limits: Mapping[str, limits.ServedLimits] = {model: self._limits(now_s) for model in models}

    def rates(self) -> Mapping[str, float | None]:
        """What a model allows a minute, by kind."""
        return {"requests": self.options.rpm, "tokens": self.options.tpm}

    def _limits(self, now_s: float) -> limits.ServedLimits:
        burst_s = self.options.burst_s
        buckets = {kind: limits.bucket(rate, burst_s, now_s) for kind, rate in self.rates().items() if rate is not None}
        return limits.ServedLimits(buckets=buckets, most_in_flight=self.options.in_flight)

    def handle(self, arrival: Arrival, now_s: float) -> ServedOutcome:
        """Decide everything about a request at its arrival. `now_s` never goes back from call to call."""
        n, request_id = self._asked + 1, arrival.headers.get("x-client-request-id", "")[:_MOST_ID_CHARACTERS]
        # A request without an id has its place in the order of arrival instead: then a retry may meet another fault.
        asked = self.asked(arrival, request_id or f"#{n}", now_s) if arrival.method == "POST" else None
        if asked is None:
            return self.page(arrival)
        draws = Stream(self.options.seed, "provider", asked.draw_key)
        decision = self._judge(asked, draws)
        for_s = self.options.latency.draw(draws) * (FLEX_SLOWER if decision.tier == FLEX else 1.0)
        delay_s, over_s = self.times(asked, decision, for_s) if decision.works else (0, 0)
        name = hashlib.sha256(f"{self.options.seed}/{asked.draw_key}".encode()).hexdigest()
        headers = {**decision.outcome.headers, **self.id_headers(asked, f"req_{name[:24]}")}
        outcome = replace(decision.outcome, headers=headers, delay_s=delay_s, over_s=over_s)
        seen_s, usage = now_s - self.started_s, decision.usage or Usage()
        line = BillLine(
            n=n,
            seen_s=seen_s,
            answered_s=None if outcome.ending == "stall" else seen_s + outcome.done_s,
            request_id=request_id,
            model=decision.model,
            status=outcome.status,
            outcome=decision.word,
            billed=decision.usage is not None,
            tokens_in=usage.input,
            tokens_out=usage.output,
            tokens_cached=usage.cached_read,
            tokens_cache_write=usage.cached_write,
            tier=decision.tier,
            cost=self.price_in(decision.tier).of(usage) if decision.usage else 0,
            limit=decision.limit,
            seed=decision.seed,
        )
        self._asked = n
        return replace(outcome, line=line)

    def leave(self, outcome: ServedOutcome) -> None:
        """Called when a request whose outcome had a line of the bill is over: answered, broken, or left by its
        client."""
        assert outcome.line is not None
        if outcome.admitted:
            self.limits[outcome.line.model].in_flight -= 1

    def asked(self, arrival: Arrival, draw_key: str, now_s: float) -> ArrivedRequest | None:
        """What a POST asks for; None if it asks no model."""
        served = SERVED_OPENAI_CHAT
        if arrival.path != BASE_PATH + served.dialect.path:
            return None
        wish, whole = as_unstreamed(arrival)
        tier, whole = without_tier(whole)
        return ArrivedRequest(served=served, arrival=whole, wish=wish, tier=tier, draw_key=draw_key, now_s=now_s)

    def price_in(self, tier: str) -> Price:
        """What tokens cost by a tier."""
        return self.options.price.times(Decimal(TIER_TIMES[tier])) if tier else self.options.price

    def served_by(self, asked: ArrivedRequest) -> str:
        """The tier that serves a request; empty if it names none."""
        return asked.tier and {"auto": "default"}.get(asked.tier, asked.tier)

    def page(self, arrival: Arrival) -> ServedOutcome:
        """What whoever asks no model is told."""
        chat = BASE_PATH + SERVED_OPENAI_CHAT.dialect.path
        status, code, message = 404, "unknown_url", f"Unknown: {arrival.method} {arrival.path}. Known: POST {chat}."
        if arrival.path == chat:
            status, code, message = 405, "method_not_allowed", f"{arrival.path} takes POST only."
        return refused(SERVED_OPENAI_CHAT, RefusedRequest(status=status, code=code, message=message))

    def _judge(self, asked: ArrivedRequest, draws: Stream) -> Decision:
        try:
            model, request = self.read(asked)
        except RefusedRequest as refusal:
            return Decision(outcome=self.refused(asked, refusal, ""), word=refusal.code, works=False)
        about = Decision(outcome=BROKEN, word="", model=model, tier=self.served_by(asked), seed=request.seed)
        try:
            self._admit(asked, model)
        except RefusedRequest as refusal:
            outcome = self.refused(asked, refusal, model)
            return replace(about, outcome=outcome, word="rate_limit", works=False, limit=refusal.limit)
        return self.decided(asked, about, request, self.fault(asked, draws))

    def read(self, asked: ArrivedRequest) -> tuple[str, Request]:
        """Key, body and model, in this order. Raises RefusedRequest at the first that is wrong."""
        key = self.options.key
        if key and asked.arrival.headers.get("authorization") != f"Bearer {key}":
            raise RefusedRequest(status=401, code="invalid_api_key", message=BAD_KEY)
        try:
            model, request = asked.served.decode_request(asked.arrival.body)
        except ValueError as flaw:
            raise RefusedRequest(status=400, code="invalid_body", message=f"The body cannot be read: {flaw}") from flaw
        if asked.tier not in ("", "auto", *TIER_TIMES):
            message = f"service_tier: {asked.tier!r} must be auto, {', '.join(TIER_TIMES)}."
            raise RefusedRequest(status=400, code="invalid_body", message=message)
        if model not in self.limits:
            raise unknown_model(model, tuple(self.limits))
        return model, request if request.seed else replace(request, seed=seed_of(asked.arrival))

    def amounts(self, asked: ArrivedRequest, _model: str) -> Mapping[str, float]:
        """What a request takes of the limits, by kind."""
        return {"requests": 1, "tokens": asked.tokens_in}

    def _admit(self, asked: ArrivedRequest, model: str) -> None:
        """Accept the request, or raise the 429 that says when it will fit."""
        short = self.limits[model].admit(self.amounts(asked, model), asked.now_s)
        if short is None:
            return
        if short.wait_s is None:
            message = f"Too many requests in flight for {model}. Please try again when some have been answered."
        else:
            kind, span = short.kind.replace("_", " "), limits.show_span(short.wait_s)
            message = f"Rate limit reached for {model} on {kind}. Please try again in {span}."
        raise RefusedRequest(
            status=429, code="rate_limit_exceeded", message=message, wait_s=short.wait_s, limit=short.kind
        )

    def fault(self, _asked: ArrivedRequest, draws: Stream) -> str:
        """The fault that a request meets; empty: none."""
        return pick(self.options.faults, draws.uniform()) if self.options.faults else ""

    def decided(self, asked: ArrivedRequest, about: Decision, request: Request, fault: str) -> Decision:
        """What becomes of a request that was let in."""
        failure = self.failure(asked, about.model, fault)
        if failure is not None:
            return replace(about, outcome=failure, word=fault, works=failure.status >= 500)
        return self.replied(asked, about, request, fault)

    def failure(self, asked: ArrivedRequest, model: str, fault: str) -> ServedOutcome | None:
        """A fault that comes before a reply is made; None: one is made."""
        if fault not in ("429", "500"):
            return None
        return replace(self.refused(asked, _LIMITS if fault == "429" else _FAILURE, model), admitted=True)

    def replied(self, asked: ArrivedRequest, about: Decision, request: Request, fault: str) -> Decision:
        """A reply that was made, with what becomes of it."""
        model, tokens_in = about.model, asked.tokens_in
        reply = self.said(model, request, fault)
        thoughts = -(-len(reply.reasoning) // BYTES_PER_TOKEN)
        usage = self.used(asked, model, Usage(input=tokens_in, output=output_tokens(reply), reasoning=thoughts))
        self.limits[model].spend(usage.output)
        name = hashlib.sha256(f"{model}/{request.seed}/{len(asked.arrival.body)}".encode()).hexdigest()
        fingerprint = f"fp_{derive('fingerprint', model):08x}"
        reply = replace(
            reply,
            usage=usage,
            model=model,
            fingerprint=fingerprint,
            response_id=asked.served.reply_id(name),
            tier=about.tier,
        )
        outcome = self.answered(asked, asked.served.encode_reply(reply), model, fault)
        return replace(about, outcome=outcome, word=fault or "ok", usage=usage)

    def said(self, model: str, request: Request, _fault: str) -> Reply:
        """The model's reply."""
        return answer(model, served(model), request)

    def used(self, _asked: ArrivedRequest, _model: str, usage: Usage) -> Usage:
        """What of the tokens of a request and its reply is billed how."""
        return usage

    def answered(self, asked: ArrivedRequest, body: bytes, model: str, fault: str) -> ServedOutcome:
        """A 200 body on its way, and a fault that keeps it from arriving, if there is one."""
        if fault == "reset":
            return BROKEN
        if fault == "stall":
            return replace(BROKEN, ending="stall")
        outcome = ServedOutcome(status=200, headers=JSON, body=body, admitted=True)
        if asked.wish is not None:
            outcome = self.streamed(asked, body, fault)
        outcome = replace(outcome, headers={**outcome.headers, **self.limit_headers(asked, model)})
        half = len(outcome.body) // 2
        if fault == "invalid_json":
            return replace(outcome, body=outcome.body[:half], pieces=())
        return replace(outcome, ending="truncated", pieces=((0.0, half),)) if fault == "truncated" else outcome

    def streamed(self, asked: ArrivedRequest, body: bytes, _fault: str) -> ServedOutcome:
        """The body as a stream."""
        assert asked.wish is not None
        return streamed(asked.served, body, asked.wish, Stream(self.options.seed, "stream", asked.draw_key))

    def times(self, _asked: ArrivedRequest, decision: Decision, for_s: float) -> tuple[float, float]:
        """(seconds from arrival to the first byte, seconds over which the rest is spread), of so many in all."""
        over_s = for_s * (1 - STREAM_FIRST) if decision.outcome.streamed else 0.0
        return for_s - over_s, over_s

    def refused(self, asked: ArrivedRequest, refusal: RefusedRequest, model: str) -> ServedOutcome:
        """A refusal with its headers; with those of the limits if the model is known."""
        outcome = refused(asked.served, refusal)
        return replace(outcome, headers={**outcome.headers, **self.limit_headers(asked, model)})

    def limit_headers(self, _asked: ArrivedRequest, model: str) -> Mapping[str, str]:
        """Where the limits of a model stand; none if it is unknown, an empty text."""
        return limit_headers(self.limits[model].standings()) if model else {}

    def id_headers(self, _asked: ArrivedRequest, name: str) -> Mapping[str, str]:
        """What names a request."""
        return {"x-request-id": name}


BAD_KEY = "Incorrect API key provided, or none: API key not valid."


def without_tier(arrival: Arrival) -> tuple[str, Arrival]:
    """The tier that a request names, and the request without it: like the wish for a stream it changes no reply and no
    usage, which its length would."""
    found = _TIER.search(arrival.body)
    if found is None:
        return "", arrival
    body = arrival.body[: found.start()] + arrival.body[found.end() :]
    return (found[1] or found[2]).decode(), replace(arrival, body=body)


def seed_of(arrival: Arrival) -> int:
    """The seed of a request that has none. Its id, `EPISODE/STEP/ATTEMPT`, gives the seed that evalkit's client would
    have sent, so replicates differ and a retry repeats; without such an id the body does."""
    step, _, attempt = arrival.headers.get("x-client-request-id", "").rpartition("/")
    if "/" in step and attempt:
        return derive(step)
    return int.from_bytes(hashlib.sha256(arrival.body).digest()[:4], "big")


def refused(served: ServedFormat, refusal: RefusedRequest) -> ServedOutcome:
    """The refusal in a format's words. Whole seconds of its wait are rounded up, so that nobody comes too early."""
    asking = {}
    if refusal.wait_s is not None:
        asking = {
            "retry-after": str(math.ceil(refusal.wait_s)),
            "retry-after-ms": str(math.ceil(refusal.wait_s * 1000)),
        }
    body = served.encode_error(refusal.status, refusal.code, refusal.message)
    return ServedOutcome(status=refusal.status, headers={**JSON, **asking}, body=body)


def unknown_model(model: str, models: tuple[str, ...]) -> RefusedRequest:
    """The refusal of a model that is not served."""
    message = f"The model `{model}` does not exist. Served: {', '.join(models)}."
    return RefusedRequest(status=404, code="model_not_found", message=message)
