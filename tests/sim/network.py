"""A network and a provider behind it, both of one seed: what becomes of each request is drawn by its id.

Replies are those of the served policies, made by the pure core of the simulated provider; what is billed is decided
here, and kept here: it is the truth that the run's books are compared with.

What is billed is billed when the request leaves: a process that dies before it has arrived owes it all the same.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from evalkit.money import Price
from evalkit.seeds import Stream
from evalkit.serve.outcome import Arrival
from evalkit.spec.model import Provider
from evalkit.wire.http import HttpResponse
from tests.provider.double import Double
from tests.provider.options import DoubleOptions
from tests.sim.loop import Died
from tests.sim.sweeps import STRICT

PRICE = Price(input=10**6, output=4 * 10**6, cached_read=10**6, cached_write=10**6)

JSON = {"content-type": "application/json"}

# Kind -> (status or failure, whether the server acted, whether it may bill).
FATES: Mapping[str, tuple[int | str, bool, bool]] = {
    "429": (429, False, False),
    "overload": (529, False, False),
    "unavailable": (503, False, False),
    "proxy": (407, False, False),
    "connect": ("connect", False, False),
    "reset_before": ("reset", False, False),
    "reset_after": ("reset", True, True),
    "408": (408, True, True),
    "500": (500, True, True),
    "502": (502, True, True),
    "504": (504, True, True),
    "524": (524, True, True),
    "timeout": ("timeout", True, True),
    "truncated": ("truncated", True, True),
    "garbage": (200, True, True),
    "cut_json": (200, True, True),
    "no_usage": (200, True, True),
    "part_usage": (200, True, True),
    "negative_usage": (200, True, True),
    "lying_headers": (429, False, False),
    "lying_reply": (200, True, True),
    "duplicate": (200, True, True),
}
"""What may become of a request instead of its reply. Of the last two the reply is good: one has headers that lie, the
other was delivered twice, and its provider has done the work twice."""

GOOD = ("lying_reply", "duplicate")

LIES = (
    {"retry-after": "9" * 400},
    {"retry-after": "nan"},
    {"retry-after": "-5"},
    {"x-ratelimit-reset-requests": "1e308", "x-ratelimit-remaining-requests": "0", "x-ratelimit-limit-requests": "0"},
    {"retry-after": "Fri, 31 Dec 0001 23:59:59 GMT"},
)
"""Headers that are no good; none asks for a wait that a run would rightly obey."""

LEFT = (
    {"x-ratelimit-limit-requests": "-5", "x-ratelimit-remaining-requests": "nan", "x-ratelimit-reset-requests": "1h"},
    {"x-ratelimit-limit-tokens": "1" * 300, "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "-1s"},
    {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "900", "x-ratelimit-reset-requests": "9s"},
    {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "9s"},
)
"""What good replies say of their provider's limits, and is not so."""

REFUSED = 0.3
"""Of how many asks a strict provider wants to know nothing."""
"""By what words; those of one episode are the same."""

LONG = ("spaces", "digits", "lists", "members", "escapes")
"""Ways in which a body may be long."""
LEAST_LONG, MOST_LONG = 10, 17
"""Its length as a power of two: it doubles from reply to reply."""
FULL, FLEX_SLOWER = 0.1, 5.0
"""How often a cheap tier has no room, and how many times as long it takes."""
OVERBILLED = 2
"""A provider that bills more than it reports takes so many times what it says."""


@dataclass(slots=True, kw_only=True)
class Weather:
    """How the network is during one life: probabilities by kind of fate, and outages in the loop's time."""

    fates: dict[str, float] = field(default_factory=dict)
    latency_s: tuple[float, float] = (0.05, 0.5)
    stalls: float = 0.0
    """Probability of a reply that takes a hundred times as long; its client waits so long, or no longer than it may."""
    long: float = 0.0
    """Probability of a body that is as long again as the one before it."""
    ways: tuple[str, ...] = LONG
    """In which bodies are long."""
    spread: bool = False
    """Whether some replies come at once, so that they overtake others."""
    outages: list[tuple[float, float]] = field(default_factory=list)
    away: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By URL of one of several servers: when it is away while others may be there, s since the life's first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request on its way."""

    at: float
    episode: str
    step: int
    attempt: int
    lane: str
    process: int
    ask: str = ""
    """Which of its step's requests it is, of an agent that is code."""
    server: str = ""
    """Where it is sent, by URL."""

    def id(self, attempt: int) -> str:
        """The id of one of the attempts at it."""
        return (
            f"{self.episode}.{self.ask}/{self.step}/{attempt}" if self.ask else f"{self.episode}/{self.step}/{attempt}"
        )


class Network:
    """All providers of a run, over several lives."""

    def __init__(self, seed: int, models: tuple[str, ...], say: Callable[[str], None]) -> None:
        self._seed, self._say = seed, say
        self._simulator = Double(DoubleOptions(models=models, price=PRICE, downgraded=0.1), 0.0)
        self.weather = Weather()
        self.bill = 0
        """Pico-dollars, of all lives: what a client that believes its replies must count with."""
        self.taken = 0
        """What its provider has taken: as much, but for one that bills more than it reports."""
        self.counts = Counter[str]()
        """How often each fate came about."""
        self.overbills = False
        self.progress = 0.0
        """When something was last sent or answered, in the loop's time."""
        self.long_bodies: dict[int, str] = {}
        """By length: the way in which bodies are long."""
        self.remaining: set[tuple[int, str]] = set()
        """(process, id of the request) of all that was billed."""
        self.billed: list[tuple[str, int]] = []
        """(id of the request, pico-dollars)."""
        self.dead = False
        self.in_flight: dict[str, Sent] = {}
        self.history: list[Sent] = []
        """Of this life."""
        self.given_up: list[Sent] = []
        """Of those, what a process that lives did not wait for."""
        self.sending: Callable[[Sent], None] | None = None
        """Is told of each request that is about to leave."""
        self.processes = 0
        self.process = 0
        """The number of the one that acts."""

    def begin(self, weather: Weather) -> None:
        """A new life begins."""
        self.weather, self.dead, self.history = weather, False, []  # others than this life's may be in flight
        self.given_up, self.long_bodies = [], {}
        self.process = self.join()

    def join(self) -> int:
        """One more process; its number."""
        self.processes += 1
        return self.processes

    def open(self, provider: Provider, *, url: str, **given: object) -> "Exchange":
        """Stands in for `open_transport`."""
        del given
        return Exchange(self, provider, self.process, url)

    async def send(
        self, provider: Provider, server: str, path: str, body: bytes, request_id: str, process: int
    ) -> HttpResponse:
        """One POST of a process."""
        if self.dead:
            raise Died
        loop = asyncio.get_running_loop()
        episode, step, attempt = request_id.split("/")
        episode, _, ask = episode.partition(".")
        model = orjson.loads(body).get("model", "")
        sent = Sent(
            at=loop.time(),
            episode=episode,
            step=int(step),
            attempt=int(attempt),
            lane=f"{provider.name}/{model}",
            process=process,
            ask=ask,
            server=server,
        )
        if self.sending is not None:
            self.sending(sent)
        key = f"{process}#{request_id}"
        self.in_flight[key] = sent
        self.history.append(sent)
        self.progress = sent.at
        try:
            reply = await self._fate(provider, path, body, request_id, sent)
            self.counts["overtaken"] += any(one.at < sent.at for one in self.in_flight.values())
            return reply
        except asyncio.CancelledError:
            if not self.dead:
                self.given_up.append(sent)
            raise
        finally:
            self.in_flight.pop(key, None)

    async def _fate(self, provider: Provider, path: str, body: bytes, request_id: str, sent: Sent) -> HttpResponse:
        draws = Stream(self._seed, "network", sent.process, request_id)
        weather, at = self.weather, sent.at
        latency = self._latency(draws)
        kind = self._kind(draws.uniform())
        if any(begin <= at < end for begin, end in weather.outages):
            kind = "unavailable" if draws.uniform() < 0.5 else "connect"
            self.counts["outage"] += 1
        elif latency > provider.timeout_s and kind not in ("connect", "proxy", "reset_before"):
            kind = "timeout"
            self.counts["outlasted"] += 1
        if any(begin <= at - self.history[0].at < end for begin, end in weather.away.get(sent.server, ())):
            kind = "connect"
            self.counts["server_away"] += 1
        flex = b'"service_tier":"flex"' in body
        if flex and not kind and draws.uniform() < FULL:
            self.counts["tier_full"] += 1
            return _refusal("429", 429, draws)
        latency *= FLEX_SLOWER if flex else 1.0
        refusal = _refusal_of(sent)
        if refusal is not None and (not kind or FATES[kind][1]):
            self.counts["refused_asks"] += 1
            await self._wait(min(latency, 0.9 * provider.timeout_s))
            return refusal
        if not kind:
            good = self._act(path, body, request_id, at, bills=True)
            await self._wait(latency)
            return self._lengthened(good, draws)
        self.counts[kind] += 1
        what, acts, bills = FATES[kind]
        bills &= kind in GOOD or draws.uniform() < 0.6
        made = self._act(path, body, request_id, at, bills=bills) if acts else None
        if kind in ("garbage", "cut_json", "no_usage", "part_usage", "negative_usage"):
            assert made is not None
            # A reply that was made is billed, whatever it says of itself.
            self._bill(made, request_id, once=True)
        self._say(f"{sent.lane} answers {request_id} with {kind}")
        if what == "timeout":
            await self._wait(provider.timeout_s)
            return HttpResponse(headers={}, failure="timeout", detail="simulated")
        await self._wait(min(latency, 0.9 * provider.timeout_s))
        if isinstance(what, str):
            failure: Any = what
            return HttpResponse(headers={}, failure=failure, detail="simulated")
        if what != 200:
            return self._lengthened(_refusal(kind, what, draws), draws)
        assert made is not None
        if kind == "duplicate":
            return self._again(path, body, request_id, at)
        if kind == "lying_reply":
            return HttpResponse(status=200, headers={**JSON, **LEFT[draws.below(len(LEFT))]}, body=made.body)
        return self._lengthened(
            HttpResponse(status=200, headers=JSON, body=_spoilt(made.body, kind, draws)), draws, garbage=True
        )

    def _latency(self, draws: Stream) -> float:
        weather = self.weather
        least, most = weather.latency_s
        latency = least + draws.uniform() * (most - least)
        if draws.uniform() < weather.stalls:
            self.counts["stalls"] += 1
            latency *= 100
        if weather.spread and draws.uniform() < 0.3:
            latency = least / 10
            self.counts["spread"] += 1
        return latency

    def _again(self, path: str, body: bytes, request_id: str, at: float) -> HttpResponse:
        """The answer to the same request, delivered a second time: the work is done twice, and billed once, but by a
        provider that bills more than it reports."""
        twice = self._act(path, body, request_id, at, bills=False)
        if self.overbills:
            self.taken += _cost(twice)
        return twice

    def _lengthened(self, reply: HttpResponse, draws: Stream, *, garbage: bool = False) -> HttpResponse:
        """The same with a longer body, now and then: longer by a power of two each time."""
        if not self.weather.long or draws.uniform() >= self.weather.long:
            return reply
        way = self.weather.ways[draws.below(len(self.weather.ways))]
        power = LEAST_LONG + sum(one.startswith(way) for one in self.long_bodies.values())
        if power > MOST_LONG:
            return reply
        self.counts["long_bodies"] += 1
        body = _long(reply.body, way, 2**power, ends=not garbage)
        # A byte of what is no JSON is dearer: it is read as far as it goes, and looked through for an error's words.
        self.long_bodies[len(body)] = f"{way} in what is no JSON" if garbage else way
        return HttpResponse(status=reply.status, headers=reply.headers, body=body)

    def _kind(self, at: float) -> str:
        for kind, probability in self.weather.fates.items():
            at -= probability
            if at < 0:
                return kind
        return ""

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.dead:
            raise Died
        self.progress = asyncio.get_running_loop().time()

    def _act(self, path: str, body: bytes, request_id: str, at: float, *, bills: bool) -> HttpResponse:
        """The server does its work, and bills it where it is one that does."""
        arrival = Arrival(method="POST", path=f"/v1{path}", headers={"x-client-request-id": request_id}, body=body)
        outcome = self._simulator.handle(arrival, at)
        assert outcome.status == 200, (outcome.status, outcome.body[:200])
        good = HttpResponse(status=200, headers=JSON, body=outcome.body)
        if bills:
            self._bill(good, request_id, once=False)
        return good

    def _bill(self, good: HttpResponse, request_id: str, *, once: bool) -> None:
        if once and self.billed and self.billed[-1][0] == request_id:
            return
        cost = _cost(good)
        self.billed.append((request_id, cost))
        self.remaining.add((self.process, request_id))
        self.bill += cost
        self.taken += cost * (OVERBILLED if self.overbills else 1)
        self.counts["overbill"] += self.overbills
        self.counts["by_flex"] += b'"service_tier":"flex"' in good.body


class Exchange:
    """One provider: what the engine takes for its transport."""

    def __init__(self, network: Network, provider: Provider, process: int, url: str, path: str = "") -> None:
        self._network, self._provider, self._process, self._url, self._path = network, provider, process, url, path

    async def __aenter__(self) -> "Exchange":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def patient(self, timeout_s: float, headers: Mapping[str, str]) -> "Exchange":
        """The same for requests that may take longer."""
        assert not headers
        patient = replace(self._provider, timeout_s=max(timeout_s, self._provider.timeout_s))
        return Exchange(self._network, patient, self._process, self._url, self._path)

    def to(self, path: str) -> "Exchange":
        """The endpoint at a path."""
        return Exchange(self._network, self._provider, self._process, self._url, path)

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The outcome of one POST."""
        return await self._network.send(self._provider, self._url, self._path, body, request_id, self._process)


def _cost(good: HttpResponse) -> int:
    """What a reply costs by what it says it used, in pico-dollars."""
    said = orjson.loads(good.body)["usage"]
    listed = int(PRICE.input * said["prompt_tokens"] + PRICE.output * said["completion_tokens"])
    return listed // 2 if b'"service_tier":"flex"' in good.body else listed


def _refusal_of(sent: Sent) -> HttpResponse | None:
    """How a strict provider refuses a request, whichever process sends it and how often; None: it does not. Its window
    is outgrown, after a first step: that ends an episode for good, where its agent does not catch it."""
    if (
        sent.lane.partition("/")[0] != STRICT
        or sent.step == 0
        or Stream(0, STRICT, sent.episode, sent.step, sent.ask).uniform() > REFUSED
    ):
        return None
    body = orjson.dumps({"error": {"message": "simulated", "code": "context_length_exceeded"}})
    return HttpResponse(status=400, headers=JSON, body=body)


def _refusal(kind: str, status: int, draws: Stream) -> HttpResponse:
    headers: Mapping[str, str] = JSON
    if kind == "lying_headers":
        headers = {**JSON, **LIES[draws.below(len(LIES))]}
    elif kind in ("429", "overload", "unavailable") and draws.uniform() < 0.5:
        headers = {**JSON, "retry-after": str(1 + draws.below(5))}
    return HttpResponse(status=status, headers=headers, body=b'{"error": {"message": "simulated"}}')


def _long(body: bytes, way: str, size: int, *, ends: bool) -> bytes:
    """A body longer by `size`; `ends`: and still JSON, if it was."""
    filling = {
        "spaces": b'"' + b" " * size + b'"',
        "digits": b"1" * size,
        "lists": b"[" * (size // 2) + b"]" * (size // 2),
        "members": b"[" + b"0," * (size // 2) + b"0]",
        "escapes": b'"' + b"\\u0041" * (size // 6) + b'"',
    }[way]
    if not ends or not body.startswith(b"{"):
        return body + filling[: size // 2]
    if way == "digits":
        filling = b'"' + filling + b'"'  # a number of so many digits is no JSON that a reader must take
    if way == "lists":
        filling = b"[" + b"[]," * (size // 3) + b"[]]"  # nested as deep, it may be refused
    return b'{"padding":' + filling + b"," + body[1:]


def _spoilt(body: bytes, kind: str, draws: Stream) -> bytes:
    """A reply that came whole, and is not what it should be."""
    if kind == "garbage":
        return (b"", b"<html>", b"\xff\xfe\x00", b"[" * 500, b'{"choices": 7}')[draws.below(5)]
    if kind == "cut_json":
        return body[: draws.below(len(body))]
    value = orjson.loads(body)
    if kind == "no_usage":
        del value["usage"]
    else:
        name = ("prompt_tokens", "completion_tokens")[draws.below(2)]
        if kind == "part_usage":
            del value["usage"][name]
        else:
            value["usage"][name] = (-5, "many", None, True)[draws.below(4)]
    return orjson.dumps(value)
