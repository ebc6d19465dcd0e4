"""Whether work grows with its input and not with its square, whatever the machine and whatever else it does.

Bytes are not operations, and parsers count neither: so CPU time of this thread is compared with itself, the least of
several runs at each size. `WIDER` times the input may take up to `MOST` times as long. A square would take 4,096 times.
What no longer fits the caches, and memory that is fetched afresh, were seen to make each byte 6 times as dear on a busy
machine, but not 10 times. What takes less than `FLOOR_S` proves nothing and is made larger.
"""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")

WIDER = 64
MOST = 640.0
CLEAR = 2.0 * WIDER
"""Up to here nobody doubts that it is linear. What takes longer is tried with a larger input too: a square whose steps
cost little beside what calls them shows only there."""
FLOOR_S = 0.02
RUNS = 3
SPAN_S = 0.005
"""What is short is run for at least this long: three runs of 0.1 ms were all seen disturbed by the same burst, and a
square passed for a line."""
APART_S = 0.01
ATTEMPTS = 4
"""A ratio that is too high is measured again: what else the machine does is not high each time."""
FIRST = 2**13
LAST = 2**19
ENOUGH_S = 0.04
"""Growth shows clearly; a larger input would only take longer."""


def seconds(work: Callable[[Input], object], given: Input, runs: int = 1, span_s: float = 0.0) -> float:
    """The least CPU time that the work takes in so many runs, and in as many more as fill the span."""
    least, spent = float("inf"), 0.0
    while runs > 0 or spent < span_s:
        began = time.thread_time()
        work(given)
        took = time.thread_time() - began
        least, spent, runs = min(least, took), spent + took, runs - 1
    return least


def assert_linear(
    make: Callable[[int], Input],
    work: Callable[[Input], object],
    *,
    last: int = LAST,
    enough_s: float = ENOUGH_S,
    what: str = "",
) -> None:
    """Assert that the work on `make(n)` grows with n. `make` gives something about n bytes long, `what` says what."""
    gc.collect(0)
    gc.disable()  # a collection looks at the whole process
    try:
        work(make(FIRST))  # what is done once is not measured
        size, large, after = _measured(make, work, last, enough_s)
        while True:
            before = _less_than_a_square(make, work, size, large, after, what)
            if size >= last or after < max(FLOOR_S, CLEAR * before):
                return
            size *= 4
            large = make(size)
            after = seconds(work, large)
    finally:
        gc.enable()


def _less_than_a_square(
    make: Callable[[int], Input],
    work: Callable[[Input], object],
    size: int,
    large: Input,
    after: float,
    what: str,
) -> float:
    """The least time of a `WIDER`th of the input; raises AssertionError if all of it took `MOST` times as long."""
    small, before = make(size // WIDER), 0.0
    for again in range(ATTEMPTS):
        if again:
            after = seconds(work, large, RUNS)
        # One run that is short enough settles it: the least of several would be no longer.
        if after < FLOOR_S or after < MOST * (before := _undisturbed(work, small, after / MOST)):
            return before
    raise AssertionError(f"{what}: {size} bytes took {after:.4f} CPU s, {size // WIDER} of them {before:.4f}")


def _undisturbed(work: Callable[[Input], object], small: Input, least: float) -> float:
    """The least time of the small input. One above `least` would pass for linear: it is measured once more, a moment
    later, since a burst of other work may have disturbed all runs of the first time."""
    before = seconds(work, small, RUNS, SPAN_S)
    if before <= least:
        return before
    time.sleep(APART_S)
    return min(before, seconds(work, small, RUNS, SPAN_S))


def _measured(
    make: Callable[[int], Input], work: Callable[[Input], object], last: int, enough_s: float
) -> tuple[int, Input, float]:
    """The first size whose least time is enough, or `last`; its input and its time. What one run says is enough is run
    again."""
    size = FIRST
    while size < last:
        given = make(size)
        took = seconds(work, given)
        if took >= enough_s and (took := min(took, seconds(work, given, RUNS - 1))) >= enough_s:
            return size, given, took
        size *= 4
    given = make(size)
    return size, given, seconds(work, given)
