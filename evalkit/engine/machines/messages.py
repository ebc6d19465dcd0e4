"""What a coordinator and its workers say to each other, and how it is put into bytes.

A worker asks and the coordinator answers: `attend` and `hello` once, `renew` again and again, `bye` at the end. No
question is answered twice; where a call of Ray's breaks off the answer is repeated. Amounts of money that only grow are
sent as totals. Times are spans, never clocks: no two processes compare theirs.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from evalkit.client.lanes.stats import ServerStats
from evalkit.engine.freezing.freeze import Endpoint
from evalkit.engine.universe import Choice
from evalkit.errors import EvalkitError
from evalkit.spec.model import Limits
from evalkit.store.reading.unmetered import Unmetered

RUN = "run"
"""The scope of the run's own budget; others are `lane NAME` and `agent NAME`."""


class EpisodePlace(msgspec.Struct, frozen=True, array_like=True):
    """An episode by its position: an agent, an instance by its place in its suite, and a replicate."""

    agent: str
    suite: str
    index: int
    replicate: int


class Left(msgspec.Struct, frozen=True, array_like=True):
    """An episode that a worker has left, once all its rows are durable."""

    episode: str
    how: str
    """Its ending, or why it is still owed."""
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

    players: int = 0
    """Episodes that it can play at once."""
    playing: int = 0
    queued: int = 0
    """Episodes that wait for a player."""
    steps: int = 0
    in_flight: int = 0
    window: int = 0
    proven: int = 0
    waiting: int = 0
    waits_for: str = ""
    requests_per_min: float = 0.0
    input_per_min: float = 0.0
    output_per_min: float = 0.0
    paused_s: float = 0.0
    latency_s: float = 0.0
    trouble: str = ""
    ended: str = ""
    notice: str = ""
    unavailable: str = ""
    refused: str = ""
    too_large: str = ""
    agents_stopped: dict[str, str] = {}
    """Agents that are played no more although their lane goes on, and why."""
    failures: dict[str, int] = {}
    acted: bool = False
    """Whether an episode has made a valid action."""
    largest: int = 0
    """The highest bound of one request, in pico-dollars."""
    stopped: str = ""
    """Why the lane takes no more requests at all; empty while it does."""
    servers: tuple[ServerStats, ...] = ()
    """Where it has several."""


class Purse(msgspec.Struct, frozen=True, array_like=True):
    """What a worker has of one scope's money, in pico-dollars."""

    spent: int
    reserved: int
    wanted: int = 0
    """What the requests that wait lack."""
    first: int = 0
    """The bound of the request that is next."""
    returned: int = 0
    """Given back so far, in total."""
    over: int = 0
    """Spent beyond what was lent so far, by replies above their bounds."""


class Attend(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process wants to work."""

    evalkit: str
    log: int
    """The format of its log."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker is there."""

    writer: str
    manifest: str
    """Digest of the run's manifest as it reads it."""
    code: dict[str, str] = {}
    """By environment and policy: digest of its source."""


class Renew(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a worker does, and what it needs."""

    writer: str
    lanes: dict[str, LaneReport] = {}
    share: int = 0
    """The version of the shares in force."""
    purses: dict[str, Purse] = {}
    charged: int = 0
    unmetered: Unmetered = Unmetered()
    left: list[Left] = []
    given_back: list[str] = []
    """Episodes that it was assigned and has not begun."""
    progress: list[FlightReport] = []
    stop: str = ""
    stop_message: str = ""
    leaving: bool = False
    """Whether it plays no further episode; others go on with those that it has stopped."""


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker has closed its journal."""

    writer: str
    number: int
    """Of the object that closes it; -1: it had none."""


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `attend`: what a worker is to do that the run's manifest does not say. It contains no key."""

    agents: tuple[str, ...]
    suites: tuple[str, ...]
    replicates: int
    endpoints: Mapping[str, Endpoint]
    choice: Choice
    retry: frozenset[str]
    asks: bool
    """Whether the run is to find out something, so that scores are told."""
    width: int
    budget: int | None
    """The run's, and those of agents, in pico-dollars."""
    agent_budgets: dict[str, int]
    limits: Mapping[str, Limits]
    """Those of the sweep."""
    after: str
    """A writer that began before: the worker's begins later."""
    urls: dict[str, str]
    """Of simulated providers that the coordinator's process has started."""
    deadline_s: float | None
    """Seconds from now at which the run ends."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `hello`."""

    widths: dict[str, int]
    """By lane, how many episodes the worker may have in flight."""
    workers: int


class WorkerRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker must not play; why, in a sentence."""

    why: str
    after: str = ""
    """A writer that began later than its own: it may try again with a name that is later than this."""


class Directive(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to `renew` and `bye`."""

    blocks: dict[str, list[EpisodePlace]] = {}
    recall: dict[str, int] = {}
    """By lane, how many episodes that it has not begun it should give back."""
    leased: dict[str, int] = {}
    """By scope, in total; the rows are durable."""
    before: dict[str, int] = {}
    """By scope, what all others have spent, earlier sessions included."""
    give_back: dict[str, int] = {}
    share: int = 0
    rates: dict[str, float] = {}
    """By limit, what the worker may use of it, for `valid_s` from when it sent the question."""
    valid_s: float = 0.0
    workers: int = 1
    """How many there are, or are expected."""
    leave: bool = False
    """The worker is to stop its episodes, close its journal and begin anew: then it may go on with what others left."""
    pauses: dict[str, float] = {}
    acted: list[str] = []
    lanes_stopped: dict[str, str] = {}
    agents_stopped: dict[str, dict[str, str]] = {}
    """By lane."""
    finish: bool = False
    """Nothing will come any more."""
    stop: str = ""
    stop_message: str = ""


Question = Attend | Hello | Renew | Bye
Reply = WorkerSetup | Welcome | WorkerRefused | Directive


class Gone(EvalkitError):
    """The other process has ended, or answers no more."""


class WorkerTransport(Protocol):
    """How a worker reaches its coordinator."""

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer. Raises Gone if it gives none any more."""


_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Question | Reply) -> bytes:
    """A message's bytes."""
    return _encoder.encode(message)


def decode_question(data: bytes) -> Question:
    """What a worker asks. Raises msgspec.MsgspecError."""
    return _questions.decode(data)


def decode_reply(data: bytes) -> Reply:
    """What the coordinator answers. Raises msgspec.MsgspecError."""
    return _replies.decode(data)
