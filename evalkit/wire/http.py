"""An HTTP exchange as values, and the one verdict on its outcome. No socket, no clock.

A dialect's `judge` (`verdicts.py`) is defined for everything that can come back. Retrying lives in `client/retry.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from evalkit.dialogue import Usage, as_dataclass

# Which outcomes without a reply count as billed: one table, and what clouds bill beyond it.
#
# An attempt that counts as billed is charged at its bound, since its usage is unknown; any other is free. Without a
# connection, nothing was sent. An answer that refuses the request before a model saw it costs nothing. A failure
# inside the provider may be reported after the work was done, and so may silence.

BILLED: Mapping[str, bool] = {
    "timeout": True,  # no complete reply in time, or a body that stalled
    "reset": True,  # the connection broke after the request was sent
    "truncated": True,  # the body was cut off, or was not HTTP
    "oversize": True,  # a body too large to be read
    "unreadable": True,  # a success status, but no reply in the body
    "broken_off": True,  # an error in place of a reply that had begun
    "bad_call": True,  # a refusal of a call that the model itself wrote: its tokens were made
    "filtered": True,  # a filter's answer in place of the whole reply; charged as it states, if it does
    "cancelled": True,  # evalkit itself cancelled it (a second Ctrl-C) after it was sent
    "connect": False,  # the connection could not be made (DNS, refused, proxy): nothing was sent
    "tls": False,  # the TLS certificate was not accepted: nothing was sent
    "408": True,  # the server stopped waiting for the request
    "429": False,  # refused because of a limit
    "500": True,  # an error of the server
    "501": False,  # the server does not support the request
    "502": True,  # a gateway got no valid answer from the server behind it
    "503": False,  # unavailable
    "504": True,  # a gateway timed out waiting for the server behind it
    "505": False,  # the server does not support this version of HTTP
    "524": True,  # a proxy timed out waiting for the server behind it
    "529": False,  # overloaded
    "content_filter": False,  # a prompt that a filter refused, whatever its status
    "context_length": False,  # a prompt that is too long, whatever its status
    "3xx": False,  # a redirect, which is not followed
    "4xx": False,  # any other refusal, including a proxy's 407
    "5xx": True,  # any other error of a server
}
"""By outcome. A class (`4xx`) applies to its statuses that are not listed."""

BILLED_BY_CLOUD: Mapping[str, Mapping[str, bool]] = {
    # A prompt that the filter refuses was evaluated, and is billed with what was written meanwhile; so may one be that
    # is too long. Source: https://learn.microsoft.com/azure/foundry/openai/how-to/manage-costs,
    # .../concepts/content-filter, 2026-11-27.
    "azure": {"content_filter": True, "context_length": True},
}
"""By a provider's `credentials`: where it bills otherwise."""


def counts_as_billed(outcome: str, overrides: Mapping[str, bool], *, kind: str = "") -> bool:
    """Whether an outcome counts as billed. `kind`: what the verdict calls it. `overrides`: what the provider bills
    otherwise, by kind or outcome. A status outside of all classes counts as one of the nearest class. Raises KeyError
    for an unknown outcome."""
    for name in (kind, outcome):
        if name in overrides:
            return overrides[name]
    wide = f"{min(max(int(outcome) // 100, 3), 5)}xx" if outcome.isdigit() else outcome
    return BILLED[outcome if outcome in BILLED else wide]


Failure = Literal["", "reset", "timeout", "truncated", "oversize", "tls", "connect", "broken_off"]
Action = Literal["accept", "retry", "draw_again", "end_episode", "defer", "end_lane"]
"""`end_episode`: by what its chat contains; `defer`: it is set aside and remains, for a reason that is not its own."""


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
    """The outcome as a key of `BILLED`, if it was not a reply."""
    usage: Usage | None = None
    """What an answer that is no reply has used, if it says so."""
    names_limit: bool = False
    """Of a 429: whether it says that a rate was exceeded, and not merely that there is no room."""

    @property
    def billable(self) -> bool:
        """Whether the provider may have billed the attempt although its usage is unknown, by the table for all."""
        return bool(self.outcome) and counts_as_billed(self.outcome, {})
