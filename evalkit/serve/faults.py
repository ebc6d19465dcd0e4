"""Deliberate faults: their kinds, and the draw that decides. It is keyed by the request's id, so that the same request
has the same fault in every run, and its retry, which has another id, may have none.
"""

from collections.abc import Iterable, Mapping

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
