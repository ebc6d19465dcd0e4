"""Plays a session in other processes: on this machine, or on a Ray cluster."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from evalkit.engine.session import Resources, Schedule
from evalkit.machines.children import play_here
from evalkit.machines.on_ray import on_cluster, play_on_ray
from evalkit.machines.spread import Spread


@asynccontextmanager
async def machines(ready: Resources, schedule: Schedule) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """What plays it, once they can come. Raises UsageError where they cannot."""
    session = ready.session
    sweep = session.resolved.sweep
    if sweep.on == "ray":
        session.options.tell("connecting to the Ray cluster")
        async with on_cluster(sweep.workers):
            yield lambda: play_on_ray(Spread(schedule, ready.endpoints))
    else:
        yield lambda: play_here(Spread(schedule, ready.endpoints))
