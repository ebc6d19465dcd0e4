"""A request to the simulated provider, and its outcome. Values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import orjson

# Deliberate faults: their kinds, and the draw that decides. It is keyed by the request's id, so that the same request
# has the same fault in every run, and its retry, which has another id, may have none.

FAULTS: Mapping[str, str] = {
    "429": "refused as if a limit were reached; not billed",
    "500": "server error; not billed",
    "reset": "connection reset after the reply was made; billed",
    "stall": "the reply is made but never sent: silence until the client gives up; billed",
    "truncated": "the connection is closed in the middle of the body; billed",
    "invalid_json": "status 200 and the first half of the body, as if it were complete; billed",
}
"""Every fault and what it means."""


def pick(probabilities: Mapping[str, float], draw: float, kinds: Iterable[str] = FAULTS) -> str:
    """The fault for a uniform `draw` in [0, 1), or an empty string for none."""
    for kind in kinds:
        draw -= probabilities.get(kind, 0.0)
        if draw < 0:
            return kind
    return ""


# The simulated provider's bill: one line per request, decided when the request arrives.
#
# A line is complete at arrival: what will be sent, when, and what it costs are known then. So nothing of the bill is
# lost if the client or the server is killed a moment later. Real providers also bill answers that nobody reads.


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One request to a model, billed or not."""

    n: int
    """Order of arrival, from 1."""
    seen_s: float
    """When it arrived, in seconds since the provider started."""
    answered_s: float | None
    """When its outcome is due, on the same clock; None for a stall."""
    request_id: str
    """The id that the client sends: `X-Client-Request-Id`."""
    model: str
    """As asked for; empty if the body could not be read."""
    status: int
    """HTTP status; 0 if none is sent."""
    outcome: str
    """`ok`, `rate_limit`, a fault's name, or the code of a refused request (`invalid_api_key`, ...)."""
    billed: bool
    tokens_in: int
    """0 if nothing is billed, like the next four."""
    tokens_out: int
    tokens_cached: int
    """Part of `tokens_in` that was read from the prompt cache."""
    tokens_cache_write: int
    """Part of `tokens_in` that is billed as written to it."""
    tier: str
    """By which the request was served; empty if it named none."""
    cost: int
    """1e-12 USD."""
    limit: str
    """The limit that refused the request (`requests`, `tokens`, `input_tokens`, `output_tokens`,
    `in_flight`); empty if no limit refused it, an injected 429 included."""
    seed: int | None
    """The seed of the reply; None if the body could not be read."""

    def json(self) -> bytes:
        """The line as it stands in the bill's file, newline included."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)


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
class ServedOutcome:
    """The outcome of a request, and its time."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    delay_s: float = 0.0
    """From arrival until the first byte is sent, or what `ending` says happens."""
    ending: Ending = "complete"
    """What happens after the last piece. `reset`: the connection breaks. `stall`: nothing, until the client goes.
    `truncated`: the connection is closed, although more was announced."""
    pieces: tuple[tuple[float, int], ...] = ()
    """The body in pieces: (when it is sent, as a share of `over_s`; where it ends in the body). None: the body is sent
    at once."""
    over_s: float = 0.0
    """Seconds from `delay_s` over which the pieces are spread."""
    streamed: bool = False
    """Whether the body is sent without saying how long it is."""
    admitted: bool = False
    """Whether it counts as in flight for the model's limits until it is left."""
    line: BillLine | None = None
    """The bill's line, to be written before anything is sent; None for requests that ask no model. Who gets one must
    call `leave` when the request is over."""

    @property
    def sent(self) -> int:
        """How many bytes of the body are sent."""
        return self.pieces[-1][1] if self.pieces else len(self.body)

    @property
    def done_s(self) -> float:
        """From arrival until the last piece is sent."""
        return self.delay_s + (self.over_s * self.pieces[-1][0] if self.pieces else 0.0)


class RefusedRequest(Exception):
    """A request that gets an error instead of a reply."""

    def __init__(self, *, status: int, code: str, message: str, wait_s: float | None = None, limit: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.wait_s = wait_s
        """What the client is asked to wait; None: nothing is said."""
        self.limit = limit
        """The limit that refuses it (`limits.Shortage.kind`); empty: none does."""


JSON = {"content-type": "application/json"}
