"""What reading bodies costs: CPU time of this thread, by length, compared with itself.

The engine hands long bodies to a thread (`client/aside.py`). Here they are read at once, so that a seed stays the same
each time, and the time is taken. `tests/support/growth.py` says why ratios, and how generous.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tests.support import growth

Result = TypeVar("Result")

WIDER = 16
"""Bodies that differ less are not compared."""
MOST_PER_BYTE = growth.MOST / growth.WIDER
"""A byte of the longest may take so many times as long as one of the shortest; of a square it would take `WIDER` times
that at least."""


class Reading:
    """The bodies that one life has read."""

    def __init__(self) -> None:
        self._read: list[tuple[int, float, Callable[[], object]]] = []

    async def aside(self, work: Callable[[], Result], size: int) -> Result:
        """Stands in for `client.aside.aside`."""
        found: list[Result] = []
        self._read.append((size, growth.seconds(lambda _: found.append(work()), None), work))
        return found[0]

    def flaw(self, ways: Mapping[int, str]) -> str:
        """Which way of being long makes a body dear to read; empty if none. `ways`: by length of the body."""
        for way in dict.fromkeys(ways.values()):
            read = sorted(((size, took, work) for size, took, work in self._read if ways.get(size) == way), key=_size)
            if len(read) < 2 or read[-1][0] < WIDER * read[0][0] or read[-1][1] < growth.FLOOR_S:
                continue
            (small, _, before), (large, _, after) = read[0], read[-1]
            took = growth.seconds(_call, after, growth.RUNS)
            most = MOST_PER_BYTE * large / small * growth.seconds(_call, before, growth.RUNS)
            if took > max(growth.FLOOR_S, most):
                return f"{large} bytes of {way} took {took:.4f} CPU s to read, {small} of them at most {most:.4f}"
        return ""


def _size(one: tuple[int, float, Callable[[], object]]) -> int:
    return one[0]


def _call(work: Callable[[], object]) -> object:
    return work()
