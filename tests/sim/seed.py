"""One seed from beginning to end: disturbed lives, then undisturbed ones until the run is complete."""

import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.outcome import RunOutcome
from evalkit.frozen.manifests import is_run
from evalkit.money import PicoUsd
from evalkit.seeds import Stream
from tests.sim import altered, harm
from tests.sim.checks import Answers, Broken, answers_of
from tests.sim.commands import findings
from tests.sim.crew_plan import peaceful
from tests.sim.loop import Hung
from tests.sim.players import Asks, asks_of
from tests.sim.remembered import remembered
from tests.sim.scenario import Life, Scenario, undisturbed
from tests.sim.sweeps import extended, resolved
from tests.sim.world import World

MOST_CALM = 12
"""Undisturbed lives after which a run must be complete, or out of money."""

ASKED = 0.3
"""Of how many harms that `verify` does not notice every command is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What became of a seed."""

    story: tuple[str, ...]
    broken: str
    """The promise that did not hold; empty: all held."""
    lives: int
    requests: int
    counts: Mapping[str, int]
    """What has happened, by name of the disturbance, and what was looked at."""


def live_through(scenario: Scenario, *, detailed: bool = False) -> Lived:
    """Everything that happens in a seed, and the first promise that did not hold."""
    story: list[str] = []
    counts = Counter[str]()
    lives = requests = 0
    broken = ""
    try:
        usual, found = baseline(scenario.sweep), resolved(scenario.sweep)
        budget = None if scenario.budget_share is None else round(scenario.budget_share * usual.cost)
        if scenario.extended is not None:
            usual = baseline(extended(scenario.sweep))
        found = replace(
            found, sweep=replace(found.sweep, width=scenario.width, budget=None if budget is None else PicoUsd(budget))
        )
        with (
            tempfile.TemporaryDirectory(prefix="evalkit-sim-", dir=_quick()) as folder,
            remembered() as memory,
            seldom_collected(),
        ):
            world = World(scenario=scenario, folder=Path(folder), resolved=found, story=story, detailed=detailed)
            world.memory = memory
            world.say(f"seed {scenario.seed}: sweep {scenario.sweep}, width {scenario.width}, budget {budget}")
            try:
                damaged = False
                for life in scenario.lives:
                    if lives == scenario.extended:
                        world.extend()
                    outcome = world.live(life, lives, repair=damaged)
                    if life.altered:
                        world.end_all()
                        altered.try_one(world, lives)
                    lives += 1
                    damaged = (damaged and not isinstance(outcome, RunOutcome)) or _harmed(world, life)
                if scenario.extended is not None:
                    world.extend()
                lives = _calmly(world, lives, repair=damaged) + 1
                world.finish()
                world.checks.at_the_end(usual.steps, usual.asks, usual.answers)
            finally:
                world.end_all()
                requests = world.requests
                counts = world.counts + world.network.counts + world.disk.counts + world.cluster.counts
    except (Broken, Hung) as flaw:
        broken = f"{type(flaw).__name__}: {flaw}"
    except Exception as flaw:  # noqa: BLE001 - whatever leaves the engine is a finding
        broken = f"{type(flaw).__name__}: {flaw}{_where(flaw)}"
    return Lived(story=tuple(story), broken=broken, lives=lives, requests=requests, counts=counts)


def _harmed(world: World, life: Life) -> bool:
    """Carry out what a life's disk does to its files; returns whether the log wants a repair then."""
    if life.harm is None or not is_run(world.run) or world.checks.suspended:
        return False
    found = findings(world.run)
    if found:
        raise Broken(f"before anything is harmed verify finds: {found}")
    held = world.checks.held()
    world.end_all()
    done = harm.do(world.run, life.harm)
    if done is None:
        return False
    world.say(done.words)
    world.memory.changed = True
    world.counts["files_gone" if life.harm.gone else "flips"] += 1
    found = findings(world.run)
    if not found:
        world.counts["unnoticed"] += 1
        _may_go_unnoticed(world, done, held, gone=bool(life.harm.gone))
        if Stream(*life.harm.place).uniform() < ASKED:
            world.checks.commands()
    # A flipped footer may leave readers with all they need: a run goes on then, though `verify` is stricter.
    if life.harm.undone or not done.in_log or (found and harm.readable(world.run)):
        world.counts["undone"] += 1
        done.undo()
        world.say("it is put back")
        return False
    for path in done.before:
        world.disk.changed(path)
    world.harmed.update(() if found else done.before)
    world.say(f"verify names it: {found}" if found else "verify cannot know")
    world.checks.harmed(
        done.before, knew=bool(found) and not done.money(world.run, workers="workers" in world.scenario.active)
    )
    if not found:
        world.checks.accept()
        return False
    if not isinstance(world.live(undisturbed(), -1), str):
        raise Broken(f"a run goes on with a log that cannot be read: {found}")
    return True


def _may_go_unnoticed(world: World, done: harm.Done, held: harm.Held, *, gone: bool) -> None:
    """`verify` finds nothing: then the log is what it was, or lacks what its last files held and nothing else. `held`:
    what it was."""
    now = world.checks.held()
    if now == held:
        return
    if not gone or not done.unnoticed(world.run):
        raise Broken(f"verify finds nothing, and the log is another: {done.words}")
    if not done.explains(held, now):
        raise Broken(f"verify finds nothing, and more is missing than what is lost: {done.words}")


def _calmly(world: World, first: int, *, repair: bool = False) -> int:
    """Undisturbed lives until the run is as complete as its money allows; the number of the last."""
    seed = world.scenario.seed
    crew = peaceful(seed) if "workers" in world.scenario.active and Stream(seed, "calm").uniform() < 0.7 else None
    for number in range(first, first + MOST_CALM):
        outcome = world.live(replace(undisturbed(), crew=crew), number, repair=repair and number == first)
        if isinstance(outcome, RunOutcome) and outcome.reason in ("complete", "budget", "decided"):
            return number
    raise Broken(f"after {MOST_CALM} undisturbed lives the run is neither complete nor out of money: {outcome}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A sweep played without any disturbance."""

    steps: Mapping[tuple[str, int], bytes]
    """Digests by episode and step."""
    asks: Asks
    cost: int
    answers: Answers
    """Where it asks something. Its agents play on all the same."""


@cache
def baseline(number: int) -> Baseline:
    """The sweep's steps, and what they cost."""
    calm = Scenario(seed=0, sweep=number, budget_share=None, width=4, lives=())
    found = resolved(number)
    found = replace(found, sweep=replace(found.sweep, width=calm.width))
    with tempfile.TemporaryDirectory(prefix="evalkit-sim-", dir=_quick()) as folder:
        world = World(scenario=calm, folder=Path(folder), resolved=found, play_all=True)
        _calmly(world, 0)
        return Baseline(
            steps=world.checks.steps(), asks=asks_of(world.run), cost=world.network.bill, answers=answers_of(world.run)
        )


def _quick() -> str | None:
    """Where files cost least: in memory, if the system has a place for that."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _where(flaw: BaseException) -> str:
    frames = traceback.extract_tb(flaw.__traceback__)[-3:]
    return " at " + " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames))
