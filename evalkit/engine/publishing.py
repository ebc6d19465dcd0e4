"""What a run says of itself while it is played: to other processes, and to later plans."""

import asyncio
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.store.bucket import is_bucket
from evalkit.store.live import publish

if TYPE_CHECKING:
    from evalkit.engine.scheduler import LaneJob
    from evalkit.engine.session import Session
    from evalkit.engine.view import View


SHOW_EVERY_S = 0.25
"""How often a run is looked at while it is played."""
EVERY, PUT_EVERY = 2, 20
"""Looks at the run for each that is published: on a disk, and in a bucket, where each is a request."""


async def tell_others(directory: Path, number: int, view: "View") -> None:
    """Publish a look at the run if it is time. `number`: of the look."""
    if not is_bucket(directory):
        if number % EVERY == 0:
            publish(directory, view.published())
    elif number % PUT_EVERY == 0:
        await asyncio.to_thread(publish, directory, view.published())


# What a call of `run` has taken of this machine's processors, noted for `plan`: how many processes are of use depends
# on it. It is an event of the run, and nothing else depends on it.

CPU_KIND = "cpu"
"""Of the event: `seconds` of all processes, `requests` that were answered meanwhile."""


@contextmanager
def noted(session: "Session") -> Iterator[None]:
    """While the lanes play; worker processes that have ended count too. Nothing is noted where this process has also
    played policies: nobody knows which part of the time was theirs."""
    before = _taken_s()
    yield
    requests = _requests(session.jobs)
    if requests and not any(job.lane is None and job.context.steps for job in session.jobs):
        session.store.event(CPU_KIND, seconds=round(_taken_s() - before, 3), requests=requests)


def _requests(jobs: Sequence["LaneJob"]) -> int:
    return sum(job.lane.stats().requests for job in jobs if job.lane is not None)


def _taken_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
