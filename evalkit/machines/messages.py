"""What a coordinator and its workers say to each other, and how it is put into bytes.

A worker asks and the coordinator answers: `Hello` once, a `WorkReport` about once a second, whose answer is a
`WorkGrant`, and `Bye` at the end. No question is answered twice; where a call of Ray's breaks off the answer is
repeated. Times are spans, never clocks: no two processes compare theirs.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from evalkit.client.budget import LoanBalance
from evalkit.client.lanes.stats import LaneStats
from evalkit.engine.freezing.freeze import Endpoint
from evalkit.engine.universe import Choice
from evalkit.errors import EvalkitError
from evalkit.spec.model import Sweep
from evalkit.store.reading.unmetered import UnmeteredReplies

ENDED, FAILED, REFUSED, GONE = 0, 1, 2, 4
"""How a worker's process ends: well; it could not go on; it may not, or need not, work; its coordinator has ended."""


EpisodePlace = tuple[str, str, int, int]
"""An episode by its position: an agent, a suite, an instance by its place in it, and a replicate."""


class Left(msgspec.Struct, frozen=True, array_like=True):
    """An episode that a worker has left, once all its rows are durable."""

    episode: str
    how: str
    """Its ending, or why it is still remaining."""
    cost: int
    """Pico-dollars and requests, earlier sessions included."""
    requests: int
    score: float | None = None
    """Where it may answer what the run is to find out; None: nobody has made it."""


class FlightReport(msgspec.Struct, frozen=True, array_like=True):
    """How far an episode in flight has come."""

    episode: str
    cost: int
    requests: int


class LaneReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lane of one worker."""

    playing: int = 0
    queued: int = 0
    """Episodes that wait for a player."""
    steps: int = 0
    stats: LaneStats | None = None
    """None: a policy in the worker itself."""
    proven: int = 0
    notice: str = ""
    unavailable: str = ""
    refused: str = ""
    too_large: str = ""
    agents_stopped: dict[str, str] = {}
    """Agents that are played no more although their lane goes on, and why."""
    acted: bool = False
    """Whether an episode has made a valid action."""
    largest: int = 0
    """The highest bound of one request, in pico-dollars."""
    stopped: str = ""
    """Why the lane takes no more requests at all; empty while it does."""
    quick_s: float = 0.0
    """Seconds that a request takes by the quick one of two tiers; 0: not known."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process wants to work. What it says first is what another version may say, too."""

    evalkit: str
    log: int
    """The format of its log."""
    writer: str
    manifest: str
    """Digest of the run's manifest as it reads it."""
    code: dict[str, str] = {}
    """By environment and policy: digest of its source."""


class WorkReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a worker has done and does, and what it waits for. All rows of it are durable."""

    writer: str
    lanes: dict[str, LaneReport] = {}
    money: dict[tuple[str, str], LoanBalance] = {}
    """By scope: that of the whole budget (`RUN`), and of agents that have one of their own."""
    charged: int = 0
    unmetered: UnmeteredReplies = UnmeteredReplies()
    left: list[Left] = []
    unbegun: list[str] = []
    """Episodes that it has given back."""
    flying: list[FlightReport] = []
    stop: tuple[str, str] = "", ""
    """Why the run is to stop, in a word and in a sentence."""


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker has closed its journal."""

    writer: str


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `Hello`: what a worker is to do that the run's manifest does not say. It contains no key."""

    widths: dict[str, int]
    """By lane, how many episodes the worker may have in flight."""
    sweep: Sweep
    """Its limits and budgets, which agents play, and how many seconds are left."""
    suites: tuple[str, ...]
    endpoints: Mapping[str, Endpoint]
    choice: Choice
    retry: frozenset[str]
    urls: dict[str, str]
    """Of simulated providers that the coordinator's process has started."""


class WorkerRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker must not play; why, in a sentence."""

    why: str
    after: str = ""
    """A writer that began later than its own: it may try again with a name that is later than this."""


class LaneGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lane, and what all workers have met there."""

    episodes: list[EpisodePlace] = []
    """Those that the worker has from now on, too."""
    pause_s: float = 0.0
    acted: bool = False
    """Whether an episode has made a valid action."""
    stopped: str = ""
    agents_stopped: dict[str, str] = {}
    turns: float = 0.0
    """Where it mixes tiers: requests in a row before it has ended, all workers together."""


class WorkGrant(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `WorkReport` and `Bye`."""

    lanes: dict[str, LaneGrant] = {}
    money: dict[tuple[str, str], tuple[int, int]] = {}
    """By scope, in pico-dollars: what the worker may have of it in all, what it has spent included, its rows durable;
    and what all others have spent. If the first is less than before, the worker gives back what idles."""
    limits: dict[str, float] = {}
    """By limit, what the worker may use of it, for `valid_s` from when it sent the question."""
    valid_s: float = 0.0
    finish: bool = False
    """Nothing will come any more: the worker is to end with its last episode."""
    stop: tuple[str, str] = "", ""
    """Why the run stops, in a word and in a sentence."""


Question = Hello | WorkReport | Bye
Reply = Welcome | WorkerRefused | WorkGrant


class Gone(EvalkitError):
    """The other process has ended, or answers no more."""


class WorkerTransport(Protocol):
    """How a worker reaches its coordinator."""

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer. Raises Gone if it gives none any more."""


encode: Callable[[Question | Reply], bytes] = msgspec.msgpack.Encoder().encode
decode_question: Callable[[bytes], Question] = msgspec.msgpack.Decoder(Question).decode
decode_reply: Callable[[bytes], Reply] = msgspec.msgpack.Decoder(Reply).decode
