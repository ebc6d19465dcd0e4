"""Whether the head of a Ray cluster still answers.

A cluster that has lost its head works on for a while. Then Ray ends each of its processes at once, this one too. So a
run ends by itself before: what is on its way comes back, workers close their journals, and nothing is charged.
"""

import asyncio
import os

from evalkit.engine.episode import Stop

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
