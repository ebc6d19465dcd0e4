"""What goes wrong on purpose: kinds of fault, and the draw that decides. Keyed by the request's id, so that the same
request meets the same fault in every run, and its retry, which has another id, may not.
"""

from collections.abc import Mapping

FAULTS: Mapping[str, str] = {
    "429": "refused as if a limit were reached; not billed",
    "500": "server error; not billed",
    "502": "bad gateway; not billed",
    "503": "unavailable; not billed",
    "529": "overloaded; not billed",
    "early_reset": "connection reset before any work was done; not billed",
    "reset": "connection reset when the reply was made; billed",
    "stall": "the reply is made and never sent: silence until the client gives up; billed",
    "truncated": "the connection is closed in the middle of the body; billed",
}
"""Every fault and what it means."""

STATUS_FAULTS = frozenset({"429", "500", "502", "503", "529"})
"""Faults that are answers with that HTTP status."""


def pick(probabilities: Mapping[str, float], at: float) -> str:
    """The fault for a uniform draw `at` in [0, 1), or an empty string for none."""
    for kind in FAULTS:
        at -= probabilities.get(kind, 0.0)
        if at < 0:
            return kind
    return ""
