"""A network and a provider behind it, both of one seed: what becomes of each request is drawn by its id.

Replies are those of the served policies, made by the pure core of the simulated provider; what is billed is decided
here, and kept here: it is the truth that the run's books are compared with.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from evalkit.money import Price
from evalkit.seeds import Stream
from evalkit.serve.options import SimulatorOptions
from evalkit.serve.outcome import Arrival
from evalkit.serve.provider import handle, open_simulator
from evalkit.spec.model import Provider
from evalkit.wire.http import HttpResponse
from tests.sim.loop import Died

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
}
"""What may become of a request instead of its reply."""

LIES = (
    {"retry-after": "9" * 400},
    {"retry-after": "nan"},
    {"retry-after": "-5"},
    {"x-ratelimit-reset-requests": "1e308", "x-ratelimit-remaining-requests": "0", "x-ratelimit-limit-requests": "0"},
    {"retry-after": "Fri, 31 Dec 0001 23:59:59 GMT"},
)
"""Headers that are no good; none asks for a wait that a run would rightly obey."""


@dataclass(slots=True, kw_only=True)
class Weather:
    """How the network is during one life: probabilities by kind of fate, and outages in the loop's time."""

    fates: dict[str, float] = field(default_factory=dict)
    latency_s: tuple[float, float] = (0.05, 0.5)
    stalls: float = 0.0
    """Probability of a reply that takes ten times as long."""
    outages: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request on its way."""

    at: float
    episode: str
    step: int
    attempt: int
    lane: str


class Network:
    """All providers of a run, over several lives."""

    def __init__(self, seed: int, models: tuple[str, ...], say: Callable[[str], None]) -> None:
        self._seed, self._say = seed, say
        self._simulator = open_simulator(SimulatorOptions(models=models, price=PRICE), 0.0)
        self.weather = Weather()
        self.bill = 0
        """Pico-dollars, of all lives."""
        self.billed: list[tuple[str, int, int, int]] = []
        """(episode, step, attempt, pico-dollars)."""
        self.dead = False
        self.in_flight: dict[str, Sent] = {}
        self.history: list[Sent] = []
        """Of this life."""
        self.sending: Callable[[Sent], None] | None = None
        """Is told of each request that is about to leave."""
        self._lives = 0

    def begin(self, weather: Weather) -> None:
        """A new life begins."""
        self.weather, self.dead, self.in_flight, self.history = weather, False, {}, []
        self._lives += 1

    def open(self, provider: Provider, **given: object) -> "Exchange":
        """Stands in for `open_transport`."""
        del given
        return Exchange(self, provider)

    async def send(self, provider: Provider, path: str, body: bytes, request_id: str) -> HttpResponse:
        """One POST."""
        if self.dead:
            raise Died
        loop = asyncio.get_running_loop()
        episode, step, attempt = request_id.split("/")
        model = orjson.loads(body).get("model", "")
        sent = Sent(
            at=loop.time(), episode=episode, step=int(step), attempt=int(attempt), lane=f"{provider.name}/{model}"
        )
        if self.sending is not None:
            self.sending(sent)
        key = f"{self._lives}#{request_id}"
        self.in_flight[key] = sent
        self.history.append(sent)
        try:
            return await self._fate(provider, path, body, request_id, sent)
        finally:
            self.in_flight.pop(key, None)

    async def _fate(self, provider: Provider, path: str, body: bytes, request_id: str, sent: Sent) -> HttpResponse:
        draws = Stream(self._seed, "network", self._lives, request_id)
        weather, at = self.weather, sent.at
        least, most = weather.latency_s
        latency = least + draws.uniform() * (most - least)
        if draws.uniform() < weather.stalls:
            latency *= 10
        kind = self._kind(draws.uniform())
        if any(begin <= at < end for begin, end in weather.outages):
            kind = "unavailable" if draws.uniform() < 0.5 else "connect"
        headers: Mapping[str, str] = JSON
        if not kind:
            good = self._act(path, body, request_id, at, bills=True)
            await self._wait(latency, provider)
            return good
        what, acts, bills = FATES[kind]
        good = self._act(path, body, request_id, at, bills=bills and draws.uniform() < 0.6) if acts else None
        if kind in ("garbage", "cut_json", "no_usage", "part_usage", "negative_usage"):
            assert good is not None
            # A reply that was made is billed, whatever it says of itself.
            self._bill(good, request_id, body, once=True)
        self._say(f"{sent.lane} answers {request_id} with {kind}")
        if what == "timeout":
            await self._wait(provider.timeout_s, None)
            return HttpResponse(headers={}, failure="timeout", detail="simulated")
        await self._wait(latency, provider)
        if kind == "lying_headers":
            headers = {**JSON, **LIES[draws.below(len(LIES))]}
        elif kind in ("429", "overload", "unavailable") and draws.uniform() < 0.5:
            headers = {**JSON, "retry-after": str(1 + draws.below(5))}
        if isinstance(what, str):
            failure: Any = what
            return HttpResponse(headers={}, failure=failure, detail="simulated")
        if what != 200:
            return HttpResponse(status=what, headers=headers, body=b'{"error": {"message": "simulated"}}')
        assert good is not None
        return HttpResponse(status=200, headers=JSON, body=_spoilt(good.body, kind, draws))

    def _kind(self, at: float) -> str:
        for kind, probability in self.weather.fates.items():
            at -= probability
            if at < 0:
                return kind
        return ""

    async def _wait(self, seconds: float, provider: Provider | None) -> None:
        if provider is not None:
            seconds = min(seconds, 0.9 * provider.timeout_s)
        await asyncio.sleep(seconds)
        if self.dead:
            raise Died

    def _act(self, path: str, body: bytes, request_id: str, at: float, *, bills: bool) -> HttpResponse:
        """The server does its work, and bills it where it is one that does."""
        arrival = Arrival(method="POST", path=f"/v1{path}", headers={"x-client-request-id": request_id}, body=body)
        outcome = handle(self._simulator, arrival, at)
        assert outcome.status == 200, (outcome.status, outcome.body[:200])
        good = HttpResponse(status=200, headers=JSON, body=outcome.body)
        if bills:
            self._bill(good, request_id, body, once=False)
        return good

    def _bill(self, good: HttpResponse, request_id: str, body: bytes, *, once: bool) -> None:
        episode, step, attempt = request_id.split("/")
        place = episode, int(step), int(attempt)
        if once and self.billed and self.billed[-1][:3] == place:
            return
        said = orjson.loads(good.body)["usage"]
        cost = PRICE.input * said["prompt_tokens"] + PRICE.output * said["completion_tokens"]
        self.billed.append((*place, cost))
        self.bill += cost


class Exchange:
    """One provider: what the engine takes for its transport."""

    def __init__(self, network: Network, provider: Provider, path: str = "") -> None:
        self._network, self._provider, self._path = network, provider, path

    async def __aenter__(self) -> "Exchange":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def to(self, path: str) -> "Exchange":
        """The endpoint at a path."""
        return Exchange(self._network, self._provider, path)

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The outcome of one POST."""
        return await self._network.send(self._provider, self._path, body, request_id)


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
