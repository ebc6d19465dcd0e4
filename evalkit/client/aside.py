"""Work whose cost grows with the size of a response: above a limit it runs off the event loop, so that it does not
block others."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from evalkit.wire.lenient import ON_LOOP_BYTES

Result = TypeVar("Result")


async def aside(work: Callable[[], Result], size: int) -> Result:
    """The result of `work`: computed directly for up to `ON_LOOP_BYTES` bytes, which costs no await, else in a thread.

    A thread that nobody waits for any longer runs to its end, and its result is ignored.
    """
    if size <= ON_LOOP_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)
