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
    "timeout": True,
    "reset": True,
    "truncated": True,
    "oversize": True,
    "unreadable": True,
    "broken_off": True,
    "bad_call": True,
    "filtered": True,
    "cancelled": True,
    "connect": False,
    "tls": False,
    "408": True,
    "429": False,
    "500": True,
    "501": False,
    "502": True,
    "503": False,
    "504": True,
    "505": False,
    "524": True,
    "529": False,
    "content_filter": False,
    "context_length": False,
    "3xx": False,
    "4xx": False,
    "5xx": True,
}
"""By outcome, with the keys of `MEANING`. A class (`4xx`) applies to its statuses that are not listed."""

MEANING: Mapping[str, str] = {
    "timeout": "no complete reply in time, or a body that stalled",
    "reset": "the connection broke after the request was sent",
    "truncated": "the body was cut off, or was not HTTP",
    "oversize": "a body too large to be read",
    "unreadable": "a success status, but no reply in the body",
    "broken_off": "an error in place of a reply that had begun",
    "bad_call": "a refusal of a call that the model itself wrote: its tokens were made",
    "filtered": "a filter's answer in place of the whole reply; charged as it states, if it does",
    "cancelled": "evalkit itself cancelled it (a second Ctrl-C) after it was sent",
    "connect": "the connection could not be made (DNS, refused, proxy): nothing was sent",
    "tls": "the TLS certificate was not accepted: nothing was sent",
    "408": "the server stopped waiting for the request",
    "429": "refused because of a limit",
    "500": "an error of the server",
    "501": "the server does not support the request",
    "502": "a gateway got no valid answer from the server behind it",
    "503": "unavailable",
    "504": "a gateway timed out waiting for the server behind it",
    "505": "the server does not support this version of HTTP",
    "524": "a proxy timed out waiting for the server behind it",
    "529": "overloaded",
    "content_filter": "a prompt that a filter refused, whatever its status",
    "context_length": "a prompt that is too long, whatever its status",
    "3xx": "a redirect, which is not followed",
    "4xx": "any other refusal, including a proxy's 407",
    "5xx": "any other error of a server",
}
"""What each outcome is, for the documentation."""

BILLED_BY_CLOUD: Mapping[str, Mapping[str, bool]] = {
    # A prompt that the filter refuses was evaluated, and is billed with what was written meanwhile; so may one be that
    # is too long. Source: https://learn.microsoft.com/azure/foundry/openai/how-to/manage-costs,
    # .../concepts/content-filter, 2026-11-27.
    "azure": {"content_filter": True, "context_length": True},
}
"""By a provider's `credentials`: where it bills otherwise."""


def counts_as_billed(outcome: str, overrides: Mapping[str, bool], *, kind: str = "") -> bool:
    """Whether an outcome counts as billed. `kind`: what the verdict calls it, since a provider may have a rule for some
    refusals of a status. `overrides` are the provider's own: its rule for a class of statuses also takes precedence
    over the table's rule for one of them. A status outside of all classes counts as one of the nearest class. Raises
    KeyError for an unknown outcome."""
    if kind in overrides:
        return overrides[kind]
    wide = f"{min(max(int(outcome) // 100, 3), 5)}xx" if outcome.isdigit() else outcome
    for table in (overrides, BILLED):
        for name in (outcome, wide):
            if name in table:
                return table[name]
    raise KeyError(outcome)


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
    """The outcome as a key of `BILLED`, if it was not a reply."""
    usage: Usage | None = None
    """What an answer that is no reply has used, if it says so."""

    @property
    def billable(self) -> bool:
        """Whether the provider may have billed the attempt although its usage is unknown, by the table for all."""
        return bool(self.outcome) and counts_as_billed(self.outcome, {})
