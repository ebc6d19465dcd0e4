"""How many processes a sweep's limits keep busy, and what a bucket takes for its requests. Arithmetic only.

Both are upper ends: that many processes are of use while all lanes are full, and a store is sent that much while
replies come without a break.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.engine.publishing import PUT_EVERY, SHOW_EVERY_S
from evalkit.store.bucket import BEAT_S
from evalkit.store.writing.pace import COMMITS, LINES_S, PUT_LEAST_S, PUT_MOST_S, SHARE

CPU_A_REQUEST_S = 0.0005
"""CPU seconds that one process takes for a request: engine, HTTP and log, as `python -m bench.throughput` shows on a
slow and busy core (0.51 ms). An environment's own work adds 0.04 to 0.2 ms (docs/doors.md); a quick core takes less."""
BUSY = 0.8
"""A process that is busier answers late, and takes replies for slow."""
LEAST_REQUESTS = 1000
"""A run's own CPU time counts once it comes from so many requests: starting takes a second or two."""
PUT_S = 0.1
"""Assumed seconds of one put. S3 itself takes 20 to 100 ms; a longer one makes puts rarer."""
USD_PER_MILLION_PUTS = 5.0
"""Assumed: the list price of Amazon S3's standard class in the first regions. Others cost 2.50 to 10 USD."""
LIVE_S = PUT_EVERY * SHOW_EVERY_S
"""How often a run in a bucket says how far it is."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan:
    """Processes that the limits keep busy."""

    useful: int
    """More would wait for the limits."""
    planned: int
    """As the sweep says."""
    requests_per_s: float
    """That limits, width and reply times allow, all lanes together."""
    cpu_s: float
    """Of one request."""
    measured: bool
    """Whether that is the run's own; else it is supposed."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "useful": self.useful,
            "planned": self.planned,
            "requests_per_s": self.requests_per_s,
            "cpu_ms_per_request": 1000 * self.cpu_s,
            "cpu_is": "measured" if self.measured else "supposed",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Requests that a run in a bucket sends to it."""

    puts_per_day: float
    commit_s: float
    """From one commit of a worker to its next."""
    usd_per_million_puts: float = USD_PER_MILLION_PUTS

    @property
    def usd_per_day(self) -> float:
        """What the puts cost."""
        return self.puts_per_day * self.usd_per_million_puts / 1e6

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "puts_per_day": round(self.puts_per_day),
            "seconds_between_commits": self.commit_s,
            "usd_per_day": self.usd_per_day,
            "assumed_usd_per_million_puts": self.usd_per_million_puts,
            "assumed_put_s": PUT_S,
        }


def workers_plan(
    rates: Mapping[str, float], shared: Sequence[tuple[Sequence[str], float]], planned: int, cpu_s: float | None
) -> WorkersPlan | None:
    """`rates`: by lane, requests a second that its own limits, width and reply time allow; `shared`: the same of limits
    that some of these lanes share, narrow ones first; `cpu_s`: of a request of the run; None: not known. None if no
    lane sends requests."""
    if not rates:
        return None
    allowed = dict(rates)
    for members, most in shared:
        together = sum(allowed[lane] for lane in members)
        for lane in members if together > most else ():
            allowed[lane] *= most / together
    each, total = cpu_s or CPU_A_REQUEST_S, sum(allowed.values())
    return WorkersPlan(
        useful=max(1, math.ceil(total * each / BUSY)),
        planned=planned,
        requests_per_s=total,
        cpu_s=each,
        measured=cpu_s is not None,
    )


def store_plan(reply_s: float, writers: int, rows_per_s: float) -> StorePlan:
    """`reply_s`: of the fastest lane; `writers`: processes that commit; `rows_per_s`: of all together."""
    wait_s = max(COMMITS * PUT_S, min(PUT_MOST_S, max(PUT_LEAST_S, SHARE * reply_s)))
    commit_s = max(wait_s, writers / rows_per_s)
    per_s = writers / commit_s + sum(1 / every for every in (BEAT_S, LIVE_S, LINES_S))
    return StorePlan(puts_per_day=DAY_S * per_s, commit_s=commit_s)
