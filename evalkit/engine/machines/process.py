"""A process that works for the one that has started it (`children.py`), over a stream between the two."""

import asyncio
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from evalkit import __version__
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
from evalkit.store.bucket import place_of
from evalkit.store.files.schema import FORMAT

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
        print(words, file=sys.stderr, flush=True)
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


if __name__ == "__main__":
    sys.exit(run_loop(main(int(sys.argv[1]), sys.argv[2])))
