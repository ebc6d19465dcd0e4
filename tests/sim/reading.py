"""What reading bodies costs: the work of it, by length, compared with itself.

The engine hands long bodies to a thread (`client/streaming.py`). Here they are read at once, so that a seed stays the
same each time. The longest and the shortest are read once more, counted. `tests/support/work.py` says what is counted.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from tests.support import growth
from tests.support.work import modules_reached

Result = TypeVar("Result")

WIDER = 16
"""Bodies that differ less are not compared."""
MOST_PER_BYTE = 4
"""A byte of the longest may take so many times the work of one of the shortest: a long body is read in another way, in
which a byte takes twice the work. Of a square it would take `WIDER` times as much at least."""


class Reading:
    """The bodies that one life has read."""

    def __init__(self) -> None:
        self._read: list[tuple[int, Callable[[], object]]] = []

    async def offloaded(self, work: Callable[[], Result], size: int) -> Result:
        """Stands in for `client.offloaded.offloaded`."""
        self._read.append((size, work))
        return work()

    def flaw(self, ways: Mapping[int, str]) -> str:
        """Which way of being long makes a body dear to read; empty if none. `ways`: by length of the body."""
        for way in dict.fromkeys(ways.values()):
            read = sorted(((size, work) for size, work in self._read if ways.get(size) == way), key=_size)
            if len(read) < 2 or read[-1][0] < WIDER * read[0][0]:
                continue
            (small, before), (large, after) = read[0], read[-1]
            most = MOST_PER_BYTE * large / small * _units(before) + growth.BESIDE
            if (took := _units(after)) > most:
                return f"{large} bytes of {way} took {took} units to read, {small} of them at most {most:.0f}"
        return ""


def _size(one: tuple[int, Callable[[], object]]) -> int:
    return one[0]


def _call(work: Callable[[], object]) -> object:
    return work()


def _units(work: Callable[[], object]) -> int:
    return growth.units(_call, work, modules_reached(lambda: _call(work)))
