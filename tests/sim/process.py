"""The processes of one life: as a rule one, now and then a second (`taking_over.py`), or workers (`crew.py`)."""

from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests.sim.loop import SimLoop
from tests.sim.players import Place

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Process:
    """One of them."""

    number: int
    """Of all processes of a seed."""
    loop: SimLoop
    turn: int = 0
    sent: int = 0
    """Requests."""
    playing: Counter[str] = field(default_factory=Counter)
    """Episodes that have begun in it and neither ended nor been left, by lane."""
    knows: set[tuple[str, int]] = field(default_factory=set)
    """Replies, by episode and step, that were durable when its journal began, or that it has made durable itself."""
    knows_asks: set[tuple[str, Place]] = field(default_factory=set)
    """The same of the asks of agents that are code."""
    opened: bool = False
    """Whether its journal has begun."""
    fenced: float | None = None
    """When it met another's object in its own journal, in the loop's time."""
    journal: str = ""
    """The last that it has begun."""
    sealed: dict[str, int] = field(default_factory=dict)
    """By journal of its own that another process has ended: the number of that."""
    of: int | None = None
    """Of a worker: the number of the coordinator that has made its actor."""
    cut_off: tuple[float, float] | None = None
    """From when to when nothing comes through to it."""
    dead: bool = False

    @property
    def pid(self) -> int:
        """What the system calls it."""
        return 1000 + self.number

    @property
    def sealed_by(self) -> int | None:
        """The number of the process that has ended its journal."""
        return self.sealed.get(self.journal)

    def learns(self, steps: Mapping[str, set[int]], asks: Mapping[str, set[Place]]) -> None:
        """It reads all of the log that is durable now."""
        self.opened = True
        self.knows.update((episode, step) for episode, held in steps.items() for step in held)
        self.knows_asks.update((episode, place) for episode, places in asks.items() for place in places)


class Second(Generic[Result]):
    """A process that lives while another one's loop is running."""

    def __init__(self, process: Process, main: Coroutine[Any, Any, Result]) -> None:
        self.process = process
        self._task = process.loop.create_task(main)
        self._seen: BaseException | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    @property
    def result(self) -> Result:
        """What it has ended with."""
        return self._task.result()

    @property
    def flaw(self) -> BaseException | None:
        """What left it, where it has ended with that."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    def close(self) -> None:
        """Take away what is left of it. Nothing of it reaches the outside if the disk and the network are dead."""
        self.process.loop.unwind()
        assert self.over
        self._seen = self.flaw  # else the loop complains that nobody has asked
        self.process.loop.close()
