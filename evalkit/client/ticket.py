"""Who is in a lane: a request that was admitted, and one that stands in line."""

import asyncio

from evalkit.client.buckets import Need


class Ticket:
    """One admitted request; every ticket goes back through `succeeded`, `failed` or `abandon` of its lane."""

    __slots__ = ("body_bytes", "need", "probe", "sent_at")

    def __init__(self, need: Need, sent_at: float, probe: bool, body_bytes: int) -> None:
        self.need = need
        self.sent_at = sent_at
        self.probe = probe
        """Whether it asks if a provider that was down is back."""
        self.body_bytes = body_bytes


class QueuedRequest:
    """One request in line."""

    __slots__ = ("body_bytes", "max_tokens", "ticket", "turn")

    def __init__(self, body_bytes: int, max_tokens: int) -> None:
        self.body_bytes = body_bytes
        self.max_tokens = max_tokens
        self.ticket: Ticket | None = None
        self.turn: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
