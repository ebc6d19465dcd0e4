"""One seed, lived: the real engine, client, lanes, budget and store over a simulated network and disk, life after life.

What is replaced: the transport (`network.py`), the functions that touch the disk for what must last (`disk.py`), the
clock of the loop and of the wall, and sleeping. Everything else is the code that a user runs.
"""

import asyncio
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq

from evalkit.errors import EvalkitError
from evalkit.run import askers, sweep
from evalkit.run.freeze import Resolved, resolve
from evalkit.run.outcome import Outcome
from evalkit.run.session import RunOptions
from evalkit.seeds import Stream
from evalkit.spec.sweep import read_sweep
from evalkit.store.writer import open_store
from tests.sim.checks import Broken, Checks
from tests.sim.disk import SimDisk
from tests.sim.loop import Died, Hung, SimLoop, run_life
from tests.sim.network import Network, Sent
from tests.sim.scenario import Life, Scenario, undisturbed

EPOCH_S = 1.7e9
MOST_CALM = 12
"""Undisturbed lives after which a run must be complete, or out of money."""

_PROVIDER = """
dialect = "{dialect}"
url = "http://127.0.0.1:9/v1"
any_model = true
timeout_s = 60
{limits}
[usd_per_mtok]
input = "1"
output = "4"
as_of = 2026-01-01
source = "simulated"
"""

_LIMITED = """[limits]
requests_per_minute = 120
"""

_AGENT = """[[agents]]
name = "{name}"
provider = "{provider}"
model = "{model}"
max_tokens = 150
"""

_SUITE = """[[suites]]
name = "scheduling/basic"
instances = [{instances}]
vary = {{ periods = [{periods}] }}
"""

LIMIT = 120
"""Requests per minute of the provider `limited`."""


def _spec(agents: tuple[tuple[str, str, str], ...], instances: int, periods: int, replicates: int) -> str:
    named = ", ".join(f'"seed-{number}"' for number in range(instances))
    return "\n".join(
        [
            f"replicates = {replicates}",
            *(_AGENT.format(name=name, provider=provider, model=model) for name, provider, model in agents),
            _SUITE.format(instances=named, periods=periods),
        ]
    )


SWEEPS = (
    _spec((("k", "free", "knuth"),), 3, 2, 1),
    _spec((("k", "free", "knuth"), ("r", "free", "random")), 2, 2, 1),
    _spec((("k", "limited", "knuth"), ("n", "free", "noisy")), 2, 1, 2),
    _spec((("r", "limited", "random"),), 4, 1, 1),
)
"""Small sweeps over one or two lanes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What became of a seed."""

    story: tuple[str, ...]
    broken: str
    """The promise that did not hold; empty: all held."""
    lives: int
    requests: int


@cache
def resolved(number: int) -> Resolved:
    """One of the sweeps, read once a process."""
    folder = Path(tempfile.mkdtemp(prefix="evalkit-sim-"))
    (folder / "providers").mkdir()
    for name, limits in (("free", ""), ("limited", _LIMITED)):
        (folder / "providers" / f"{name}.toml").write_text(_PROVIDER.format(dialect="openai_chat", limits=limits))
    (folder / "sweep.toml").write_text(SWEEPS[number])
    with _within(folder):
        return resolve(read_sweep(folder / "sweep.toml"))


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    import contextlib

    with contextlib.chdir(folder):
        yield


@dataclass
class World:
    """Everything of one seed that outlives a process."""

    scenario: Scenario
    folder: Path
    resolved: Resolved
    story: list[str] = field(default_factory=list)
    now: float = 0.0
    wall: float = EPOCH_S
    """What is to be added to the loop's time for the wall's."""
    durable: dict[str, set[int]] = field(default_factory=dict)
    """Steps that last, by episode, as the disk has seen them."""
    requests: int = 0
    loop: SimLoop | None = None

    def __post_init__(self) -> None:
        self.run = self.folder / "run"
        models = tuple(sorted({agent.model for agent in self.resolved.manifest.agents.values()}))
        self.network = Network(self.scenario.seed, models, self.say)
        self.disk = SimDisk(self.folder, say=self.say, slept=self._slept)
        self.disk.lasted = self._lasted
        self.network.sending = self._sending
        self.turn = 0
        self.checks = Checks(self)
        self.disk.looked = self.checks.looked

    def say(self, what: str) -> None:
        """A line of the story."""
        at = self.loop.time() if self.loop is not None else self.now
        self.story.append(f"{at:10.3f}  {what}")

    def _slept(self, seconds: float) -> None:
        if seconds and self.loop is not None:
            self.loop.skip(seconds)

    def _lasted(self, names: list[Path]) -> None:
        """New files of a folder last from now on: note the steps in them."""
        for path in names:
            if path.suffix != ".parquet" or path.parent.name not in ("tail", "steps") or not path.exists():
                continue
            table = pq.read_table(path, columns=["episode", "step"], use_threads=False)
            for episode, step in zip(*(table.column(name).to_pylist() for name in ("episode", "step")), strict=True):
                self.durable.setdefault(episode, set()).add(step)

    # What must hold at every request.

    def _sending(self, sent: Sent) -> None:
        self.requests += 1
        if not self.network.history:
            self.checks.settled()
        held = self.durable.get(sent.episode, set())
        missing = set(range(sent.step)) - held
        if missing:
            raise Broken(f"{sent.episode}/{sent.step} is sent while step {min(missing)} is not durable")
        if sent.step in held:
            raise Broken(f"{sent.episode}/{sent.step} is asked again: its reply is durable")
        playing = {one.episode for one in self.network.in_flight.values() if one.lane == sent.lane} | {sent.episode}
        if len(playing) > self.scenario.width:
            raise Broken(f"{len(playing)} episodes of {sent.lane} are in flight; width is {self.scenario.width}")
        if sent.lane.startswith("limited/"):
            recent = sum(one.lane == sent.lane and one.at > sent.at - 60 for one in self.network.history) + 1
            if recent > LIMIT:
                raise Broken(f"{recent} requests of {sent.lane} within a minute; the limit is {LIMIT}")
        budget = self.resolved.sweep.budget
        if budget is not None and self.network.bill > budget:
            raise Broken(f"the bill is {self.network.bill}, the budget {budget}")

    # Lives.

    def live(self, life: Life, number: int) -> Outcome | str | None:
        """One process: its outcome, why it was refused, or None where it died."""
        self.turn = 0
        self.wall += life.clock_s
        self.disk.begin(life.plan)
        self.network.begin(life.weather)
        end: list[BaseException] = []
        loop = self.loop = SimLoop(self.now, partial(self._turn, life))
        self.say(
            f"life {number} begins" + (f", the wall clock has jumped {life.clock_s:+.0f} s" if life.clock_s else "")
        )
        try:
            with ExitStack() as stack:
                stack.enter_context(self.disk.in_force())
                stack.enter_context(mock.patch("time.time", self._wall_time))
                stack.enter_context(mock.patch("time.sleep", loop.skip))
                stack.enter_context(mock.patch.object(askers, "open_transport", self.network.open))
                stack.enter_context(mock.patch.object(sweep, "open_store", partial(open_store, inline=True)))
                outcome = run_life(loop, self._main(life, end))
        finally:
            self.now = loop.time() + 1.0
            self.loop = None
        if end:
            raise _first(end[0])
        if outcome is None:
            if life.power:
                self.disk.lose_power(Stream(self.scenario.seed, "power", number))
            else:
                self.disk.forget_nothing()
        else:
            self.say(outcome if isinstance(outcome, str) else f"life {number} ends: {outcome.reason}")
        self.checks.between_lives(closed=isinstance(outcome, Outcome))
        return outcome

    async def _main(self, life: Life, end: list[BaseException]) -> Outcome | str:
        loop = asyncio.get_running_loop()

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            flaw = context.get("exception")
            if isinstance(flaw, BaseException) and not self.disk.dead:
                end.append(flaw)

        loop.set_exception_handler(failed)
        options = RunOptions(directory=self.run)
        second: asyncio.Task[Outcome | str] | None = None
        first = asyncio.ensure_future(self._run(options))
        if life.twice_turn is not None:
            second = asyncio.ensure_future(self._beside(life.twice_turn, options))
        try:
            return await first
        except Broken as flaw:
            end.append(flaw)
            raise Died from flaw
        finally:
            if second is not None:
                second.cancel()
                with suppress(asyncio.CancelledError):
                    await second

    async def _run(self, options: RunOptions) -> Outcome | str:
        try:
            return await sweep.run_sweep(self.resolved, options, lambda view: None)
        except EvalkitError as flaw:
            return f"{type(flaw).__name__}: {flaw}"
        except ExceptionGroup as group:
            raise _first(group) from None
        except BaseExceptionGroup as group:
            found = group.split(Broken)[0]
            raise _first(found if found is not None else group) from None

    async def _beside(self, turn: int, options: RunOptions) -> Outcome | str:
        """A second process on the same run: it must be refused while the first writes."""
        while self.turn < turn:  # noqa: ASYNC110 - the turns of the loop are what it waits for
            await asyncio.sleep(0.01)
        before = len(self.network.history)
        found = await self._run(options)
        if not (isinstance(found, str) and "is being written" in found):
            raise Broken(f"a second process was not refused: {found} ({len(self.network.history) - before} requests)")
        self.say("a second process is refused")
        return found

    def _wall_time(self) -> float:
        return self.wall + (self.now if self.loop is None else self.loop.time())

    def _turn(self, life: Life) -> None:
        """Once each time round the loop."""
        self.turn += 1
        if self.disk.dead:
            raise Died
        if self.turn == life.die_turn:
            self.say(f"the process dies at turn {self.turn} of the loop")
            self.disk.dead = self.network.dead = True
            raise Died
        if self.turn in life.stopped and self.loop is not None:
            self.say(f"the process is stopped for {life.stopped[self.turn]:.1f} s")
            self.loop.skip(life.stopped[self.turn])
        if self.turn == life.interrupt_turn:
            self._interrupt()

    def _interrupt(self) -> None:
        """Ctrl-C, where the process listens for it."""
        assert self.loop is not None
        handle = self.loop._signal_handlers.get(signal.SIGINT)  # type: ignore[attr-defined]
        if handle is not None:
            self.say("Ctrl-C")
            self.loop.call_soon(handle._run)


def _first(flaw: BaseException) -> BaseException:
    while isinstance(flaw, BaseExceptionGroup):
        flaw = flaw.exceptions[0]
    return flaw


def live_through(scenario: Scenario) -> Lived:
    """Everything that happens in a seed, and the first promise that did not hold."""
    story: list[str] = []
    lives = requests = 0
    broken = ""
    try:
        usual, found = baseline(scenario.sweep), resolved(scenario.sweep)
        budget = None if scenario.budget_share is None else round(scenario.budget_share * usual.cost)
        found = replace(found, sweep=replace(found.sweep, width=scenario.width, budget=budget))
        with tempfile.TemporaryDirectory(prefix="evalkit-sim-", dir=_quick()) as folder:
            world = World(scenario=scenario, folder=Path(folder), resolved=found, story=story)
            world.say(f"seed {scenario.seed}: sweep {scenario.sweep}, width {scenario.width}, budget {budget}")
            try:
                for life in scenario.lives:
                    world.live(life, lives)
                    lives += 1
                lives = _calmly(world, lives) + 1
                world.checks.at_the_end(usual.steps)
            finally:
                requests = world.requests
    except (Broken, Hung) as flaw:
        broken = f"{type(flaw).__name__}: {flaw}"
    except Exception as flaw:  # noqa: BLE001 - whatever leaves the engine is a finding
        broken = f"{type(flaw).__name__}: {flaw}{_where(flaw)}"
    return Lived(story=tuple(story), broken=broken, lives=lives, requests=requests)


def _calmly(world: World, first: int) -> int:
    """Undisturbed lives until the run is as complete as its money allows; the number of the last."""
    for number in range(first, first + MOST_CALM):
        outcome = world.live(undisturbed(), number)
        if isinstance(outcome, Outcome) and outcome.reason in ("complete", "budget"):
            return number
    raise Broken(f"after {MOST_CALM} undisturbed lives the run is neither complete nor out of money: {outcome}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A sweep played without any disturbance."""

    steps: Mapping[tuple[str, int], bytes]
    """Digests by episode and step."""
    cost: int


@cache
def baseline(number: int) -> Baseline:
    """The sweep's steps, and what they cost."""
    calm = Scenario(seed=0, sweep=number, budget_share=None, width=4, lives=())
    with tempfile.TemporaryDirectory(prefix="evalkit-sim-", dir=_quick()) as folder:
        world = World(scenario=calm, folder=Path(folder), resolved=resolved(number))
        _calmly(world, 0)
        return Baseline(steps=world.checks.steps(), cost=world.network.bill)


def _quick() -> str | None:
    """Where files cost least: in memory, if the system has a place for that."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _where(flaw: BaseException) -> str:
    frames = traceback.extract_tb(flaw.__traceback__)[-3:]
    return " at " + " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames))
