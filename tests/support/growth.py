"""Whether work grows with its input and not with its square, counted (`work.py`): no clock is looked at.

`WIDER` times the input may take `MOST` times the work, and `BESIDE` units more. A square would take `WIDER**2` times.
"""

from collections.abc import Callable
from typing import TypeVar

from tests.support.work import counting, modules_reached

Input = TypeVar("Input")

WIDER = 8
MOST = 1.5 * WIDER
BESIDE = 1_000
"""What is done once, and only where the input is long."""
FIRST = 2**11
LAST = 2**14
"""A long input may be read in another way than a short one, which costs more a byte. What seems no line up to `FIRST`
is tried again between larger ones."""


def assert_linear(
    make: Callable[[int], Input], work: Callable[[Input], object], *, last: int = LAST, what: str = ""
) -> None:
    """Assert that the work on `make(n)` grows with n. `make` gives something about n bytes long, `what` says what."""
    size = min(FIRST, last)
    reached = modules_reached(lambda: work(make(size // WIDER)))  # what is done once is done now
    while True:
        before, after = (units(work, make(n), reached) for n in (size // WIDER, size))
        assert before, f"{what}: nothing was counted"
        if after <= MOST * before + BESIDE:
            return
        if size >= last:
            raise AssertionError(f"{what}: {size} bytes took {after} units, {size // WIDER} of them {before}")
        size = min(4 * size, last)


def units(work: Callable[[Input], object], given: Input, modules: set[str]) -> int:
    """The work on an input; `modules`: where it begins."""
    with counting() as counted:
        for module in sorted(modules):
            counted.look_into(module)
        work(given)
    return counted.units
