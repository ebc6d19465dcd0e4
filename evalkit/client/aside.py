"""Work that grows with what came over the network, kept off the event loop where it would hold up everybody else."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from evalkit.wire.lenient import ON_LOOP_BYTES

Result = TypeVar("Result")


async def aside(work: Callable[[], Result], size: int) -> Result:
    """What `work` returns: at once for up to `ON_LOOP_BYTES` bytes, which costs no await, else from a thread.

    A thread that is not waited for any more runs to its end unheard.
    """
    if size <= ON_LOOP_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)
