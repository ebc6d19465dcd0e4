"""Plays a session in actors of a Ray cluster: starts them, carries what they ask and what is answered, and starts
others for those that end.

Ray decides nothing about safety. That it calls an actor dead is a hint: a process may go on for a minute after that,
and nobody can tell from afar one that has ended from one that stands still or is cut off. So a worker that is silent
for long is taken for lost, whatever it does: its journal is sealed, once its part of the limits has lapsed, and all
that it was lent is charged. Only then another takes its place. If it comes back, its next write meets the seal.
"""

import asyncio
import math
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

from evalkit.engine.loop import SIGNALS
from evalkit.engine.options import Stop
from evalkit.errors import UsageError
from evalkit.machines.messages import FAILED
from evalkit.machines.process import RayWorker, Said
from evalkit.machines.spread import BEGINS_S, Spread, WorkerSlot
from evalkit.store.bucket import is_bucket

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
"""How often it is looked whether a worker that does not answer is lost, or nothing more is begun."""
READS_S = 900.0
"""A worker that has been let in may read the log for so long before it asks for episodes."""
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


def patience_s(spread: Spread, slot: WorkerSlot) -> float:
    """How long a slot's worker may be silent. One that has not reported yet reads the log; and it has nothing, so no
    end of a run waits for it."""
    member = spread.allocator.members.get(slot.writer)
    if member is None:
        return math.inf
    return READS_S if member.report is None and not spread.ends else spread.times.silent_s


class _RayActors:
    def __init__(self, spread: Spread) -> None:
        import ray

        self._spread, self._session, self._ray = spread, spread.session, ray
        options = {"num_cpus": CPUS, "scheduling_strategy": "SPREAD", "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(RayWorker).options(**options)
        self._told = False
        """Whether it was said that some wait for a place."""
        self._head = RayHead(ray.get_runtime_context().gcs_address)

    async def play(self) -> None:
        """Play all lanes in as many actors as the sweep says; return when nothing remains, or the run stops, and each
        has ended or was settled."""
        await self._spread.play(self._live, beside=lambda: self._head.watch(self._session.stop))

    async def _live(self, slot: WorkerSlot) -> tuple[int, str]:
        """One actor of a slot, to its end, and until it is settled."""
        number, answer, place = 0, b"", self._session.options.place
        actor = self._actor.remote(str(place if is_bucket(place) else place.resolve()), self._spread.times.orphan_s)
        try:
            while isinstance(said := await self._turn(slot, actor, number, answer), bytes):
                number, answer = number + 1, await self._spread.hear(slot, said)
            while (member := self._spread.allocator.members.get(slot.writer)) is not None:
                # It says nothing more, and may still be sending: until its part of the limits has lapsed.
                rest_s = member.heard + self._spread.times.share_s - self._spread.loop.time()
                if rest_s <= 0:
                    await self._spread.close_lost(slot)
                await asyncio.sleep(max(0.0, rest_s))
            return said
        finally:
            # What is settled may end: else one that stands still would keep its place from the one that follows.
            self._ray.kill(actor)

    async def _turn(self, slot: WorkerSlot, actor: Any, number: int, answer: bytes) -> Said:
        """What an actor says next. Whether it is the last that it says is decided here, and is no proof of anything."""
        from ray.exceptions import ActorUnavailableError, RayError

        silent_s = 0.0  # as far as this process was awake
        while True:
            call = asyncio.wrap_future(actor.turn.remote(number, answer).future())
            try:
                while not call.done():
                    await asyncio.wait([call], timeout=LOOK_S)
                    if call.done():
                        break
                    silent_s += LOOK_S
                    if silent_s > patience_s(self._spread, slot):
                        return FAILED, "It said nothing for too long, and was sealed."
                    if not slot.writer and self._spread.ends:
                        return 0, ""  # it was never let in, or has said goodbye
                    if not number and self._spread.loop.time() > slot.begun[-1] + BEGINS_S:
                        await self._tell_of_places()
                said: Said = call.result()
                return said
            except ActorUnavailableError:
                silent_s += AGAIN_S
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
        waiting, slots = sum(slot.begins for slot in self._spread.slots), len(self._spread.slots)
        has = (await asyncio.to_thread(self._ray.cluster_resources)).get("CPU", 0.0)
        words = (
            f"{waiting} of {slots} workers have no place after {BEGINS_S:.0f} s: each needs {CPUS} CPU, and the Ray "
            f"cluster has {has:g} for all its programs. They start when there is room; the others play meanwhile."
        )
        self._session.store.event("workers_wait", waiting=waiting, detail=words)
        if self._session.options.announce is not None:
            self._session.options.announce([words])


async def play_on_ray(spread: Spread) -> None:
    """Play all lanes in actors of the cluster that this process is connected to."""
    await _RayActors(spread).play()
