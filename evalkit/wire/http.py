"""An HTTP exchange as values, and the one verdict on its outcome. No socket, no clock.

A dialect's `judge` (`verdicts.py`) is defined for everything that can come back. Retrying lives in `client/retry.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from evalkit.dialogue import Usage, as_dataclass
from evalkit.wire.billed import counts_as_billed

Failure = Literal["", "reset", "timeout", "truncated", "oversize", "tls", "connect", "broken_off"]
Action = Literal["accept", "retry", "draw_again", "end_episode", "park", "end_lane"]
"""`end_episode`: by what its chat contains; `park`: it is set aside and remains, for a reason that is not its own."""


@as_dataclass
class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, or what went wrong instead."""

    status: int = 0
    """HTTP status; 0 if there was none."""
    headers: Mapping[str, str]
    """Looked up by names in lower case."""
    body: bytes = b""
    failure: Failure = ""
    detail: str = ""
    """The failure in the library's words."""
    credentials: int = 0
    """Which of its provider's credentials the request carried, counted from 1; 0: a key that does not change."""
    credentials_worked: bool = False
    """Whether some request was answered with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do about a response."""

    action: Action
    kind: str = ""
    """Short name for logs and counters: `rate_limit`, `overload`, `server_error`, `timeout`, `reset`, `truncated`,
    `bad_key`, `no_access`, `no_credit`, `quota`, `too_large`, `unknown_model`, `context_length`, `content_filter`,
    `bad_request`, ..."""
    wait_s: float | None = None
    """When to come back according to the server, if it says so."""
    message: str = ""
    outcome: str = ""
    """The outcome as a key of `billed.py`, if it was not a reply."""
    usage: Usage | None = None
    """What an answer that is no reply has used, if it says so."""

    @property
    def billable(self) -> bool:
        """Whether the provider may have billed the attempt although its usage is unknown, by the table for all."""
        return bool(self.outcome) and counts_as_billed(self.outcome, {})
