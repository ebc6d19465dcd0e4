"""How the benchmarks take CPU time and show it."""

import time
from collections.abc import Callable

REPEATS = 7


def best(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of several runs, after one that compiles."""
    work()
    found = []
    for _ in range(REPEATS):
        began = time.process_time_ns()
        work()
        found.append((time.process_time_ns() - began) * 1e-9)
    return min(found)


def span(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
