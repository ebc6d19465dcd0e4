"""What an agent's code asked on its way to a step, for readers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from evalkit.dialogue import Reply
from evalkit.money import usd
from evalkit.replies import decode_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of an agent that is code.

    step         the step on the way to which it was made
    key          the fork that asked, nested by `/`; empty for the agent itself
    n            its place among the requests of its key within the step, from 0
    role         the role that was asked
    reply        `Reply`; None if the provider refused the request
    refused      why: `context_length`, `content_filter`, ...; empty if there is a reply
    cost_pico_usd
                 of the reply, in 1e-12 USD; without failed attempts
    tokens_in, tokens_out
                 as counted by the provider
    latency_s    seconds that the reply took

    >>> import evalkit
    >>> @evalkit.agent(version=1)
    ... async def plain(seat: evalkit.Seat) -> None:
    ...     while not seat.ending:
    ...         await seat.act(await seat.ask())
    >>> instance = evalkit.suite("scheduling/basic", instances=["seed-0"])[0]
    >>> episode = evalkit.play(plain, instance, models={"main": "simulated/knuth"})
    >>> first = episode.asks[0]
    >>> first.step, first.key, first.n, first.role, first.refused
    (0, '', 0, 'main', '')
    """

    step: int
    key: str
    n: int
    role: str
    reply: Reply | None = field(repr=False)
    refused: str
    cost_pico_usd: int
    tokens_in: int
    tokens_out: int
    latency_s: float

    @property
    def cost_usd(self) -> Decimal:
        """Exactly `cost_pico_usd`."""
        return usd(self.cost_pico_usd)


def ask_of(row: Mapping[str, Any]) -> Ask:
    """An ask from its row, as `asks_made` gives it. Raises CorruptLogError."""
    return Ask(
        step=row["step"],
        key=row["ask_key"],
        n=row["ask_n"],
        role=str(orjson.loads(row["facts"]).get("model", "")),
        reply=None if row["reply"] is None else decode_reply(row["reply"]),
        refused=row["attempts"].rpartition(",")[2] if row["reply"] is None else "",
        cost_pico_usd=row["cost"],
        tokens_in=row["tokens_in"],
        tokens_out=row["tokens_out"],
        latency_s=row["latency_s"],
    )
