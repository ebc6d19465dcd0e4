"""Plays a session in actors of a Ray cluster: starts them, carries what they ask and what is answered, and starts
others for those that end.

Ray decides nothing about safety. That it calls an actor dead is a hint: a process may go on for a minute after that. So
a worker is settled as one of any machine is (`DistantWorkers`): sealed, once its share of the limits has lapsed. Only
then another takes its place.
"""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from typing import Any

from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.loop import SIGNALS
from evalkit.engine.machines.dealt import WorkerState
from evalkit.engine.machines.messages import Bye, Hello, Welcome, WorkerRefused, decode_question, encode
from evalkit.engine.machines.process import FAILED, REFUSED, RayWorker, Said
from evalkit.engine.machines.spread import NOTHING_MORE, TICK_S, Spread, WorkerSlot, too_often
from evalkit.engine.options import Stop
from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.store.bucket import is_bucket
from evalkit.store.files.journal import refuse_sealed
from evalkit.store.files.layout import journals

# Workers that nobody here can reap: one that is silent for long is taken for lost, whatever it does.
#
# Nobody can tell from afar a process that has ended from one that stands still or is cut off. So its journal is
# sealed, all that it was lent is charged, and others go on with its episodes. If it comes back, its next write meets
# the seal.

BEGIN_S = 900.0
"""A worker that has been let in may read the log for so long before it asks for episodes."""
ASK_S = 5.0
"""How often one that has no workers looks whether another one coordinates the run."""
NOTICED_S = 1.0
"""The coordinator stood still itself if its clock has jumped by more: then nobody was silent meanwhile."""


class DistantWorkers:
    """Watches the workers of a run that are elsewhere, and settles those that are lost."""

    def __init__(
        self,
        spread: Spread,
        *,
        is_connected: Callable[[str], bool],
        is_given_up: Callable[[str], bool],
    ) -> None:
        """Both by writer. `is_given_up`: whether somebody says that it has ended, which may be wrong."""
        self._spread, self._is_connected, self._is_given_up = spread, is_connected, is_given_up
        self._session, self._coordinator = spread.session, spread.coordinator
        self._looked_at = self._asked_at = spread.loop.time()

    async def watch(self, group: asyncio.TaskGroup, is_over: Callable[[], bool]) -> None:
        """Return once it is over, and all that are lost are settled."""
        burials = dict[str, asyncio.Task[None]]()
        while not is_over() or burials:
            self._spread.look(starting=False)
            self._look_who_leads()
            for writer in self._silent():
                if writer not in burials:
                    burials[writer] = group.create_task(self._bury(writer))
            burials = {writer: task for writer, task in burials.items() if not task.done()}
            await asyncio.sleep(TICK_S)

    def ends(self) -> bool:
        """Whether nothing more is begun."""
        return self._coordinator.finishing or bool(self._session.stop.reason)

    def _look_who_leads(self) -> None:
        """Without workers nothing is written, and a coordinator would not learn that its run was taken over: on a disk
        whose locks do not hold it would wait for workers for good."""
        store, now = self._session.store, self._spread.loop.time()
        if store.lead is None and not self._coordinator.members and now >= self._asked_at + ASK_S:
            self._asked_at = now
            try:
                refuse_sealed(self._session.options.place, store.writer)
            except (StorageError, CorruptLogError) as flaw:
                self._stop(flaw)

    def _silent(self) -> list[str]:
        """Workers that have said nothing for too long."""
        now = self._spread.loop.time()
        paused_s = now - self._looked_at - TICK_S
        self._looked_at = now
        members = self._coordinator.members.values()
        if paused_s > NOTICED_S:
            for member in members:
                member.heard += paused_s
        return [member.writer for member in members if now - member.heard > self._patience_s(member)]

    def _patience_s(self, member: WorkerState) -> float:
        """How long a worker may be silent. One that has not asked for episodes reads the log, if it is connected; and
        it holds nothing, so no end of a run waits for it. Where one is given up, its share of the limits must have
        lapsed all the same: it may still be sending."""
        if self._is_given_up(member.writer):
            return self._spread.times.share_s
        reads = member.report is None and self._is_connected(member.writer) and not self.ends()
        return BEGIN_S if reads else self._spread.times.silent_s

    async def _bury(self, writer: str) -> None:
        self._spread.replaced += 1
        try:
            await self._spread.bury(writer, who=writer.split("-", 1)[1].rsplit("-", 1)[0])
        except (StorageError, CorruptLogError) as flaw:
            self._stop(flaw)
            self._coordinator.members.pop(writer, None)

    def _stop(self, flaw: StorageError | CorruptLogError) -> None:
        self._session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))


# Whether the head of a Ray cluster still answers.
#
# A cluster that has lost its head works on for a while. Then Ray ends each of its processes at once, this one too. So
# a run ends by itself before: what is on its way comes back, workers close their journals, and nothing is charged.

VARIABLE = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Where Ray reads how long its processes live without a head."""
RAY_WAITS_S = 60.0
"""So long, if nothing else is said."""
STOP_SHARE, LEAVE_SHARE = 0.5, 0.7
"""Of that time: until the first a head may come back; until the second what is on its way may. Then Ray's own goodbye
takes some seconds, because it asks the head, too."""
HEAD_LOOK_S = 2.0
CONNECT_S = 5.0


async def reach(address: str) -> None:
    """Raises OSError where nobody listens. Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()


def ray_waits_s() -> float:
    """How long Ray's processes live without a head."""
    try:
        return float(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return RAY_WAITS_S


class RayHead:
    """The head of the cluster that this process is connected to."""

    def __init__(self, address: str) -> None:
        self._address, self._ray_waits_s = address, ray_waits_s()
        self.silent_since: float | None = None
        """On the loop's clock, since when it does not answer; None: it did when it was last tried."""

    async def watch(self, stop: Stop) -> None:
        """Have the run stop if the head is silent for long; return if this process must leave before Ray ends it."""
        loop, reached = asyncio.get_running_loop(), False
        while True:
            tried = loop.time()
            try:
                await reach(self._address)
                reached, self.silent_since = True, None
            except OSError:
                # An address that was never reached from here, as behind a proxy, says nothing.
                self.silent_since = self.silent_since or (tried if reached else None)
            silent_s = 0.0 if self.silent_since is None else loop.time() - self.silent_since
            if silent_s >= STOP_SHARE * self._ray_waits_s:
                stop.set("cluster", self._words(silent_s))
            if silent_s >= LEAVE_SHARE * self._ray_waits_s:
                return
            await asyncio.sleep(HEAD_LOOK_S)

    def _words(self, silent_s: float) -> str:
        return (
            f"The head of the Ray cluster ({self._address}) has not answered for {silent_s:.0f} s, and Ray ends a "
            f"cluster {self._ray_waits_s:.0f} s after it has lost its head. Run again on a cluster that works, or with "
            "`--on here`."
        )


ADDRESS = "RAY_ADDRESS"
"""Where the cluster is, as Ray's own commands read it; unset: this node's. `local`: one for this call alone."""
CPUS = 1
"""That an actor reserves."""
OBJECT_STORE_BYTES = 80_000_000
"""Of a cluster for one call; messages are smaller than what Ray puts there."""
LOOK_S = 0.5
"""How often it is looked whether a worker that does not answer was sealed, or nothing more is begun."""
PLACE_S = 45.0
"""An actor starts within seconds where the cluster has room. One that has not answered for so long is told of."""
AGAIN_S = 1.0
"""An actor that cannot be reached is called again after so long."""


def check_ray() -> str:
    """The address of the cluster. Raises UsageError where Ray is not installed, or the address is none."""
    if find_spec("ray") is None:
        raise UsageError("--on ray: Ray is not installed: pip install 'evalkit-econ[ray]', on all nodes.")
    address = os.environ.get(ADDRESS, "").strip() or "auto"
    if "://" in address:
        raise UsageError(
            f"{ADDRESS}: {address} would tie the run to the connection of a remote client. Run evalkit on a node of "
            "the cluster, for example by `ray job submit -- evalkit run ... --on ray`."
        )
    return address


@asynccontextmanager
async def on_cluster(workers: int) -> AsyncIterator[None]:
    """While the context lasts, this process is connected to the cluster. Raises UsageError if there is none."""
    address = check_ray()
    for name, value in (("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_enable_metrics_collection", "0")):
        os.environ.setdefault(name, value)  # read when Ray is imported
    import ray

    if ray.is_initialized():  # by the program that has called
        yield
        return
    own: dict[str, Any] = {}
    if address == "local":
        own = {"num_cpus": workers, "include_dashboard": False}
        own["object_store_memory"] = OBJECT_STORE_BYTES
    try:
        await reach(address)
        # In a thread: it takes seconds, and would take the main thread's signal handlers.
        await asyncio.to_thread(ray.init, address=address, log_to_driver=False, logging_level="WARNING", **own)
    except (OSError, RuntimeError, ValueError) as flaw:
        raise UsageError(
            f"No Ray cluster answers at {address!r}: {str(flaw).splitlines()[0] if str(flaw) else flaw!r}. Start one "
            "(`ray start --head`), or name it by RAY_ADDRESS; `RAY_ADDRESS=local` is one of this machine alone."
        ) from flaw
    _take_signals_back()
    try:
        yield
    finally:
        await asyncio.to_thread(ray.shutdown)


def _take_signals_back() -> None:
    """Ray's library has put a handler of its own before ours: it writes a stack, and aborts three seconds later."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.getsignal(number))
            signal.siginterrupt(number, False)


async def play_on_ray(spread: Spread) -> None:
    """Play all lanes in as many actors as the sweep says; return when nothing remains, or the run stops, and each has
    ended or was settled."""
    with seldom_collected():
        await _RayActors(spread).play()


class _RayActors:
    def __init__(self, spread: Spread) -> None:
        import ray

        self._spread, self._session, self._coordinator = spread, spread.session, spread.coordinator
        directory = spread.session.options.place
        self._directory = directory if is_bucket(directory) else directory.resolve()
        self._ray = ray
        self._actor = ray.remote(RayWorker).options(
            num_cpus=CPUS,
            scheduling_strategy="SPREAD",
            max_restarts=0,
            max_task_retries=0,
        )
        self._called = set[str]()
        """Writers whose actor answers, or is awaited."""
        self._given_up = set[str]()
        """Writers whose actor Ray calls dead, or which has ended without goodbye."""
        self._refused = list[str]()
        self._last_words = ""
        """Of an actor that has ended on its own."""
        self._slots = [WorkerSlot(number) for number in range(spread.workers)]
        self._told = False
        """Whether it was said that some wait for a place."""
        self._head = RayHead(ray.get_runtime_context().gcs_address)
        self._distant = DistantWorkers(
            spread, is_connected=self._called.__contains__, is_given_up=self._given_up.__contains__
        )

    async def play(self) -> None:
        """See `play_on_ray`."""
        try:
            async with asyncio.TaskGroup() as group:
                head = group.create_task(self._head.watch(self._session.stop))
                lives = [group.create_task(self._live(slot)) for slot in self._slots]
                await self._distant.watch(
                    group,
                    lambda: head.done() or (all(life.done() for life in lives) and not self._coordinator.members),
                )
                for task in (head, *lives):
                    task.cancel()
        except BaseExceptionGroup as flaws:
            raise flaws.exceptions[0] from None
        finally:
            self._coordinator.abandon()
        self._spread.look(starting=False)
        if not self._coordinator.idle() and not self._session.stop.reason:
            self._session.stop.set("workers", self._words())

    def _words(self) -> str:
        if self._refused:
            return f"No worker may play: {self._refused[-1]}"
        return too_often(self._spread.workers, self._last_words)

    async def _live(self, slot: WorkerSlot) -> None:
        """One slot, actor after actor, until nothing remains to be done."""
        store = self._session.store
        for _ in count():
            if not slot.may_begin(self._spread.loop.time()):
                store.event("fewer_workers", worker=slot.number, detail="It was replaced too often.")
                return
            slot.begun.append(self._spread.loop.time())
            try:
                code, words = await self._one(slot)
            except (StorageError, CorruptLogError) as flaw:
                self._session.stop.set("storage" if isinstance(flaw, StorageError) else "corrupt", str(flaw))
                return
            if code == 0 or self._distant.ends():
                return
            if code == REFUSED:
                self._refused.append(words)
                store.event("worker_refused", worker=slot.number, detail=words)
                if self._session.options.announce is not None:
                    self._session.options.announce([f"Worker {slot.number} may not play: {words}"])
                return
            self._last_words = words or self._last_words
            store.event("worker_ended", worker=slot.number, detail=words)

    async def _one(self, slot: WorkerSlot) -> tuple[int, str]:
        """One actor of a slot, to its end, and until it is settled: its exit code, and why it could not go on."""
        slot.writer, number, answer = "", 0, b""
        actor = self._actor.remote(str(self._directory), self._spread.times.orphan_s)
        try:
            while isinstance(said := await self._turn(slot, actor, number, answer), bytes):
                question = decode_question(said)
                if isinstance(question, Hello) and not self._sees(question.writer):
                    reply: Any = WorkerRefused(why=self._elsewhere())
                else:
                    reply = await self._spread.answer(question)
                if isinstance(question, Hello) and isinstance(reply, Welcome):
                    slot.writer = question.writer
                    self._called.add(slot.writer)
                if isinstance(question, Bye):
                    self._called.discard(slot.writer)
                    slot.writer = ""
                number, answer = number + 1, encode(reply)
            return (0, "") if said == (REFUSED, NOTHING_MORE.why) else said
        except asyncio.CancelledError:
            slot.writer = ""  # nobody watches any more who is silent: the next call settles what it leaves
            raise
        finally:
            await self._settled(slot.writer)
            # What is settled may end: else one that stands still would keep its place from the one that follows.
            self._ray.kill(actor)

    async def _settled(self, writer: str) -> None:
        """Wait until a worker that was let in, and that says nothing more, is settled."""
        self._called.discard(writer)
        self._given_up.add(writer)
        while True:
            if writer not in self._coordinator.members:
                return
            await asyncio.sleep(LOOK_S)

    async def _turn(self, slot: WorkerSlot, actor: Any, number: int, answer: bytes) -> Said:
        """What an actor says next. Whether it is the last that it says is decided here, and is no proof of anything."""
        from ray.exceptions import ActorUnavailableError, RayError

        while True:
            call = asyncio.wrap_future(actor.turn.remote(number, answer).future())
            try:
                while not call.done():
                    await asyncio.wait([call], timeout=LOOK_S)
                    if call.done():
                        break
                    if slot.writer and slot.writer not in self._coordinator.members:
                        return FAILED, "It said nothing for too long, and was sealed."
                    if not slot.writer and self._distant.ends():
                        return 0, ""  # it was never let in, or has said goodbye
                    if not number and self._spread.loop.time() > slot.begun[-1] + PLACE_S:
                        await self._tell_of_places()
                said: Said = call.result()
                return said
            except ActorUnavailableError:
                await asyncio.sleep(AGAIN_S)
            except RayError as flaw:
                return FAILED, str(flaw).strip()
            finally:
                call.cancel()  # nobody hears its answer any more, if it is still to come

    async def _tell_of_places(self) -> None:
        """Say once how many actors wait, and for what; a head that is silent would be asked in vain."""
        if self._told or self._head.silent_since is not None:
            return
        self._told = True
        waiting = sum(not slot.writer for slot in self._slots)
        has = (await asyncio.to_thread(self._ray.cluster_resources)).get("CPU", 0.0)
        words = (
            f"{waiting} of {len(self._slots)} workers have no place after {PLACE_S:.0f} s: each needs {CPUS} CPU, "
            f"and the Ray cluster has {has:g} for all its programs. They start when there is room; the others play "
            "meanwhile."
        )
        self._session.store.event("workers_wait", waiting=waiting, detail=words)
        if self._session.options.announce is not None:
            self._session.options.announce([words])

    def _sees(self, writer: str) -> bool:
        """Whether this node sees the journal that a worker has begun: else both have directories of the same name."""
        directory = self._session.options.place
        return is_bucket(directory) or writer in journals(directory)

    def _elsewhere(self) -> str:
        return (
            f"{self._directory} is another directory on this worker's node than on the coordinator's. All nodes need "
            "the same: use a bucket, or a disk that they share (`--dir`)."
        )
