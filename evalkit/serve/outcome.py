"""A request to the simulated provider, and its outcome. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evalkit.serve.bill import BillLine

Ending = Literal["complete", "reset", "stall", "truncated", "drip"]


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
    """From arrival until `ending` happens."""
    ending: Ending = "complete"
    """`reset`: the connection breaks, nothing is sent. `stall`: nothing happens until the client goes. `truncated`: the
    headers announce the whole body, `sent` bytes of it come, and the connection is closed. `drip`: the body comes in
    `faults.PIECES` pieces, spread over `over_s`."""
    sent: int = 0
    """For `truncated`: how many bytes of the body are sent."""
    over_s: float = 0.0
    """For `drip`: seconds from `delay_s` to the last piece."""
    admitted: bool = False
    """Whether it counts as in flight for the model's limits until it is left."""
    line: BillLine | None = None
    """The bill's line, to be written before anything is sent; None for requests that ask no model. Who gets one must
    call `leave` when the request is over."""


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
