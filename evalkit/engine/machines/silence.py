"""Workers that nobody here can reap: one that is silent for long is taken for lost, whatever it does.

Nobody can tell from afar a process that has ended from one that stands still or is cut off. So its journal is sealed,
all that it was lent is charged, and others go on with its episodes. If it comes back, its next write meets the seal.
"""

import asyncio
import os
from collections.abc import Callable

from evalkit.engine.episode import Stop
from evalkit.engine.machines.dealt import WorkerState
from evalkit.engine.machines.spread import TICK_S, Spread
from evalkit.errors import CorruptLogError, StorageError
from evalkit.store.files.journal import refuse_sealed

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
                refuse_sealed(self._session.options.directory, store.writer)
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
            await self._spread.bury(writer, who=writer.split("-", 1)[1].rsplit("-", 1)[0], reaped=False)
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
LOOK_S = 2.0
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
            await asyncio.sleep(LOOK_S)

    def _words(self, silent_s: float) -> str:
        return (
            f"The head of the Ray cluster ({self._address}) has not answered for {silent_s:.0f} s, and Ray ends a "
            f"cluster {self._ray_waits_s:.0f} s after it has lost its head. Run again on a cluster that works, or with "
            "`--on here`."
        )
