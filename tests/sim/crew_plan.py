"""What happens to the workers of one life of a run, and to what they and their coordinator say to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evalkit.seeds import Stream
from evalkit.spec.model import MachineTimes

PARTS = ("lost_messages", "late_messages", "broken_connections", "cut_off", "worker_dies", "zombie", "told_to_leave")
"""What may befall workers: a message does not arrive, nor does any after it on its connection; one arrives when its
sender has given up waiting, and has said the same on another connection; a connection breaks off; for a while nothing
comes through to a worker; its process dies; it stands still, as a rule for longer than it may; it is told to leave."""
EVERY = 12
"""Of so many seeds one is played by workers."""
INCARNATIONS = 3
"""Processes of a slot that something befalls; those after them are left in peace."""
TIMES = (
    MachineTimes(),
    MachineTimes(share_s=15.0, silent_s=60.0, orphan_s=120.0),
    MachineTimes(share_s=5.0, silent_s=12.0, orphan_s=30.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """One worker's process."""

    begins_s: float
    """After its coordinator has begun, or after the end of the process whose place it takes."""
    die_turn: int | None = None
    """The turn of its loop at which it dies."""
    stopped: Mapping[int, float] = field(default_factory=dict)
    """Seconds for which it stands still, by turn of its loop."""
    leave_turn: int | None = None
    """When whoever has started it tells it to leave."""
    cut_off: tuple[float, float] | None = None
    """From when to when nothing comes through to it, s since its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePlan:
    """What becomes of messages: probabilities."""

    lost: float = 0.0
    late: float = 0.0
    broken: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrewPlan:
    """The workers of one coordinator."""

    slots: tuple[tuple[WorkerPlan, ...], ...]
    """By slot: one process after another; the last plan is that of all that follow."""
    wires: WirePlan
    times: MachineTimes


def peaceful(seed: int) -> CrewPlan:
    """Workers that nothing befalls."""
    count = 2 + Stream(seed, "crew").below(2)
    return CrewPlan(
        slots=tuple((WorkerPlan(begins_s=0.1 * (1 + slot)),) for slot in range(count)),
        wires=WirePlan(),
        times=MachineTimes(),
    )


def crew_plan(active: frozenset[str], seed: int, number: int) -> CrewPlan:
    """The workers of a seed's life of this number."""
    draws = Stream(seed, "life", number, "crew")
    share = (0.003, 0.02, 0.1)[draws.below(3)]
    count = 2 + draws.below(2)
    return CrewPlan(
        slots=tuple(
            (
                *(_worker(active, Stream(seed, "life", number, "worker", slot, one)) for one in range(INCARNATIONS)),
                WorkerPlan(begins_s=1.0),
            )
            for slot in range(count)
        ),
        wires=WirePlan(
            lost=share if "lost_messages" in active else 0.0,
            late=share if "late_messages" in active else 0.0,
            broken=share if "broken_connections" in active else 0.0,
        ),
        times=TIMES[draws.below(len(TIMES))],
    )


def _worker(active: frozenset[str], draws: Stream) -> WorkerPlan:
    begins_s, die, stop, leave, cut = (draws.uniform() for _ in range(5))
    turns = [int(3000 ** draws.uniform()) for _ in range(4)]
    spans = [10 ** (2.7 * draws.uniform()) for _ in range(3)]
    return WorkerPlan(
        begins_s=5 * begins_s**2,
        die_turn=turns[0] if "worker_dies" in active and die < 0.5 else None,
        stopped={turns[1]: spans[0]} if "zombie" in active and stop < 0.6 else {},
        leave_turn=turns[2] if "told_to_leave" in active and leave < 0.3 else None,
        cut_off=(spans[1] / 5, spans[1] / 5 + spans[2]) if "cut_off" in active and cut < 0.4 else None,
    )
