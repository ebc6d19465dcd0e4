"""A process that works for the one that has started it (`children.py`), over a stream between the two."""

import asyncio
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from evalkit.engine.loop import run_loop
from evalkit.engine.machines.messages import (
    Attend,
    Gone,
    Question,
    Reply,
    WorkerRefused,
    WorkerSetup,
    WorkerTransport,
    decode_reply,
    encode,
)
from evalkit.engine.machines.worker import Worker
from evalkit.errors import EvalkitError, UsageError
from evalkit.frozen.manifests import is_run
from evalkit.store.bucket import is_bucket, place_of
from evalkit.store.files.schema import FORMAT
from evalkit.text import visible
from evalkit.version import __version__

GONE, FAILED, REFUSED = 4, 1, 2
"""Exit codes: the coordinator has ended; the worker could not go on; it may not, or need not, work."""
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
        code, words = await ended(_work(run, link))
    finally:
        link.close()
    if code:
        print(visible(words), file=sys.stderr, flush=True)
    return code


async def ended(work: Coroutine[Any, Any, None]) -> tuple[int, str]:
    """Let a worker work: (the exit code of its end, why it could not go on)."""
    try:
        await work
    except Gone as flaw:
        return GONE, str(flaw)
    except UsageError as flaw:
        return REFUSED, str(flaw)
    except EvalkitError as flaw:
        return FAILED, str(flaw)
    return 0, ""


async def _work(run: str, link: WorkerLink) -> None:
    await Worker(place_of(run), await attended(link), link).work()


async def attended(coordinator: WorkerTransport) -> WorkerSetup:
    """What there is to do. Raises UsageError where there is nothing, Gone."""
    answer = await coordinator.ask(Attend(evalkit=__version__, log=FORMAT))
    if isinstance(answer, WorkerRefused):
        raise UsageError(answer.why)
    assert isinstance(answer, WorkerSetup)
    return answer


# A worker that is an actor of a Ray cluster. It imports nothing of Ray: `on_ray.py` makes an actor of it.
#
# Its coordinator calls it, again and again, and each call brings the answer to the worker's last question and takes
# its next one. So messages need no port, certificate or token of their own: whoever may start actors on the cluster
# is let in by Ray.

Said = bytes | tuple[int, str]
"""A question, or that the worker has ended: an exit code of `process.py`, and why it could not go on."""


class CalledTransport:
    """A transport whose coordinator comes for the questions. Calls may be repeated where their answer was lost."""

    def __init__(self, orphan_s: float) -> None:
        self._orphan_s = orphan_s
        """A coordinator that has not answered for so long is gone."""
        self._number = 0
        """Of the newest question."""
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._questions: dict[int, bytes] = {}
        self._asked = asyncio.Condition()

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer. Raises Gone."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        async with self._asked:
            self._questions[number], self._answers[number] = encode(question), answer
            self._asked.notify_all()
        try:
            async with asyncio.timeout(self._orphan_s):
                return decode_reply(await answer)
        except TimeoutError:
            raise Gone(f"no answer for {self._orphan_s:.0f} s") from None

    async def turn(self, number: int, answer: bytes) -> bytes:
        """Hear the answer to one question, and give the next."""
        awaited = self._answers.pop(number, None)
        if awaited is not None and not awaited.done():  # whoever gave up waiting has cancelled it
            awaited.set_result(answer)
        self._questions.pop(number, None)
        async with self._asked:
            await self._asked.wait_for(lambda: number + 1 in self._questions)
        return self._questions[number + 1]


class RayWorker:
    """One worker, for as long as its actor lives."""

    def __init__(self, place: str, orphan_s: float) -> None:
        self._place = place
        self._transport = CalledTransport(orphan_s)
        self._life: asyncio.Task[tuple[int, str]] | None = None

    async def turn(self, number: int, answer: bytes) -> Said:
        """Take the answer to the question of this number, 0 at first, and give the next; or say that it has ended."""
        if self._life is None:
            self._life = asyncio.create_task(ended(self._work()))
        talking = asyncio.create_task(self._transport.turn(number, answer))
        await asyncio.wait([talking, self._life], return_when=asyncio.FIRST_COMPLETED)
        if talking.done():
            return talking.result()
        talking.cancel()
        code, words = self._life.result()
        return code, f"on {socket.gethostname()}: {words}" if code == FAILED else words

    async def _work(self) -> None:
        """Work until the run ends. Raises EvalkitError."""
        directory = place_of(self._place)
        if not is_bucket(directory) and not is_run(directory):
            raise UsageError(
                f"There is no run at {directory} on {socket.gethostname()}. All nodes need the run's directory: use a "
                "bucket, or a disk that they share (`--dir`)."
            )
        again = True
        while again:
            again = await Worker(directory, await attended(self._transport), self._transport).work()


if __name__ == "__main__":
    sys.exit(run_loop(main(int(sys.argv[1]), sys.argv[2])))
