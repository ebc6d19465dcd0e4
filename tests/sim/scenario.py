"""What happens in one seed, drawn from it: the sweep, and for each life of the run its weather, its disk and its end.

Each disturbance can be left out by name without a change to the others, which is how a failing seed shrinks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from evalkit.seeds import Stream
from tests.sim.crew_plan import EVERY, PARTS, CrewPlan, crew_plan, worse
from tests.sim.disk import Plan
from tests.sim.network import FATES, Weather
from tests.sim.sweeps import AGENTS, ASKING, MIXED, SCARCE, SERVED, SERVERS, TIGHT, WIDE

LIVES = 5
"""Disturbed lives at most; undisturbed ones follow until the run is complete."""

OFTEN = 0.4
"""Of how many requests something becomes that each seed is to have."""

DISK = ("EIO", "ENOSPC", "EROFS")
STAYS = ("stays_ENOSPC", "stays_EROFS")
HARM = ("files_gone", "flips")
GONE = ""
"""The place of one that is no more: it is still drawn, so that seeds stay what they were, and those that once found a
broken promise still look for it."""
_DRAWN = (
    *FATES,
    "stalls",
    "outage",
    *DISK,
    "slow_disk",
    "die_disk",
    "die_turn",
    "power",
    "stopped",
    "clock",
    "twice",
    "interrupt",
    "spread",
    "long_bodies",
    "overbill",
    "clock_jump",
    *STAYS,
    *HARM,
    GONE,
    "tight",
    "taken_over",
    "extended",
    "sync_fails",
    "altered",
    "at_once",
    "dies_mending",
)
DISTURBANCES = tuple(name for name in _DRAWN if name != GONE)
"""Everything that may go wrong, by name."""
AIMED = (
    *("scarce", "dies_naming", "dies_compacting", "agents", "dies_crowded", "asking", "servers", "tiers"),
    *("workers", *PARTS),
)
"""What comes about only where it is asked for: requests that wait for money which others may bring back; a process
that dies between naming a folder, a manifest, a suite or the end of a journal and syncing the folder of that name, and
a loss of power in the life that builds on it; a process that dies in the midst of a compacted file; agents that are
code in place of models; a process that dies with all the requests in flight that its agent may have there; a sweep
that asks something, and lets go agents that no open question needs; a model with several servers, of which one and
then another is away for a while; requests that go by a cheap tier as time allows; a run that workers play, and what
befalls these (`crew_plan.py`). Of all seeds one in `EVERY` has workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """What a disk does to files that had lasted."""

    gone: int
    """So many of the last files of one folder are gone; 0: one bit of one file is another."""
    undone: bool
    """Whether all is put back when the readers have been asked."""
    place: tuple[int, int]
    """Seed and life: key what is drawn when it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """A process is stopped, another takes its run over although the lock should forbid it, and then both go on."""

    turn: int | None
    """Of the loop, at which it is stopped; None: it is at an operation of the disk."""
    operation: int
    seconds: float
    """For which it is stopped."""
    ahead: int
    """Turns of the other's loop before it goes on."""
    unlocked: bool
    """Whether the file system grants every lock; if not, it locks no directories, and the file `lock` is deleted."""
    at_once: bool = False
    """Whether it is stopped where its journal has a name and nobody sees it yet, and nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process."""

    weather: Weather
    plan: Plan
    die_turn: int | None
    """The turn of the loop at which it dies."""
    power: bool
    """Whether power is lost where it dies; if not, what was written is there."""
    stopped: Mapping[int, float]
    """Seconds for which it is stopped, by turn of the loop."""
    clock_s: float
    """How far the wall clock jumps before it."""
    twice_turn: int | None
    """When a second process is started beside it."""
    interrupt_turn: int | None
    jumps: Mapping[int, float]
    """How far the wall clock jumps while it lives, s, by turn of the loop."""
    harm: Harm | None
    """What becomes of its files when it has ended."""
    taken_over: TakenOver | None = None
    altered: bool = False
    """Whether somebody tries, when it has ended, to go on from a run that was altered."""
    dies_crowded: bool = False
    """Whether it dies as soon as an agent that is code has as many requests in flight as it may."""
    dies_mending: int | None = None
    """The operation of the disk at which it dies if it repairs the log."""
    crew: CrewPlan | None = None
    """The workers that play for it; None: it plays alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A seed, read."""

    seed: int
    sweep: int
    """Which of `world.SWEEPS`."""
    budget_share: float | None
    """Of what the whole sweep costs; None: no budget."""
    width: int
    lives: tuple[Life, ...]
    extended: int | None = None
    """The life from which on the sweep asks for more; None: it never does."""
    without: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    """Disturbances that it has whatever the seed says."""

    @property
    def active(self) -> frozenset[str]:
        """The disturbances that this seed has."""
        return disturbances(self.seed, self.always) - self.without

    @property
    def overbilled(self) -> bool:
        """Whether its providers bill more than they report."""
        return "overbill" in self.active


def disturbances(seed: int, always: frozenset[str]) -> frozenset[str]:
    """Which kinds a seed has: a third of them, so that most seeds are about few things; and what it is to have."""
    draws = Stream(seed, "disturbances")
    share = (0.1, 0.3, 0.6)[draws.below(3)]
    found = {name for name in _DRAWN if draws.uniform() < share} - {GONE} | always
    if always & set(PARTS) or seed % EVERY == EVERY - 2:
        found.add("workers")
    if {"agents", "dies_crowded"} & found:
        found.discard("workers")  # agents that are code are played by one process alone
    if "workers" in found:
        found |= {part for part in PARTS if Stream(seed, "workers", part).uniform() < 0.5}
    return frozenset(found)


def scenario(
    seed: int,
    sweeps: int,
    without: frozenset[str] = frozenset(),
    lives: int = LIVES,
    *,
    always: frozenset[str] = frozenset(),
) -> Scenario:
    """The seed's scenario, less some disturbances, more some others, with at most so many disturbed lives."""
    draws = Stream(seed, "scenario")
    sweep, width = draws.below(sweeps), 1 + draws.below(6)
    budget = (None, None, 8.0, 3.0, 1.5, 0.9)[draws.below(6)]
    count = 1 + draws.below(LIVES)
    active = disturbances(seed, always) - without
    if "dies_naming" in active:
        count = LIVES
    if "tight" in active:
        sweep, width = TIGHT, max(width, 3)
    if "scarce" in active:
        sweep, width, budget = SCARCE, 6, 1.2 + 0.3 * Stream(seed, "scarce").uniform()
    if "agents" in active:
        sweep = AGENTS[Stream(seed, "agents").below(len(AGENTS))]
    if "asking" in active:
        active -= {"extended"}  # a run that asks something lets no suites join
        sweep = ASKING[Stream(seed, "asking").below(len(ASKING))]
    if "servers" in active:
        sweep, width = SERVED[Stream(seed, "servers").below(len(SERVED))], max(width, 3)
    if "tiers" in active:
        sweep, width = MIXED[Stream(seed, "tiers").below(len(MIXED))], max(width, 3)
    if "dies_crowded" in active:
        sweep, width, budget = WIDE[seed % len(WIDE)], 8, None  # a lane has no more in flight than its width
    return Scenario(
        seed=seed,
        sweep=sweep,
        budget_share=budget,
        width=width,
        extended=Stream(seed, "extended").below(count + 1) if "extended" in active else None,
        lives=tuple(_worse(_life(seed, number, active), always, (seed, number)) for number in range(min(count, lives))),
        without=without,
        always=always,
    )


def undisturbed() -> Life:
    """A life in which nothing goes wrong."""
    return Life(
        weather=Weather(),
        plan=Plan(),
        die_turn=None,
        power=False,
        stopped={},
        clock_s=0.0,
        twice_turn=None,
        interrupt_turn=None,
        jumps={},
        harm=None,
    )


def _life(seed: int, number: int, active: frozenset[str]) -> Life:
    def draws(name: str) -> Stream:
        return Stream(seed, "life", number, name)

    calm = undisturbed()
    life = replace(calm, weather=_weather(active, draws("weather")), plan=_plan(active, draws("disk")))
    if "die_disk" in active:
        life.plan.die_at = _early(draws("die_disk"), 150)
    if "sync_fails" in active:
        life.plan.sync_fails_at = _early(draws("sync_fails"), 30)
    if "die_turn" in active:
        life = replace(life, die_turn=_early(draws("die_turn"), 2000))
    if "power" in active:
        life = replace(life, power=draws("power").uniform() < 0.7)
    if "servers" in active:
        life.weather.away = _away(draws("servers"), life.weather.latency_s[1])
    if "stopped" in active:
        stream = draws("stopped")
        life = replace(life, stopped={stream.below(800): 10 ** (3 * stream.uniform()) for _ in range(2)})
    if "clock" in active:
        stream = draws("clock")
        life = replace(life, clock_s=(stream.uniform() - 0.5) * 2 * 86_400)
    if "twice" in active:
        life = replace(life, twice_turn=draws("twice").below(400))
    if "interrupt" in active and draws("interrupt").uniform() < 0.6:
        life = replace(life, interrupt_turn=_early(draws("interrupt at"), 1000))
    if "clock_jump" in active:
        stream = draws("clock_jump")
        life = replace(life, jumps={stream.below(800): (stream.uniform() - 0.5) * 2 * 86_400})
    if "taken_over" in active:
        life = replace(life, taken_over=_taken_over(draws("taken_over")), stopped={}, twice_turn=None)
    if "workers" in active and draws("workers").uniform() < 0.8:
        life = replace(life, crew=crew_plan(active, seed, number))
    if "altered" in active:
        life = replace(life, altered=draws("altered").uniform() < 0.4)
    if "dies_mending" in active:
        life = replace(life, dies_mending=draws("dies_mending").below(60))
    if "at_once" in active and draws("at_once").uniform() < 0.5:
        how = replace(_taken_over(draws("at once how")), turn=None, at_once=True)
        life = replace(life, taken_over=how, stopped={}, twice_turn=None)
    return replace(life, harm=_harm(active, draws("harm"), (seed, number)))


def _worse(life: Life, always: frozenset[str], place: tuple[int, int]) -> Life:
    """The same, with what each seed is to have coming about often: to look for what is there against it."""
    for kind in always & FATES.keys():
        life.weather.fates[kind] = max(OFTEN / len(always & FATES.keys()), life.weather.fates.get(kind, 0.0))
    for kind in always & set(DISK):
        life.plan.errors = {Stream(*place, kind).below(120): kind}
    if life.crew is not None:
        life = replace(life, crew=worse(life.crew, always, Stream(*place, "worse crew")))
    if "dies_compacting" in always:
        life.plan.die_at, life.plan.dies_compacting = None, Stream(*place, "dies_compacting").below(9)
    if "dies_naming" in always:
        life = _names(life, place)
    if "dies_crowded" in always:
        life = replace(undisturbed(), dies_crowded=True)
    if "long_bodies" in always:
        life.weather.long, life.weather.ways = 1.0, life.weather.ways[:1]
    return life


def _away(draws: Stream, reply_s: float) -> dict[str, list[tuple[float, float]]]:
    """When two of the servers are away: one after the other, or both for a while. `reply_s`: the longest reply."""
    first, at = draws.below(len(SERVERS)), reply_s * draws.uniform()
    away = {}
    for number in (first, first + 1):
        ends = at + reply_s * 10 ** (1.5 * draws.uniform())
        away[SERVERS[number % len(SERVERS)]] = [(at, ends)]
        at += (ends - at) * 1.5 * draws.uniform()
    return away


def _names(life: Life, place: tuple[int, int]) -> Life:
    """The same, less what may end it otherwise: every second one dies where it has named something, and the power of
    the others fails early."""
    draws = Stream(*place, "dies_naming")
    builds = (place[0] + place[1]) % 2
    life.plan.die_at, life.plan.errors, life.plan.refuses_from = None, {}, None
    life.plan.dies_naming = None if builds else draws.below(3 if place[1] else 12)
    die_turn = 20 + draws.below(60) if builds else None
    return replace(life, die_turn=die_turn, power=bool(builds), interrupt_turn=None, taken_over=None, harm=None)


def _taken_over(draws: Stream) -> TakenOver:
    return TakenOver(
        turn=_early(draws, 400) if draws.uniform() < 0.5 else None,
        operation=_early(draws, 60),
        seconds=10 ** (3.5 * draws.uniform()),
        ahead=_early(draws, 2000),
        unlocked=draws.uniform() < 0.7,
    )


def _harm(active: frozenset[str], draws: Stream, place: tuple[int, int]) -> Harm | None:
    kinds = [kind for kind in HARM if kind in active]
    if not kinds or draws.uniform() < 0.6:
        return None
    gone = 1 + draws.below(4) if kinds[draws.below(len(kinds))] == "files_gone" else 0
    return Harm(gone=gone, undone=draws.uniform() < 0.4, place=place)


def _weather(active: frozenset[str], draws: Stream) -> Weather:
    kinds = [kind for kind in FATES if kind in active]
    share = (0.02, 0.1, 0.3)[draws.below(3)]
    weather = Weather(fates={kind: share / len(kinds) for kind in kinds})
    least = 10 ** (-2 + 2 * draws.uniform())
    weather.latency_s = least, least * (1 + 10 * draws.uniform())
    if "stalls" in active:
        weather.stalls = 0.02
    weather.spread = "spread" in active
    if "long_bodies" in active:
        weather.long = 0.3
    if "outage" in active:
        begin = 20 * draws.uniform()
        weather.outages = [(begin, begin + 10 ** (3 * draws.uniform()))]
    return weather


def _plan(active: frozenset[str], draws: Stream) -> Plan:
    plan = Plan()
    for kind in DISK:
        if kind in active and draws.uniform() < 0.4:
            plan.errors[draws.below(120)] = kind
    for name in STAYS:
        if name in active and draws.uniform() < 0.3:
            plan.refuses_from = draws.below(100), name.removeprefix("stays_")
    if "slow_disk" in active:
        plan.slow_s = 10 ** (-3 + 3 * draws.uniform())
    return plan


def _early(draws: Stream, most: int) -> int:
    """Below `most`, small numbers as likely as large ones of the next order."""
    return int(most ** draws.uniform()) - 1 + draws.below(3)
