"""What happens to the workers of one life of a run, and to the calls by which they and their coordinator speak."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evalkit.machines.spread import MachineTimes
from evalkit.seeds import Stream

PARTS = ("broken_calls", "late_calls", "called_dead", "cut_off", "worker_dies", "zombie", "comes_late")
"""What may befall workers: a call breaks off, heard or not; one takes long; Ray takes an actor for dead that lives; for
a while nothing comes through to a worker; its process dies; it stands still, as a rule for longer than it may; the next
coordinator comes late, as a rule when those of the one before have ended themselves."""
EVERY = 12
"""Of so many seeds one is played by workers."""
DISTURBED = 3
"""Processes for each worker that something befalls; those after them are left in peace."""
TIMES = (
    MachineTimes(),
    MachineTimes(share_s=15.0, silent_s=60.0, orphan_s=120.0),
    MachineTimes(share_s=5.0, silent_s=12.0, orphan_s=30.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """One worker's process."""

    begins_s: float
    """After its actor was made."""
    die_turn: int | None = None
    """The turn of its loop at which it dies."""
    die_sent: int | None = None
    """The requests after which it dies, before the last is answered."""
    stopped: Mapping[int, float] = field(default_factory=dict)
    """Seconds for which it stands still, by turn of its loop."""
    stopped_sent: tuple[int, float] | None = None
    """The requests after which it stands still, before the last is answered, and for how many seconds."""
    cut_off: tuple[float, float] | None = None
    """From when to when nothing comes through to it, s since its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """What becomes of calls: probabilities."""

    broken: float = 0.0
    late: float = 0.0
    called_dead: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrewPlan:
    """The workers of one coordinator."""

    workers: int
    processes: tuple[WorkerPlan, ...]
    """In the order in which they begin; the last plan is that of all that follow."""
    calls: CallPlan
    times: MachineTimes
    late_s: float = 0.0
    """After the end of the coordinator before."""


def peaceful(seed: int) -> CrewPlan:
    """Workers that nothing befalls."""
    return CrewPlan(
        workers=2 + Stream(seed, "crew").below(2),
        processes=(WorkerPlan(begins_s=0.1),),
        calls=CallPlan(),
        times=MachineTimes(),
    )


def crew_plan(active: frozenset[str], seed: int, number: int) -> CrewPlan:
    """The workers of a seed's life of this number."""
    draws = Stream(seed, "life", number, "crew")
    share = (0.003, 0.02, 0.1)[draws.below(3)]
    workers = 2 + draws.below(2)
    return CrewPlan(
        workers=workers,
        processes=(
            *(_worker(active, Stream(seed, "life", number, "worker", one)) for one in range(DISTURBED * workers)),
            WorkerPlan(begins_s=1.0),
        ),
        calls=CallPlan(
            broken=share if "broken_calls" in active else 0.0,
            late=share if "late_calls" in active else 0.0,
            called_dead=share / 10 if "called_dead" in active else 0.0,
        ),
        times=TIMES[draws.below(len(TIMES))],
        late_s=10 ** (3 * draws.uniform()) if "comes_late" in active else 0.0,
    )


def worse(plan: CrewPlan, always: frozenset[str], draws: Stream) -> CrewPlan:
    """The same, with what each seed is to have befalling all workers that are not left in peace: each stands still when
    it has written something, until it is sealed; or half of them die with requests in flight."""
    processes = list(plan.processes)
    for number, one in enumerate(processes[:-1]):
        sent, seconds, dies = draws.below(6), plan.times.silent_s * (1 + 9 * draws.uniform()), draws.uniform() < 0.5
        if "zombie" in always:
            processes[number] = WorkerPlan(begins_s=one.begins_s, stopped_sent=(2 + sent, seconds))
        elif "worker_dies" in always and dies:
            processes[number] = WorkerPlan(begins_s=one.begins_s, die_sent=1 + sent // 2)
    return replace(plan, processes=tuple(processes))


def _worker(active: frozenset[str], draws: Stream) -> WorkerPlan:
    begins_s, die, stop, cut = (draws.uniform() for _ in range(4))
    turns = [int(3000 ** draws.uniform()) for _ in range(2)]
    spans = [10 ** (2.7 * draws.uniform()) for _ in range(3)]
    return WorkerPlan(
        begins_s=5 * begins_s**2,
        die_turn=turns[0] if "worker_dies" in active and die < 0.25 else None,
        die_sent=1 + turns[0] % 8 if "worker_dies" in active and 0.25 <= die < 0.5 else None,
        stopped={turns[1]: spans[0]} if "zombie" in active and stop < 0.3 else {},
        stopped_sent=(1 + turns[1] % 8, spans[0]) if "zombie" in active and 0.3 <= stop < 0.6 else None,
        cut_off=(spans[1] / 5, spans[1] / 5 + spans[2]) if "cut_off" in active and cut < 0.4 else None,
    )
