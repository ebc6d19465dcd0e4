"""Plays a session in actors of a Ray cluster: starts them, carries what they ask and what is answered, and starts
others for those that end.

Ray decides nothing about safety. That it calls an actor dead is a hint: a process may go on for a minute after that. So
a worker is settled as one of any machine is (`silence.py`): sealed, once its share of the limits has lapsed. Only then
another takes its place.
"""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from typing import Any

from evalkit.engine.gc_threshold import seldom_collected
from evalkit.engine.loop import SIGNALS
from evalkit.engine.machines.messages import Bye, Hello, Welcome, WorkerRefused, decode_question, encode
from evalkit.engine.machines.process import FAILED, REFUSED, RayWorker, Said
from evalkit.engine.machines.silence import DistantWorkers, RayHead, reach
from evalkit.engine.machines.spread import NOTHING_MORE, Spread, WorkerSlot, too_often
from evalkit.errors import CorruptLogError, StorageError, UsageError
from evalkit.store.bucket import is_bucket
from evalkit.store.files.layout import journals

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
        directory = spread.session.options.directory
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
        directory = self._session.options.directory
        return is_bucket(directory) or any(journal.writer == writer for journal in journals(directory))

    def _elsewhere(self) -> str:
        return (
            f"{self._directory} is another directory on this worker's node than on the coordinator's. All nodes need "
            "the same: use a bucket, or a disk that they share (`--dir`)."
        )
