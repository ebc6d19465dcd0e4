"""Who may ask the servers of this machine (pages, gateway, MCP): nothing that a browser sends for another site.

A page of another site can have its own name point at 127.0.0.1 (DNS rebinding): then that name is in `Host`. It can
also send requests to 127.0.0.1: then its name is in `Origin`.
"""

import re
from collections.abc import Sequence

HOST = "127.0.0.1"
_NAMED = re.compile(rf"(?:{re.escape(HOST)}|localhost)(?::\d{{1,5}})?", re.ASCII | re.IGNORECASE)
"""Nothing else, such as a user's name in front, belongs there."""
_HTTP = "http://"
REFUSED = 403


def refusal(hosts: Sequence[str], origins: Sequence[str]) -> str:
    """Why a request is refused, in a sentence; empty if it may be answered. `hosts`, `origins`: the values of all its
    headers of these names."""
    if len(hosts) != 1 or _NAMED.fullmatch(hosts[0]) is None:
        return f"This server answers only requests to {HOST} and localhost."
    if not all(origin.startswith(_HTTP) and _NAMED.fullmatch(origin[len(_HTTP) :]) for origin in origins):
        return "This server answers no requests of other sites."
    return ""
