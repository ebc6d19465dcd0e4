"""One seed, lived: the real engine, client, lanes, budget and store over a simulated network and disk, life after life.

What is replaced: the transport (`network.py`), the functions that touch the disk for what must last (`disk.py`), the
clock of the loop and of the wall, and sleeping. Everything else is the code that a user runs.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from unittest import mock

from evalkit.client import client
from evalkit.client.ask import Asker
from evalkit.engine import endpoints, scheduler, sweep
from evalkit.engine.episode import NOT_ENDED, ActiveEpisode, LaneContext, play
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import PlannedEpisode
from evalkit.errors import EvalkitError
from evalkit.playing.sweeps import run_sweep
from evalkit.seeds import Stream
from evalkit.store import lock
from evalkit.store.lock import holder
from evalkit.store.writing.writer import open_store
from tests.sim.checks import Broken, Checks, built_on
from tests.sim.cluster import Cluster
from tests.sim.crew import Crew, first_of
from tests.sim.disk import Plan, SimDisk
from tests.sim.lasting import answered, lasted
from tests.sim.loop import Died, Hung, SimLoop, run_life
from tests.sim.network import Network, Sent, Weather
from tests.sim.players import Place, heard
from tests.sim.process import Process, Second
from tests.sim.reading import Reading
from tests.sim.remembered import Remembered
from tests.sim.scenario import Life, Scenario
from tests.sim.sweeps import extended, resolved, spec
from tests.sim.taking_over import TakingOver, closed_books, granted, has_closed, of_files
from tests.support.virtual_clock import virtual_cpu

Activate = Callable[[PlannedEpisode], ActiveEpisode]
Result = TypeVar("Result")

EPOCH_S = 1.7e9
LONGEST_WAIT_S = 7500.0
"""In which something must be sent, answered or written: twice the hour beyond which no provider is waited for."""


@dataclass
class World:
    """Everything of one seed that outlives a process."""

    scenario: Scenario
    folder: Path
    resolved: ResolvedSweep
    story: list[str] = field(default_factory=list)
    now: float = 0.0
    wall: float = EPOCH_S
    """What is to be added to the loop's time for the wall's."""
    durable: dict[str, set[int]] = field(default_factory=dict)
    """Steps that last, by episode, as the disk has seen them."""
    asked: dict[str, set[Place]] = field(default_factory=dict)
    """The same of the asks of agents that are code."""
    charged: dict[Path, list[tuple[str, str, int, int]]] = field(default_factory=dict)
    """(session, episode, step, attempt) of charges that last, by file."""
    harmed: set[Path] = field(default_factory=set)
    """Files whose content is another than was written, and of which `verify` knows nothing: no rows count any more."""
    requests: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    memory: Remembered = field(default_factory=Remembered)
    reading: Reading = field(default_factory=Reading)
    process: Process | None = None
    """The one that acts."""
    main: Process | None = None
    """The one whose loop drives those of all others."""
    processes: dict[int, Process] = field(default_factory=dict)
    """All that there have been, by number."""
    second: Second[RunOutcome | str] | None = None
    """The process that has taken the run over in this life."""
    progress: float = 0.0
    """When something was last sent, answered or written."""
    detailed: bool = False
    """Whether the story tells of each request and each commit."""
    play_all: bool = False
    """Whether agents play on that no open question needs."""
    closed: bool = False
    """Whether the last life has ended by itself, with its money on the books."""

    def __post_init__(self) -> None:
        self.run = self.folder / "run"
        self.life: Life | None = None
        """The life that is being lived."""
        self.deferred = False
        """Whether an episode was left in it that has not ended."""
        self._drawn = 0
        self.flaws: list[BaseException] = []
        """What was found, or left the engine, where nobody waits for it."""
        codes = [agent.code for agent in self.resolved.manifest.agents.values() if agent.code is not None]
        self.asking = self.resolved.sweep.decide is not None
        """Whether it asks something."""
        self.coded = bool(codes)
        """Whether its agents are code."""
        self.crowd = max((code.parallel for code in codes), default=1)
        """Requests that one agent may have in flight."""
        self.most_flying = self.scenario.width * (sum(code.parallel for code in codes) or 1)
        """Requests of a lane."""
        models = tuple(sorted({endpoint.model.name for endpoint in self.resolved.endpoints.values()}))
        self.spec = spec(self.scenario.sweep)
        self.network = Network(self.scenario.seed, models, self.say)
        self.network.overbills = self.scenario.overbilled
        self.disk = SimDisk(self.folder, say=self.say, slept=self._slept)
        self.disk.lasted = partial(lasted, self)
        self.network.sending = self._sending
        self.checks, self.taking = Checks(self), TakingOver(self)
        self.cluster, self.crew = Cluster(self), Crew(self)
        self.disk.looked = self._touched
        self.disk.taken, self.disk.making, self.disk.built_on = self._taken, self._making, built_on

    @property
    def loop(self) -> SimLoop | None:
        """The loop of the process that acts."""
        return None if self.process is None else self.process.loop

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
        own = self.process
        if own is not None and not own.opened and f"-{own.pid}-" in path.parent.name:
            own.learns(self.durable, self.asked)
        self.checks.writing(what, path)
        how = None if self.life is None or own is not self.main else self.life.taken_over
        if how is not None and not how.at_once and how.turn is None and self.disk.operations >= how.operation:
            self.taking.begins(how)

    def _making(self, path: Path) -> None:
        """A folder is to be made."""
        if self.process is not None and f"-{self.process.pid}-" in path.name:
            self.process.journal = path.name
        how = None if self.life is None or self.process is not self.main else self.life.taken_over
        if how is not None and how.at_once and path.parent.name == "log":
            self.counts["at_once"] += 1
            self.taking.begins(how)

    def _taken(self, path: Path) -> None:
        """A process has met another's object where its own was to be."""
        if (
            self.process is not None
            and f"-{self.process.pid}-" in path.parent.name
            and path.parent.parent.name == "log"
        ):
            self.counts["fenced"] += 1
            self.say(f"the process is fenced: {path.relative_to(self.folder)} is another's")
            self.process.fenced = self.process.loop.time() + self.disk.plan.slow_s

    def _slept(self, seconds: float) -> None:
        if seconds and self.loop is not None:
            self.loop.skip(seconds)

    def extend(self) -> None:
        """From now on the user asks for more than at first."""
        number = extended(self.scenario.sweep)
        if self.spec == spec(number):
            return
        self.spec, given = spec(number), self.resolved.sweep
        found = resolved(number)
        self.resolved = replace(found, sweep=replace(found.sweep, width=given.width, budget=given.budget))
        self.counts["extended"] += 1
        self.say("the sweep asks for more from now on")

    def _sending(self, sent: Sent) -> None:
        """Before each request leaves."""
        if self.disk.dead:
            raise Died  # in the turn in which it died, others may still go on
        self.requests += 1
        self.checks.sending(sent)
        self.checks.charged_before(sent)
        self.checks.room_at(sent)
        if self.detailed:
            self.say(f"{sent.lane} is asked {sent.episode}/{sent.step}, attempt {sent.attempt}")

    async def _play(self, episode: PlannedEpisode, activate: Activate, asker: Asker, table: LaneContext) -> str:
        """Stands in for `play`: counts who plays."""
        assert self.process is not None
        lane, playing = episode.cell.agent.lane, self.process.playing
        playing[lane] += 1
        in_all = sum(one.playing[lane] for one in self.team(self.process))
        if in_all > self.scenario.width:
            raise Broken(f"{in_all} episodes of {lane} are being played; width is {self.scenario.width}")
        try:
            left = await play(episode, activate, asker, table)
        finally:
            playing[lane] -= 1
        if left in ("diverged", "agent_error"):
            raise Broken(f"{episode.id} is left as {left}")
        self.deferred |= left in NOT_ENDED
        return left

    # Processes.

    def owner(self, path: Path) -> Process | None:
        """The process in whose journal a file is."""
        number = path.parent.name.split("-")[-2:-1]
        return self.processes.get(int(number[0]) - 1000) if number and number[0].isdigit() else None

    def leader(self, process: Process) -> Process:
        """Of a worker the coordinator that has made its actor, else the process itself."""
        return process if process.of is None else self.processes[process.of]

    def team(self, process: Process) -> list[Process]:
        """The processes that play for one coordinator with this one: those that live and that it has not ended.

        One that it has ended, and that has not learned it, sends nothing and counts with nobody.
        """
        leader = self.leader(process)
        if process is not leader and process.sealed_by == leader.number:
            return [process]
        others = (one for one in self.processes.values() if not one.dead and one.sealed_by is None)
        return [process, *(one for one in others if one is not process and self.leader(one) is leader)]

    def catch_up(self, until: float) -> float:
        """The other processes live up to this time of the loop that drives them, or to one before at which that has
        something to do because of them: which it is."""
        assert self.main is not None
        while self._other_lives(min(until, self.main.loop.next_timer)):
            pass
        return min(until, self.main.loop.next_timer)

    def others_live(self, until: float) -> None:
        """The other processes live up to this time, whatever the one has to do that drives them."""
        while self._other_lives(until):
            pass

    def _other_lives(self, until: float) -> bool:
        """One of the others goes on, if it has something to do by then: the one whose time is least."""
        second, crew = self.taking.next_at(), self.crew.next_at()
        if min(second, crew) > until or self.disk.dead:
            return False
        if second <= crew:
            self.taking.step()
        else:
            self.crew.step()
        return True

    def finish(self) -> None:
        """Those that are left of earlier lives live on to their ends, with nobody to coordinate them."""
        if not self.crew.present:
            return
        self.disk.begin(Plan())
        self.network.begin(Weather())
        with self._simulated():
            self.crew.finish()
        if self.flaws:
            raise first_of(self.flaws[0])
        self.checks.between_lives(closed=self.closed)

    def end_all(self) -> None:
        """Whoever is left of earlier lives dies."""
        with self._simulated():
            self.crew.die()

    # Lives.

    def live(self, life: Life, number: int, *, repair: bool = False) -> RunOutcome | str | None:
        """One process: its outcome, why it was refused, or None where it died."""
        self.wall += life.clock_s
        if life.crew is not None and life.crew.late_s and self.crew.present:
            self.counts["comes_late"] += 1
            self.now += life.crew.late_s
        self.counts["clock"] += bool(life.clock_s)
        if repair or self.checks.suspended:
            life = replace(life, taken_over=None)
        if repair and life.dies_mending is not None:
            self.counts["dies_mending"] += 1
            life = replace(life, plan=replace(life.plan, die_at=life.dies_mending))
        self.disk.begin(life.plan)
        self.network.begin(life.weather)
        self.reading = Reading()
        self.flaws.clear()
        self.life, self.second, self.deferred = life, None, False
        loop = SimLoop(self.now, self._turn)
        loop.beside(self.catch_up)
        self.main = self.process = self.processes[self.network.process] = Process(self.network.process, loop)
        if life.crew is not None:
            self.crew.begin(life.crew)
        self.progress = self.network.progress = self.now
        self.taking.failed = False
        self.say(
            f"life {number} begins"
            + (f", the wall clock has jumped {life.clock_s:+.0f} s" if life.clock_s else "")
            + (", and repairs the log" if repair else "")
        )
        try:
            with self._simulated():
                outcome = run_life(loop, self._main(life, repair=repair))
                if self.second is not None:
                    self.now = loop.time()
                    outcome = self.taking.ends(self.second, outcome)
        finally:
            self.now = max(self.now, loop.time()) + 1.0
            self._is_over(self.main)
        if self.flaws:
            raise first_of(self.flaws[0])
        self.closed = has_closed(outcome) and (self.second is None or closed_books(self.second))
        self._end(life, number, outcome)
        self.checks.between_lives(closed=self.closed)
        if isinstance(outcome, RunOutcome) and outcome.reason == "complete" and not self.checks.suspended:
            self.checks.complete(outcome.episodes, failed=self.taking.failed)
        if isinstance(outcome, RunOutcome) and outcome.reason == "deferred" and not self.deferred:
            raise Broken(f"a life ends with {outcome.remaining} episodes that remain, and none was set aside in it")
        flaw = self.reading.flaw(self.network.long_bodies)
        if flaw:
            raise Broken(flaw)
        return outcome

    def _is_over(self, main: Process) -> None:
        """The processes that coordinate, or play alone, are gone."""
        for one in (main, *(() if self.second is None else (self.second.process,))):
            one.dead = True
        self.crew.ended()
        self.process = self.main = self.life = None

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.disk.in_force())
            stack.enter_context(self.crew.in_force())
            stack.enter_context(mock.patch("time.time", self._wall_time))
            stack.enter_context(mock.patch("time.sleep", self._slept))
            stack.enter_context(virtual_cpu())
            stack.enter_context(mock.patch("secrets.token_hex", self._digits))
            stack.enter_context(mock.patch("socket.gethostname", return_value="host"))
            stack.enter_context(mock.patch("os.getpid", self._pid))
            stack.enter_context(mock.patch("asyncio.to_thread", _at_once))
            stack.enter_context(mock.patch.object(lock, "is_gone", return_value=False))
            how = None if self.life is None else self.life.taken_over
            if how is not None:
                tried = granted if how.unlocked else of_files(lock._tried)
                stack.enter_context(mock.patch.object(lock, "_tried", tried))
            stack.enter_context(mock.patch.object(endpoints, "open_transport", self.network.open))
            stack.enter_context(mock.patch.object(client, "offloaded", self.reading.offloaded))
            stack.enter_context(mock.patch.object(scheduler, "play", self._play))
            stack.enter_context(heard(partial(answered, self)))
            stack.enter_context(mock.patch.object(sweep, "open_store", partial(open_store, inline=True)))
            yield

    def _pid(self) -> int:
        """Stands in for `os.getpid`."""
        return self.network.process if self.process is None else self.process.pid

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
            self.end_all()
            self.checks.losing_power()
            self.memory.changed = True
            self.disk.lose_power(Stream(self.scenario.seed, "power", number))
        else:
            self.disk.forget_nothing()

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A callback of a process's loop has raised: asyncio itself would only print it."""
        del loop
        flaw = context.get("exception")
        if isinstance(flaw, BaseException) and not self.disk.dead:
            self.flaws.append(flaw)

    async def _main(self, life: Life, *, repair: bool) -> RunOutcome | str:
        asyncio.get_running_loop().set_exception_handler(self.failed)
        options = RunOptions(directory=self.run, repair=repair, play_all=self.play_all)
        second: asyncio.Task[RunOutcome | str] | None = None
        first = asyncio.ensure_future(self.begun(options))
        if life.twice_turn is not None:
            second = asyncio.ensure_future(self._beside(life.twice_turn, options))
        try:
            return await first
        except Broken as flaw:
            self.flaws.append(flaw)
            raise Died from flaw
        finally:
            if second is not None:
                second.cancel()
                with suppress(asyncio.CancelledError):
                    await second

    async def begun(self, options: RunOptions) -> RunOutcome | str:
        try:
            return await run_sweep(self._resolved_now(), options, lambda view: None)
        except EvalkitError as flaw:
            return f"{type(flaw).__name__}: {flaw}"
        except ExceptionGroup as group:
            raise first_of(group) from None
        except BaseExceptionGroup as group:
            found = group.split(Broken)[0]
            raise first_of(found if found is not None else group) from None

    def _resolved_now(self) -> ResolvedSweep:
        """The sweep, as it is played in this life."""
        crew, given = None if self.life is None else self.life.crew, self.resolved
        if crew is None:
            return given
        return replace(given, sweep=replace(given.sweep, workers=crew.workers, on="ray"))

    async def _beside(self, turn: int, options: RunOptions) -> RunOutcome | str:
        """A second process on the same run: it must be refused while the first writes."""
        process = self.process
        assert process is not None
        while process.turn < turn:  # noqa: ASYNC110 - the turns of the loop are what it waits for
            await asyncio.sleep(0.01)
        if holder(self.run) is None:
            return ""  # the first has let go already
        before = len(self.network.history)
        found = await self.begun(options)
        if not (isinstance(found, str) and "is being written" in found):
            raise Broken(f"a second process was not refused: {found} ({len(self.network.history) - before} requests)")
        self.counts["twice"] += 1
        self.say("a second process is refused")
        return found

    def _wall_time(self) -> float:
        return self.wall + (self.now if self.loop is None else self.loop.time())

    def _turn(self) -> None:
        """Once each time round the loop."""
        process, life = self.process, self.life
        assert process is not None
        assert life is not None
        process.turn += 1
        turn, loop = process.turn, process.loop
        if self.flaws:
            self.disk.dead = self.network.dead = True  # what was found in a callback is told at once
        if self.disk.dead:
            raise Died
        if turn == life.die_turn:
            self.say(f"the process dies at turn {turn} of the loop")
            self.counts["die_turn"] += 1
            self.disk.dead = self.network.dead = True
            raise Died
        if life.dies_crowded and len(self.network.in_flight) >= self.crowd:
            self.say(f"the process dies with {len(self.network.in_flight)} requests in flight")
            self.counts["dies_crowded"] += 1
            self.disk.dead = self.network.dead = True
            raise Died
        if turn in life.stopped:
            self.counts["stopped"] += 1
            self.say(f"the process is stopped for {life.stopped[turn]:.1f} s")
            loop.skip(life.stopped[turn])
            self.others_live(loop.time())
        if turn in life.jumps:
            self.counts["clock_jump"] += 1
            self.say(f"the wall clock jumps {life.jumps[turn]:+.0f} s")
            self.wall += life.jumps[turn]
        if life.taken_over is not None and turn == life.taken_over.turn:
            self.taking.begins(life.taken_over)
        if turn == life.interrupt_turn:
            self._interrupt()
        self.moves(loop)

    def moves(self, loop: SimLoop) -> None:
        """Raises Hung where a process waits for longer than anything may take."""
        waited = loop.time() - max(self.progress, self.network.progress)
        if waited > LONGEST_WAIT_S:
            raise Hung(f"nothing was sent, answered or written for {waited:.0f} s: {loop.waiting()}")

    def _interrupt(self) -> None:
        """Ctrl-C, where the process listens for it."""
        assert self.loop is not None
        handle = self.loop._signal_handlers.get(signal.SIGINT)  # type: ignore[attr-defined]
        if handle is not None:
            self.counts["interrupt"] += 1
            self.say("Ctrl-C")
            self.loop.call_soon(handle._run)


async def _at_once(work: Callable[..., Result], *given: object) -> Result:
    """Stands in for `asyncio.to_thread`: virtual time knows no threads."""
    return work(*given)
