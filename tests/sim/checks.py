"""What must hold at every instant of a run, whatever happens to it."""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from evalkit.errors import CorruptLogError
from evalkit.frozen.manifests import is_run
from evalkit.frozen.question_files import read_given
from evalkit.seeds import Stream
from evalkit.store.files.layout import lay_out
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.segment import CLOSE, KINDS, SEAL, claim, money_of
from evalkit.store.reading.accounts import UNACCOUNTED, accounts, spent
from evalkit.store.reading.index import RunIndex, read_index
from evalkit.store.reading.reader import scan
from evalkit.store.writing.compact import tail_of
from tests.sim.commands import called, findings, lines_for
from tests.sim.harm import Held
from tests.sim.network import Sent
from tests.sim.players import Asks, asks_of
from tests.sim.process import Process
from tests.sim.remembered import KEYS
from tests.sim.sweeps import AT_EACH, LIMITS, SEVERAL

if TYPE_CHECKING:
    from tests.sim.world import World

PEEKS = 0.02
"""How often somebody reads the log while it is written: per operation of the disk."""
REPORTS = 0.04
"""How often a report is made, per life, of the log as it stands when the life has ended; a third of that as often in
the midst of one."""
COMMANDS = 0.1
"""In what share of the seeds every command is called at the end."""
DESCRIBED = ("manifest", "suites")
"""Folders of files that describe the run."""


Answers = Mapping[tuple[str, ...], tuple[str, int, str]]
"""By what is asked: (the answer, the draws it was given with, their digest)."""


def answers_of(run: Path) -> Answers:
    """The answers that a run has given."""
    answers = [answer for given in read_given(run) for answer in given.answers]
    return {tuple(one.about): (one.answer, one.draws, one.digest) for one in answers}


class Broken(BaseException):
    """A promise that does not hold. No Exception: the engine must not take it for a bug of an episode."""


class Checks:
    """The promises to one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._draws = Stream(world.scenario.seed, "checks")
        self._books = 0
        """The most that the run has said it spent."""
        self._paid = 0
        """The same without charges for crashes."""
        self.suspended = False
        """Whether the log is damaged and not repaired yet: then nobody is promised to be able to read it."""
        self.forgot = False
        """Whether rows of money may have been lost to damage: then nobody can know all that was spent."""
        self._given: Answers = {}
        """The answers that the run has given."""
        self._left: frozenset[str] = frozenset()
        """Lanes of the agents that no open question needed when the life began."""
        self._told = 0
        """What damaged files had told of spending, as long as the rest of the log tells it too."""

    def looked(self, what: str, path: Path) -> None:
        """Before each operation of the disk: now and then, somebody reads the log."""
        del what, path
        if self.suspended or self._draws.uniform() >= PEEKS or not is_run(self._world.run):
            return
        self._world.counts["peeks"] += 1
        index = read_index(self._world.run)
        self._all_there(index)
        self._each_row_once()
        self._never_less(index)
        self._within_budget(index)
        if self._draws.uniform() < REPORTS / 3:
            self._report(index)

    def sending(self, sent: Sent) -> None:
        """Before each request leaves."""
        world = self._world
        process = world.process
        assert process is not None
        process.sent += 1
        leader = world.leader(process)
        leader.sent += leader is not process
        later = (world.leader(world.processes[one.process]).number > leader.number for one in world.network.history)
        if leader.sent == 1 and not any(later):
            self.settled()
        if process.sealed_by is not None and process.sealed_by == process.of:
            raise Broken(f"{sent.episode}/{sent.step} is sent by a worker that its coordinator has taken for lost")
        if process.fenced is not None and sent.at > process.fenced:
            raise Broken(f"{sent.episode}/{sent.step} is sent by a process that was told that another writes its run")
        if any(
            (one.process, one.episode, one.step, one.ask) == (sent.process, sent.episode, sent.step, sent.ask)
            for one in world.network.in_flight.values()
        ):
            raise Broken(f"{sent.id(sent.attempt)} is sent while it is in flight")
        if world.coded:
            self._asking(sent, process)
        held = set(range(sent.step)) if world.coded else world.durable.get(sent.episode, set())
        missing = set(range(sent.step)) - held
        if missing:
            raise Broken(f"{sent.episode}/{sent.step} is sent while step {min(missing)} is not durable")
        # Of two that write at once, one has not been told yet, and does not know what the other has made durable.
        if sent.step in held and (self._alone(process) or (sent.episode, sent.step) in process.knows):
            raise Broken(f"{sent.episode}/{sent.step} is asked again: its reply is durable")
        team = {one.number for one in world.team(process)}
        mine = [one for one in world.network.history if one.lane == sent.lane and one.process in team]
        flying = sum(one.lane == sent.lane and one.process in team for one in world.network.in_flight.values()) + 1
        if flying > world.most_flying:
            raise Broken(f"{flying} requests of {sent.lane} are in flight; width is {world.scenario.width}")
        limits = LIMITS.get(sent.lane.partition("/")[0], {})
        recent = sum(one.at > sent.at - 60 for one in mine) + 1
        world.counts["tight"] += recent == limits.get("requests_per_minute") or flying == limits.get("in_flight")
        if recent > limits.get("requests_per_minute", recent):
            raise Broken(f"{recent} requests of {sent.lane} within a minute; the limits are {limits}")
        if flying > limits.get("in_flight", flying):
            raise Broken(f"{flying} requests of {sent.lane} are in flight; the limits are {limits}")
        budget = world.resolved.sweep.budget
        if budget is not None and world.network.bill > budget:
            raise Broken(f"the bill is {world.network.bill}, the budget {budget}")
        if sent.lane in self._left and not sent.step:
            raise Broken(f"{sent.episode} begins, though all questions about {sent.lane} were answered before")

    def _alone(self, process: Process) -> bool:
        """Whether nobody else can go on with what a process plays."""
        return self._world.second is None and process.sealed_by is None

    def writing(self, what: str, path: Path) -> None:
        """Before each operation of the disk: whose journal was ended adds nothing to the log."""
        process = self._world.process
        if process is None or process.sealed_by is None or path.suffix != ".parquet" or self._world.second is not None:
            return
        if what == "rename" or (what == "link" and not path.exists()):
            raise Broken(f"{path.parent.name}/{path.name} is written by a process whose journal was ended")

    def _asking(self, sent: Sent, process: Process) -> None:
        """Before a request of an agent that is code leaves."""
        world, place = self._world, (sent.step, sent.ask)
        if place in world.asked.get(sent.episode, set()) and (
            self._alone(process) or (sent.episode, place) in process.knows_asks
        ):
            raise Broken(f"{sent.id(sent.attempt)} is asked again: its reply is durable")

    def charged_before(self, sent: Sent) -> None:
        """Before another attempt leaves: what its provider has billed for earlier ones is charged, and that lasts. A
        charge does not say for which ask of its step it is, so those are counted that no attempt may follow yet."""
        world = self._world
        assert world.process is not None
        own = [one for one in world.network.history if one.process == world.process.number]
        session = f"-{world.process.pid}-"
        for attempt in range(sent.attempt):
            place = sent.episode, sent.step, attempt
            tried = {one for one in own if (one.episode, one.step, one.attempt - 1) == place}
            asks = {sent.ask, *(one.ask for one in tried)}
            remaining = sum(
                (world.process.number, replace(sent, ask=ask).id(attempt)) in world.network.remaining for ask in asks
            )
            lasting = (one for each in world.charged.values() for one in each)
            if remaining > sum(session in one[0] and one[1:] == place for one in lasting):
                raise Broken(
                    f"{sent.episode}/{sent.step}/{sent.attempt} is sent while no charge for attempt {attempt} lasts"
                )

    def room_at(self, sent: Sent) -> None:
        """Before each request: one of several servers has no more of the lane's requests than it may have."""
        if sent.lane.partition("/")[0] != SEVERAL:
            return
        place = sent.process, sent.lane, sent.server
        flying = sum((one.process, one.lane, one.server) == place for one in self._world.network.in_flight.values())
        if flying >= AT_EACH:
            raise Broken(f"{sent.server} is asked {flying + 1} times at once by {sent.lane}; it may be {AT_EACH} times")

    def settled(self) -> None:
        """Before the first request of a life: what earlier lives may have spent is on the books."""
        if self.suspended:
            self.accept()
        index = read_index(self._world.run)
        self._never_less(index)
        self._all_accounted(index)
        self._answers_stay()
        books = _books(index)
        if self._world.network.bill > books and not self.forgot:
            raise Broken(f"a life begins with {books} on the books and a bill of {self._world.network.bill}")

    def between_lives(self, *, closed: bool) -> None:
        """After each life, when the disk holds what it left."""
        run = self._world.run
        if not is_run(run) or (self.suspended and not closed):
            return
        if self.suspended:
            self.accept()
        index = read_index(run)
        self._all_there(index)
        self._each_row_once()
        self._never_less(index)
        self._within_budget(index)
        self._all_accounted(index)
        self._answers_stay()
        bill, books = self._world.network.bill, _books(index)
        if closed and bill > books and not self.forgot:
            raise Broken(f"a life has closed its books at {books}; the bill is {bill}")
        given_up = self._world.network.given_up
        if closed and self._world.coded and given_up:
            raise Broken(f"{given_up[0].id(given_up[0].attempt)} is given up by a process that closed its books")
        if self._draws.uniform() < REPORTS:
            self._report(index)

    def losing_power(self) -> None:
        """Before a loss of power: somebody may have read on the books what had not lasted yet."""
        world = self._world
        if not self._books:
            return
        if self.suspended:
            self._losing_what_mends()
            return
        with tempfile.TemporaryDirectory(dir=world.folder.parent) as folder:
            world.disk.certain(world.run, Path(folder))
            index = read_index(Path(folder)) if is_run(Path(folder)) else None
        self._books = min(self._books, _books(index)) if index else 0
        self._paid = min(self._paid, _paid(index)) if index else 0

    def _losing_what_mends(self) -> None:
        """Before a loss of power, in a log that is damaged: what had not lasted goes, and with an object of a journal
        goes what it told of the damaged files."""
        world = self._world
        files = [path for path in world.disk.uncertain(world.run) if path.suffix == ".parquet"]
        lost = sum(told(path.read_bytes()) for path in files)
        if any(path.parent.parent.name == "log" for path in files):
            self.forgot, lost, self._told = True, lost + self._told, 0
        self._books, self._paid = self._books - lost, self._paid - lost

    def harmed(self, before: Mapping[Path, bytes], *, knew: bool) -> None:
        """Files that had lasted are others, and stay so. `before`: what they held. `knew`: whether a repair can know
        what was spent: the damage is noticed, and it took no rows of money. Where it cannot, all that other files told
        stays on the books."""
        self.suspended = True
        self.forgot |= not knew
        lost = sum(map(told, before.values()))
        if self.forgot:
            self._books, self._paid = self._books - lost, self._paid - lost
        else:
            self._told += lost

    def accept(self) -> None:
        """What the log holds now counts from here on."""
        self.suspended, self._told = False, 0
        index = read_index(self._world.run)
        self._world.durable.clear()
        for episode, held in index.episodes.items():
            if held.steps:
                self._world.durable[episode] = set(range(held.steps))
        self._world.asked.clear()
        for episode, step, ask in asks_of(self._world.run) if self._world.coded else ():
            self._world.asked.setdefault(episode, set()).add((step, ask))

    def _all_accounted(self, index: RunIndex) -> None:
        """Nothing is charged for which nobody knows what it was spent on: until the log is damaged."""
        world = self._world
        if world.counts["files_gone"] + world.counts["flips"]:
            return
        for row in index.ledger:
            if row.kind == "charge" and row.reason == UNACCOUNTED:
                raise Broken(f"{row.session} is charged {row.amount} that it has not spent")

    def _answers_stay(self) -> None:
        """What was answered once is answered for good, and who left because of it stays away: until the log is damaged,
        since a repaired one may lack the scores that an answer rests on."""
        if not self._world.asking:
            return
        given, damaged = answers_of(self._world.run), self._world.counts["files_gone"] + self._world.counts["flips"]
        changed = [about for about, answer in self._given.items() if given.get(about) != answer]
        if changed:
            raise Broken(f"{' and '.join(changed[0])}: the answer was {self._given[changed[0]]}")
        self._given = given
        agents = self._world.resolved.manifest.agents
        needed = {name for pair in combinations(agents, 2) if pair not in given for name in pair}
        self._left = frozenset(agents[name].lane for name in agents.keys() - needed if not damaged)

    def _answers_as_usual(self, usual: Answers) -> None:
        """The answers are those of a run left in peace, and none is missing unless money was."""
        self._answers_stay()
        self._world.counts["answers"] += len(self._given)
        for about, answer in self._given.items():
            if usual.get(about) != answer:
                raise Broken(f"{' and '.join(about)}: the answer is {answer}, and was to be {usual.get(about)}")
        if self._world.scenario.budget_share is None and self._given.keys() != usual.keys():
            raise Broken(f"not answered: {usual.keys() - self._given.keys()}")

    def at_the_end(self, usual: Mapping[tuple[str, int], bytes], asked: Asks, answers: Answers) -> None:
        """When the run is complete, decided, or out of money. `usual`, `asked`, `answers`: its steps, asks and answers
        without any disturbance."""
        run = self._world.run
        found = findings(run)
        if found:
            raise Broken(f"verify: {found}")
        for place, digest in self.steps().items():
            if usual.get(place) != digest:
                raise Broken(f"{place[0]}/{place[1]} is not the step of a run left in peace")
        if self._world.coded:
            self._asks_as_usual(asked)
        if self._world.asking:
            self._answers_as_usual(answers)
        if self._draws.uniform() < COMMANDS:
            self.commands()

    def complete(self, episodes: int, *, failed: bool) -> None:
        """When a process says that its run is complete: of all that the sweep asks for, the log holds the end, and all
        its rows are in compacted files. `failed`: another process went on after that, and its disk refused something,
        so it has told its user to start the same command again."""
        ended = sum(bool(one.ending) for one in read_index(self._world.run).episodes.values())
        if ended < episodes:
            raise Broken(f"the run says that it is complete, and {ended} of {episodes} episodes have ended")
        # The journal of a process that could not take the run over may still be there, empty.
        left = [tail_of(one) for kind in KINDS for one in lay_out(self._world.run, kind).segments if one.is_object]
        if not failed and any(tail.table is not None or tail.entries for tail in left):
            raise Broken("the run says that it is complete, and other programs do not find all its rows in steps/")

    def _asks_as_usual(self, usual: Asks) -> None:
        """The asks are those of a run left in peace, and none is missing that led to a step."""
        held, steps = asks_of(self._world.run), self.steps()
        for (episode, step, ask), holds in held.items():
            if usual.get((episode, step, ask)) != holds:
                raise Broken(f"{episode}/{step} {ask} is not the ask of a run left in peace")
        for episode, step, ask in usual.keys() - held.keys():
            if (episode, step) in steps:
                raise Broken(f"{episode}/{step} lacks the ask {ask} that led to it")

    def steps(self) -> dict[tuple[str, int], bytes]:
        """The rows in effect: digests by episode and step."""
        table = scan(self._world.run, ("episode", "step", "step_digest"))
        columns = (table.column(name).to_pylist() for name in ("episode", "step", "step_digest"))
        return {(episode, step): digest for episode, step, digest in zip(*columns, strict=True)}

    def held(self) -> Held:
        """What readers find in the log: steps, money, ended episodes."""
        index = read_index(self._world.run)
        return Held(
            steps=self.steps(),
            episodes={name: (one.steps, one.ending, one.cost) for name, one in index.episodes.items()},
            ledger=index.ledger,
            totals=dict(index.totals),
            asks=asks_of(self._world.run) if self._world.coded else {},
        )

    def commands(self) -> None:
        """Every command works where `verify` has found nothing."""
        for line in lines_for(self._world.run, self._world.folder, self._world.spec):
            self._world.counts["commands"] += 1
            code, said = called(line, self._world.spec.parent)
            if code not in (0, 3):
                raise Broken(f"verify finds nothing, and evalkit {line[0]} ends with {code}: {said[-300:]}")

    def _report(self, index: RunIndex) -> None:
        """The report of whatever prefix of the run is there holds exactly that."""
        self._world.counts["reports"] += 1
        code, said = called(["report", str(self._world.run), "--json"])
        if code:
            raise Broken(f"a report of {index.rows} rows ends with {code}: {said[-300:]}")
        found = orjson.loads(said)
        ended = sum(bool(one.ending) for one in index.episodes.values())
        told = sum(row["ended"] for row in found["tables"]["completeness"]["rows"])
        if (found["run"]["ended"], told) != (ended, ended):
            raise Broken(f"the report says {found['run']['ended']} and {told} episodes have ended; in the log {ended}")

    def _within_budget(self, index: RunIndex) -> None:
        """What is on the books, with what is leased and not spent, covers the bill and keeps the budget."""
        budget = self._world.resolved.sweep.budget
        if budget is None or self.forgot:
            return
        bill, books = self._world.network.bill, _books(index)
        held = accounts(index.ledger, index.cost_by_worker).values()
        rest = sum(one.open_leases for one in held)
        if bill > books + rest:
            raise Broken(f"the bill is {bill}; steps and charges are {books}, open leases hold {rest}")
        if books + rest > budget:
            raise Broken(f"steps and charges are {books}, open leases hold {rest}; the budget is {budget}")

    def _all_there(self, index: RunIndex) -> None:
        for episode, steps in self._world.durable.items():
            held = index.episodes.get(episode)
            if held is None or held.steps <= max(steps):
                has = 0 if held is None else held.steps
                raise Broken(f"{episode} has {has} steps; {max(steps) + 1} were durable")
        held_asks = asks_of(self._world.run) if self._world.coded else {}
        for episode, places in self._world.asked.items():
            lost = [place for place in places if (episode, *place) not in held_asks]
            if lost:
                raise Broken(f"{episode} lacks the ask {min(lost)}, which was durable")

    def _each_row_once(self) -> None:
        """A glob of `steps/`, as other programs read a run, holds whole files and no row twice."""
        seen: set[tuple[object, ...]] = set()
        for path in sorted((self._world.run / "steps").glob("*.parquet")):
            table = self._world.memory.columns(path, *KEYS)
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if row in seen:
                    raise Broken(f"steps/ holds {row} twice")
                seen.add(row)

    def _never_less(self, index: RunIndex) -> None:
        books = _books(index)
        if books < self._books:
            raise Broken(f"the books fell from {self._books} to {books}")
        paid = _paid(index)
        if paid < self._paid:
            raise Broken(f"steps and charges fell from {self._paid} to {paid}")
        self._books, self._paid = books, paid


def charges(path: Path) -> list[tuple[str, str, int, int]]:
    """(session, episode, step, attempt) of the charges in an object of a journal."""
    held = path.read_bytes()
    if b'"charge"' not in held:
        return []
    return [(row.session, row.episode, row.step, row.attempt) for row in _money(held) if row.kind == "charge"]


def built_on(names: Iterable[Path]) -> bool:
    """Whether a process that goes on builds on one of these new names: on a folder, a file that describes the run, or
    the end of a journal. What else a journal holds lasts with its end."""
    for path in names:
        if path.is_dir() or path.parent.name in DESCRIBED:
            return True
        if path.parent.parent.name == "log" and path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                if claim(file.metadata).get("kind") in (CLOSE, SEAL):
                    return True
    return False


def told(held: bytes) -> int:
    """What rows in a file's bytes say was spent, in pico-dollars. A file that was damaged before, and that nobody reads
    because a larger one holds its rows, says nothing."""
    try:
        with pq.ParquetFile(pa.BufferReader(held)) as file:
            names = file.schema_arrow.names
            if "ending" in names and "step" not in names:
                return 0  # episodes that have ended: their steps lie elsewhere
            rows = file.read(columns=[name for name in ("cost", "kind", "amount") if name in names]).to_pylist()
        in_footer = _money(held)
    except (OSError, pa.ArrowException, CorruptLogError):
        return 0
    steps: int = sum(row.get("cost", 0) for row in rows)
    money: list[tuple[str, int]] = [(row["kind"], row["amount"]) for row in rows if "amount" in row]
    money += [(row.kind, row.amount) for row in in_footer]
    return steps + sum(amount for kind, amount in money if kind in ("charge", "crash"))


def _money(held: bytes) -> list[LedgerRecord]:
    """The money rows in the footer of an object of a journal."""
    with pq.ParquetFile(pa.BufferReader(held)) as file:
        return money_of(claim(file.metadata), "it")


def _paid(index: RunIndex) -> int:
    """Steps and charges, but for those of crashes: these are so large that they would hide what is forgotten."""
    held = accounts(index.ledger, index.cost_by_worker).values()
    return int(index.totals["cost"]) + sum(account.charged for account in held)


def _books(index: RunIndex) -> int:
    return spent(index.totals["cost"], accounts(index.ledger, index.cost_by_worker).values())
