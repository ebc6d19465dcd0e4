"""Messages over a stream between two processes: each is its length, then its bytes."""

import asyncio
import socket
from contextlib import suppress

import msgspec

from evalkit.engine.machines.messages import Question, Reply, decode_reply, encode
from evalkit.errors import EvalkitError

LENGTH_BYTES = 4
MOST_BYTES = 1 << 26
"""What a message may have at most; those of the largest runs have a hundredth of it."""


class Gone(EvalkitError):
    """The other process has ended, or has closed the connection."""


class WorkerLink:
    """One end of a connection; a transport (`messages.py`) that lasts as long as it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.most_bytes = MOST_BYTES

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
            length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            if length > self.most_bytes:
                raise Gone(f"a message of {length:,} bytes")
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as flaw:
            raise Gone("the other process has ended") from flaw

    async def ask(self, question: Question) -> Reply:
        """A worker's question, answered. Raises Gone."""
        await self.send(encode(question))
        try:
            return decode_reply(await self.receive())
        except msgspec.MsgspecError as flaw:
            raise Gone(f"an answer that is none ({flaw})") from flaw

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError, RuntimeError):
            self._writer.close()


async def linked(end: socket.socket) -> WorkerLink:
    """A connection over one end of a pair of sockets."""
    end.setblocking(False)
    return WorkerLink(*await asyncio.open_unix_connection(sock=end))
