"""A request to the simulated provider, and its outcome. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evalkit.serve.bill import BillLine

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
