"""A process that works for the one that has started it: over a stream between the two (`children.py`), or as an actor
of a Ray cluster (`on_ray.py`)."""

import asyncio
import socket
import sys
from contextlib import suppress
from pathlib import Path

from evalkit.engine.loop import run_loop
from evalkit.errors import EvalkitError, UsageError
from evalkit.frozen.manifests import is_run
from evalkit.machines.messages import (
    ENDED,
    FAILED,
    GONE,
    REFUSED,
    Gone,
    Question,
    Reply,
    WorkerTransport,
    decode_reply,
    encode,
)
from evalkit.machines.worker import Worker
from evalkit.store.bucket import is_bucket, place_of
from evalkit.text import visible

LENGTH_BYTES = 4


class WorkerLink:
    """One end of a stream between two processes: each message is its length, then its bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes as one message. Raises Gone."""
        try:
            self._writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
            await self._writer.drain()
        except (OSError, RuntimeError) as flaw:  # uvloop raises the second where the connection is closed
            raise Gone("the other process has ended") from flaw

    async def receive(self) -> bytes:
        """The next message. Raises Gone."""
        try:
            return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big"))
        except (asyncio.IncompleteReadError, OSError) as flaw:
            raise Gone("the other process has ended") from flaw

    async def ask(self, question: Question) -> Reply:
        """A worker's question, answered. Raises Gone."""
        await self.send(encode(question))
        return decode_reply(await self.receive())

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError, RuntimeError):
            self._writer.close()


async def linked(end: socket.socket) -> WorkerLink:
    """A connection over one end of a pair of sockets."""
    end.setblocking(False)
    return WorkerLink(*await asyncio.open_unix_connection(sock=end))


async def main(descriptor: int, run: str) -> int:
    """Work for the process at the other end of a socket; the exit code."""
    link = await linked(socket.socket(fileno=descriptor))
    try:
        code, words = await worked(place_of(run), link)
    finally:
        link.close()
    if code:
        print(visible(words), file=sys.stderr, flush=True)
    return code


async def worked(run: Path, coordinator: WorkerTransport) -> tuple[int, str]:
    """Work until the run ends: (the exit code, why it could not go on)."""
    try:
        await Worker(run, coordinator).work()
    except Gone as flaw:
        return GONE, str(flaw)
    except UsageError as flaw:
        return REFUSED, str(flaw)
    except EvalkitError as flaw:
        return FAILED, str(flaw)
    return ENDED, ""


# A worker that is an actor of a Ray cluster. It imports nothing of Ray: `on_ray.py` makes an actor of it.
#
# Its coordinator calls it, again and again, and each call brings the answer to the worker's last question and takes
# its next one. So messages need no port, certificate or token of their own: whoever may start actors on the cluster
# is let in by Ray.

Said = bytes | tuple[int, str]
"""A question, or that the worker has ended: how, and why it could not go on."""


class CalledTransport:
    """A transport whose coordinator comes for the questions. Calls may be repeated where their answer was lost."""

    def __init__(self, orphan_s: float) -> None:
        self._orphan_s = orphan_s
        """A coordinator that has not answered for so long is gone."""
        self._number, self._question = 0, b""
        """The newest question, and how many there were."""
        self._answer: asyncio.Future[bytes] | None = None
        self._asked = asyncio.Condition()

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer. Raises Gone."""
        async with self._asked:
            self._number, self._question = self._number + 1, encode(question)
            self._answer = answer = asyncio.get_running_loop().create_future()
            self._asked.notify_all()
        try:
            async with asyncio.timeout(self._orphan_s):
                return decode_reply(await answer)
        except TimeoutError:
            raise Gone(f"no answer for {self._orphan_s:.0f} s") from None

    async def turn(self, number: int, answer: bytes) -> bytes:
        """Hear the answer to one question, and give the next."""
        if number == self._number and self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)  # whoever gave up waiting has cancelled it
        async with self._asked:
            await self._asked.wait_for(lambda: self._number > number)
        return self._question


class RayWorker:
    """One worker, for as long as its actor lives."""

    def __init__(self, place: str, orphan_s: float) -> None:
        self._place, self._transport = place, CalledTransport(orphan_s)
        self._life: asyncio.Task[tuple[int, str]] | None = None

    async def turn(self, number: int, answer: bytes) -> Said:
        """Take the answer to the question of this number, 0 at first, and give the next; or say that it has ended."""
        if self._life is None:
            self._life = asyncio.create_task(self._live())
        talking = asyncio.create_task(self._transport.turn(number, answer))
        await asyncio.wait([talking, self._life], return_when=asyncio.FIRST_COMPLETED)
        if talking.done():
            return talking.result()
        talking.cancel()
        code, words = self._life.result()
        return code, f"on {socket.gethostname()}: {words}" if code == FAILED else words

    async def _live(self) -> tuple[int, str]:
        run = place_of(self._place)
        if not is_bucket(run) and not is_run(run):
            return REFUSED, (
                f"There is no run at {run} on {socket.gethostname()}. All nodes need the run's directory: use a "
                "bucket, or a disk that they share (`--dir`)."
            )
        return await worked(run, self._transport)


if __name__ == "__main__":
    sys.exit(run_loop(main(int(sys.argv[1]), sys.argv[2])))
