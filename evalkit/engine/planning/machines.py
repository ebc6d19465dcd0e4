"""How many processes a sweep's limits keep busy: the upper end, while all lanes are full. Arithmetic only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CPU_A_REQUEST_S = 0.0005
"""CPU seconds that one process takes for a request: engine, HTTP and log, as `python -m bench.throughput` shows on a
slow and busy core (0.51 ms). An environment's own work adds 0.04 to 0.2 ms (docs/doors.md); a quick core takes less."""
BUSY = 0.8
"""A process that is busier answers late, and takes replies for slow."""
LEAST_REQUESTS = 1000
"""A run's own CPU time counts once it comes from so many requests: starting takes a second or two."""


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
