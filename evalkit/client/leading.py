"""Who leads a run in a bucket sends only while no other process can have taken it over: a process that stood still asks
first. The log is safe without; this keeps requests from being paid for twice."""

import asyncio
from typing import Protocol

AGAIN_S = 1.0
"""How often a store that does not answer is asked."""


class SendingRight(Protocol):
    """What says who leads (`store/lead.py`)."""

    @property
    def is_current(self) -> bool:
        """Whether nobody else can lead yet."""

    def check(self) -> None:
        """Ask the store, if need be. Raises FencedError if another process leads."""


async def renewed(right: SendingRight) -> None:
    """Wait until the store has confirmed that this process leads. Raises FencedError if it does not."""
    while not right.is_current:
        await asyncio.to_thread(right.check)
        if not right.is_current:
            await asyncio.sleep(AGAIN_S)
