"""The servers of a lane in a line."""

from collections.abc import Sequence

from evalkit.cli.plan_words import show_span
from evalkit.client.lanes.stats import ServerStats

MOST_SHOWN = 8
"""Servers in a line; those that are away come first."""
MOST_WORDS = 80
"""Characters of what one of them said last."""


def server_words(servers: Sequence[ServerStats]) -> str:
    """Requests in flight and allowed at each; of one that is away, since when and why."""
    order = sorted(servers, key=lambda server: (not server.is_down, not server.paused_s))
    words = [_words(server) for server in order[:MOST_SHOWN]]
    rest = order[MOST_SHOWN:]
    if rest:
        flying = sum(server.in_flight for server in rest)
        words.append(f"{len(rest):,} more {flying:,}/{sum(server.window for server in rest):,}")
    return ", ".join(words)


def _words(server: ServerStats) -> str:
    if server.is_down:
        return f"{server.server} down for {show_span(server.down_s)} ({server.trouble[:MOST_WORDS]})"
    if server.paused_s:
        return f"{server.server} paused for {show_span(server.paused_s)}"
    return f"{server.server} {server.in_flight:,}/{server.window:,}"
