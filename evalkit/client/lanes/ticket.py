"""The requests in a lane: those that were admitted, and those in its queue."""

from typing import NamedTuple

from evalkit.client.lanes.buckets import Need
from evalkit.client.lanes.server import LaneServer
from evalkit.client.lanes.servers import ANYWHERE, Wish


class Ticket:
    """One admitted request; every ticket is returned through `succeeded`, `failed` or `abandon` of its lane."""

    __slots__ = ("body_bytes", "need", "probe", "sent_at", "server")

    def __init__(self, need: Need, sent_at: float, probe: bool, body_bytes: int, server: LaneServer) -> None:
        self.need = need
        self.sent_at = sent_at
        self.probe = probe
        """Whether it asks if a provider that was down is back."""
        self.body_bytes = body_bytes
        self.server = server
        """Where it is sent."""


class QueuedRequest(NamedTuple):
    """One request in the queue."""

    body_bytes: int
    max_tokens: int
    wish: Wish = ANYWHERE
