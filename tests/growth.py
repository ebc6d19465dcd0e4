"""Whether work grows with its input and not with its square, whatever the machine and whatever else it does.

Bytes are not operations, and parsers count neither: so CPU time of this thread is compared with itself, the least of
several runs at each size. Four times the input may take up to `MOST` times as long; a square takes 16 times, and the
times of a busy machine differ by less than that. What takes less than `FLOOR_S` proves nothing and is made larger.
"""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")

MOST = 9.0
FLOOR_S = 0.004
RUNS = 3
ATTEMPTS = 4
"""A ratio that is too high is measured again: what else the machine does is not high each time."""
FIRST = 2**11
LAST = 2**19
ENOUGH_S = 0.06
"""Growth shows clearly; a larger input would only take longer."""


def seconds(work: Callable[[Input], object], given: Input) -> float:
    """The least CPU time that the work takes."""
    least = float("inf")
    for _ in range(RUNS):
        began = time.thread_time()
        work(given)
        least = min(least, time.thread_time() - began)
    return least


def assert_linear(make: Callable[[int], Input], work: Callable[[Input], object], *, last: int = LAST) -> None:
    """Assert that the work on `make(n)` grows with n. `make` gives something about n bytes long."""
    gc.collect()
    gc.disable()  # a collection looks at the whole process
    try:
        work(make(FIRST))  # what is done once is not measured
        size = FIRST
        while size < last and seconds(work, make(size)) < ENOUGH_S / 4:
            size *= 2
        size = min(size, last // 4)
        small, large = make(size), make(4 * size)
        for _ in range(ATTEMPTS):
            after, before = seconds(work, large), seconds(work, small)
            if after < FLOOR_S or after < MOST * before:
                return
        raise AssertionError(f"{size} bytes took {before:.4f} CPU s, four times as many {after:.4f}")
    finally:
        gc.enable()
