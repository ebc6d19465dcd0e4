"""One seed, lived: the real engine, client, lanes, budget and store over a simulated network and disk, life after life.

What is replaced: the transport (`network.py`), the functions that touch the disk for what must last (`disk.py`), the
clock of the loop and of the wall, and sleeping. Everything else is the code that a user runs.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

from evalkit.client import client
from evalkit.client.ask import Asker
from evalkit.engine import endpoints, scheduler, sweep
from evalkit.engine.episode import ActiveEpisode, LaneContext, play
from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.session import RunOptions
from evalkit.engine.universe import PlannedEpisode
from evalkit.errors import EvalkitError
from evalkit.seeds import Stream
from evalkit.store.lock import holder
from evalkit.store.writing.writer import open_store
from tests.sim.begun import Begun
from tests.sim.checks import Broken, Checks, columns
from tests.sim.disk import SimDisk
from tests.sim.loop import Died, Hung, SimLoop, run_life
from tests.sim.network import Network, Sent
from tests.sim.reading import Reading
from tests.sim.scenario import Life, Scenario
from tests.sim.sweeps import LIMITS, spec

STEPS = {"tail", "steps", "log"}
"""Folders of files with rows of steps."""
Activate = Callable[[PlannedEpisode], ActiveEpisode]

EPOCH_S = 1.7e9
LONGEST_WAIT_S = 7500.0
"""In which something must be sent, answered or written: twice the hour beyond which no provider is waited for."""


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
    playing: Counter[str] = field(default_factory=Counter)
    """Episodes that have begun in this life and neither ended nor been left, by lane."""
    counts: Counter[str] = field(default_factory=Counter)
    reading: Reading = field(default_factory=Reading)
    loop: SimLoop | None = None
    progress: float = 0.0
    """When something was last sent, answered or written."""
    detailed: bool = False
    """Whether the story tells of each request and each commit."""
    closed: bool = False
    """Whether the last life has ended by itself."""

    def __post_init__(self) -> None:
        self.run = self.folder / "run"
        self._drawn = 0
        self._flaws: list[BaseException] = []
        """What was found, or left the engine, where nobody waits for it."""
        models = tuple(sorted({agent.model for agent in self.resolved.manifest.agents.values()}))
        self.spec = spec(self.scenario.sweep)
        self.network = Network(self.scenario.seed, models, self.say)
        self.network.overbills = self.scenario.overbilled
        self.disk = SimDisk(self.folder, say=self.say, slept=self._slept)
        self.disk.lasted = self._lasted
        self.network.sending = self._sending
        self.turn = 0
        self.checks = Checks(self)
        self.disk.looked = self._touched

    def say(self, what: str) -> None:
        """A line of the story."""
        at = self.loop.time() if self.loop is not None else self.now
        self.story.append(f"{at:10.3f}  {what.replace(str(self.folder), '')}")

    def _touched(self, what: str, path: Path) -> None:
        """Before each operation of the disk."""
        self.progress = self.loop.time() if self.loop is not None else self.now
        if self.detailed and what in ("rename", "link", "remove"):
            self.say(f"the run is about to {what} {path.relative_to(self.folder)}")
        self.checks.looked(what, path)

    def _slept(self, seconds: float) -> None:
        if seconds and self.loop is not None:
            self.loop.skip(seconds)

    def _lasted(self, names: list[Path]) -> None:
        """New files of a folder last from now on: note the steps in them."""
        for path in names:
            if (
                path.suffix != ".parquet"
                or not {path.parent.name, path.parent.parent.name} & STEPS
                or not path.exists()
            ):
                continue
            if self.checks.suspended:
                continue  # what a repair leaves counts once it has ended
            table = columns(path, "episode", "step")
            for episode, step in zip(*(table.column(name).to_pylist() for name in ("episode", "step")), strict=True):
                self.durable.setdefault(episode, set()).add(step)

    def take_over(self, old: Begun) -> None:
        """Go on from a run of the first format."""
        old.lay(self.run)
        self.disk.forget_nothing()
        for name in old.files:
            self.disk.changed(self.run / name)
        self.now, self.wall, self.network.bill, self.network.taken = old.now, old.wall, old.bill, old.bill
        self.checks.accept()
        self.counts["first_format"] += 1
        self.say(f"a run of the log's first format is there: {old.name}")

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
        flying = sum(one.lane == sent.lane for one in self.network.in_flight.values()) + 1
        if flying > self.scenario.width:
            raise Broken(f"{flying} requests of {sent.lane} are in flight; width is {self.scenario.width}")
        limits = LIMITS.get(sent.lane.partition("/")[0], {})
        recent = sum(one.lane == sent.lane and one.at > sent.at - 60 for one in self.network.history) + 1
        self.counts["tight"] += recent == limits.get("requests_per_minute") or flying == limits.get("in_flight")
        if recent > limits.get("requests_per_minute", recent):
            raise Broken(f"{recent} requests of {sent.lane} within a minute; the limits are {limits}")
        if flying > limits.get("in_flight", flying):
            raise Broken(f"{flying} requests of {sent.lane} are in flight; the limits are {limits}")
        budget = self.resolved.sweep.budget
        if budget is not None and self.network.bill > budget:
            raise Broken(f"the bill is {self.network.bill}, the budget {budget}")
        if self.detailed:
            self.say(f"{sent.lane} is asked {sent.episode}/{sent.step}, attempt {sent.attempt}")

    async def _play(self, episode: PlannedEpisode, activate: Activate, asker: Asker, table: LaneContext) -> str:
        """Stands in for `play`: counts who plays."""
        lane = episode.cell.agent.lane
        self.playing[lane] += 1
        if self.playing[lane] > self.scenario.width:
            raise Broken(f"{self.playing[lane]} episodes of {lane} are being played; width is {self.scenario.width}")
        try:
            return await play(episode, activate, asker, table)
        finally:
            self.playing[lane] -= 1

    # Lives.

    def live(self, life: Life, number: int, *, repair: bool = False) -> RunOutcome | str | None:
        """One process: its outcome, why it was refused, or None where it died."""
        self.turn = 0
        self.wall += life.clock_s
        self.counts["clock"] += bool(life.clock_s)
        self.disk.begin(life.plan)
        self.network.begin(life.weather)
        self.playing.clear()
        self.reading = Reading()
        self._flaws.clear()
        loop = self.loop = SimLoop(self.now, partial(self._turn, life))
        self.progress = self.network.progress = self.now
        self.say(
            f"life {number} begins"
            + (f", the wall clock has jumped {life.clock_s:+.0f} s" if life.clock_s else "")
            + (", and repairs the log" if repair else "")
        )
        try:
            with self._simulated(loop):
                outcome = run_life(loop, self._main(life, repair=repair))
        finally:
            self.now = loop.time() + 1.0
            self.loop = None
        if self._flaws:
            raise _first(self._flaws[0])
        self.closed = isinstance(outcome, RunOutcome)
        self._end(life, number, outcome)
        self.checks.between_lives(closed=self.closed)
        flaw = self.reading.flaw(self.network.long_bodies)
        if flaw:
            raise Broken(flaw)
        return outcome

    @contextmanager
    def _simulated(self, loop: SimLoop) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.disk.in_force())
            stack.enter_context(mock.patch("time.time", self._wall_time))
            stack.enter_context(mock.patch("time.sleep", loop.skip))
            stack.enter_context(mock.patch("secrets.token_hex", self._digits))
            stack.enter_context(mock.patch("socket.gethostname", return_value="host"))
            stack.enter_context(mock.patch("os.getpid", return_value=1000 + self.network.lives))
            stack.enter_context(mock.patch.object(endpoints, "open_transport", self.network.open))
            stack.enter_context(mock.patch.object(client, "aside", self.reading.aside))
            stack.enter_context(mock.patch.object(scheduler, "play", self._play))
            stack.enter_context(mock.patch.object(sweep, "open_store", partial(open_store, inline=True)))
            yield

    def _digits(self, size: int) -> str:
        """Stands in for `secrets.token_hex`: a seed is the same each time."""
        self._drawn += 1
        return Stream(self.scenario.seed, "digits", self._drawn).word().to_bytes(8, "big").hex()[: 2 * size]

    def _end(self, life: Life, number: int, outcome: RunOutcome | str | None) -> None:
        """The process is gone: what becomes of its files."""
        if outcome is not None:
            self.counts[outcome.reason if isinstance(outcome, RunOutcome) else "refused"] += 1
            self.say(outcome if isinstance(outcome, str) else f"life {number} ends: {outcome.reason}")
        elif life.power:
            self.counts["power"] += 1
            self.disk.lose_power(Stream(self.scenario.seed, "power", number))
        else:
            self.disk.forget_nothing()

    async def _main(self, life: Life, *, repair: bool) -> RunOutcome | str:
        loop = asyncio.get_running_loop()

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            flaw = context.get("exception")
            if isinstance(flaw, BaseException) and not self.disk.dead:
                self._flaws.append(flaw)

        loop.set_exception_handler(failed)
        options = RunOptions(directory=self.run, repair=repair)
        second: asyncio.Task[RunOutcome | str] | None = None
        first = asyncio.ensure_future(self._run(options))
        if life.twice_turn is not None:
            second = asyncio.ensure_future(self._beside(life.twice_turn, options))
        try:
            return await first
        except Broken as flaw:
            self._flaws.append(flaw)
            raise Died from flaw
        finally:
            if second is not None:
                second.cancel()
                with suppress(asyncio.CancelledError):
                    await second

    async def _run(self, options: RunOptions) -> RunOutcome | str:
        try:
            return await sweep.run_sweep(self.resolved, options, lambda view: None)
        except EvalkitError as flaw:
            return f"{type(flaw).__name__}: {flaw}"
        except ExceptionGroup as group:
            raise _first(group) from None
        except BaseExceptionGroup as group:
            found = group.split(Broken)[0]
            raise _first(found if found is not None else group) from None

    async def _beside(self, turn: int, options: RunOptions) -> RunOutcome | str:
        """A second process on the same run: it must be refused while the first writes."""
        while self.turn < turn:  # noqa: ASYNC110 - the turns of the loop are what it waits for
            await asyncio.sleep(0.01)
        if holder(self.run) is None:
            return ""  # the first has let go already
        before = len(self.network.history)
        found = await self._run(options)
        if not (isinstance(found, str) and "is being written" in found):
            raise Broken(f"a second process was not refused: {found} ({len(self.network.history) - before} requests)")
        self.counts["twice"] += 1
        self.say("a second process is refused")
        return found

    def _wall_time(self) -> float:
        return self.wall + (self.now if self.loop is None else self.loop.time())

    def _turn(self, life: Life) -> None:
        """Once each time round the loop."""
        self.turn += 1
        if self._flaws:
            self.disk.dead = self.network.dead = True  # what was found in a callback is told at once
        if self.disk.dead:
            raise Died
        if self.turn == life.die_turn:
            self.say(f"the process dies at turn {self.turn} of the loop")
            self.counts["die_turn"] += 1
            self.disk.dead = self.network.dead = True
            raise Died
        assert self.loop is not None
        if self.turn in life.stopped:
            self.counts["stopped"] += 1
            self.say(f"the process is stopped for {life.stopped[self.turn]:.1f} s")
            self.loop.skip(life.stopped[self.turn])
        if self.turn in life.jumps:
            self.counts["clock_jump"] += 1
            self.say(f"the wall clock jumps {life.jumps[self.turn]:+.0f} s")
            self.wall += life.jumps[self.turn]
        if self.turn == life.interrupt_turn:
            self._interrupt()
        waited = self.loop.time() - max(self.progress, self.network.progress)
        if waited > LONGEST_WAIT_S:
            raise Hung(f"nothing was sent, answered or written for {waited:.0f} s: {self.loop.waiting()}")

    def _interrupt(self) -> None:
        """Ctrl-C, where the process listens for it."""
        assert self.loop is not None
        handle = self.loop._signal_handlers.get(signal.SIGINT)  # type: ignore[attr-defined]
        if handle is not None:
            self.counts["interrupt"] += 1
            self.say("Ctrl-C")
            self.loop.call_soon(handle._run)


def _first(flaw: BaseException) -> BaseException:
    while isinstance(flaw, BaseExceptionGroup):
        flaw = flaw.exceptions[0]
    return flaw
