"""What a call of `run` has taken of this machine's processors, noted for `plan`: how many processes are of use depends
on it. It is an event of the run, and nothing else depends on it.
"""

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `plan` reads the notes, and needs nothing of those who play
    from evalkit.engine.scheduler import LaneJob
    from evalkit.engine.session import Session

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
