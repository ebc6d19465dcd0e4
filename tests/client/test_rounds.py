"""Sockets that are read in rounds: pieces gather in the kernel, and nothing that must be seen at once is late.

The rounds of most tests are so far apart that none comes: what is seen, was seen without one.
"""

import asyncio
import fcntl
import ssl
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from evalkit.client.streaming import MARK_BYTES, SHARE, SUPPORTED, Gathering, Rounds
from tests.support.certificates import self_signed
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="only Linux looks at a socket's low-water mark")

NEVER_S = 1e6
TLS_RECORD_BYTES = 22
"""What TLS 1.3 adds to each piece: a header, a type and a tag."""
RUNNERS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
Say = Callable[[asyncio.StreamWriter], Awaitable[None]]
Run = Callable[[Awaitable[None]], None]


class Reading(asyncio.Protocol):
    """What a client's protocol is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.changed = asyncio.Event()
        self.ended = False

    def data_received(self, data: bytes) -> None:
        """The next piece."""
        self.pieces.append(data)
        self.changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        """The end."""
        self.ended = True
        self.changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Return when it is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                self.changed.clear()
                await self.changed.wait()

    @property
    def size(self) -> int:
        """Bytes that came."""
        return sum(map(len, self.pieces))


async def served(
    say: Say, read: Callable[[Reading, asyncio.Transport], Awaitable[None]], tls: tuple[ssl.SSLContext, ...] = ()
) -> None:
    """Connect to a server that says something, and read it. `tls`: the server's context and the client's."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await say(writer)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls[0] if tls else None)
    port = server.sockets[0].getsockname()[1]
    context, name = (tls[1], "localhost") if tls else (None, None)
    transport, reading = await asyncio.get_running_loop().create_connection(
        Reading, "127.0.0.1", port, ssl=context, server_hostname=name
    )
    try:
        await read(reading, transport)
    finally:
        transport.abort()
        server.close()


def joined(rounds: Rounds, transport: asyncio.Transport) -> Gathering:
    """The socket is read in rounds from now on, of which none comes by itself."""
    since = asyncio.get_running_loop().time() - NEVER_S / SHARE
    found = rounds.join(transport, since=since, most_s=NEVER_S)
    assert found is not None
    return found


async def hold_round(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the next round now."""
    assert rounds._timer is not None
    rounds._timer.cancel()
    with monkeypatch.context() as patch:
        patch.setattr("evalkit.client.streaming._EARLY_S", 2 * NEVER_S)
        rounds._begin()
    for _ in range(4):
        await asyncio.sleep(0)


async def until_waiting(reading: Reading, transport: asyncio.Transport, size: int) -> None:
    """Until so many bytes wait in the kernel, or some were read."""
    file, held = transport.get_extra_info("socket").fileno(), bytearray(4)
    async with asyncio.timeout(PATIENCE_S):
        while not reading.pieces and int.from_bytes(held, sys.byteorder) < size:
            await asyncio.sleep(0.001)
            fcntl.ioctl(file, termios.FIONREAD, held)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    certificate = self_signed(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=certificate)


async def trickle(writer: asyncio.StreamWriter) -> None:
    """A hundred pieces, each for itself."""
    for number in range(100):
        writer.write(b"%03d" % number)
        await asyncio.sleep(0.001)


WHOLE = b"".join(b"%03d" % number for number in range(100))


@RUNNERS
@pytest.mark.parametrize("secure", [False, True])
def test_pieces_gather_until_a_round_and_come_whole(
    run: Run, secure: bool, tls: tuple[ssl.SSLContext, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    may, said = asyncio.Event(), asyncio.Event()

    async def say(writer: asyncio.StreamWriter) -> None:
        await may.wait()
        await trickle(writer)
        said.set()
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        gathering, held = joined(rounds := Rounds(), transport), 0
        may.set()
        await said.wait()
        await until_waiting(reading, transport, len(WHOLE) + 100 * (TLS_RECORD_BYTES if secure else 0))
        assert not reading.pieces
        async with asyncio.timeout(PATIENCE_S):
            while reading.size < len(WHOLE):
                held += 1
                await hold_round(rounds, monkeypatch)
        gathering.leave()
        rounds.close()
        assert b"".join(reading.pieces) == WHOLE
        assert len(reading.pieces) <= 2 * held < 30  # a loop may look twice while a round lasts

    run(served(say, read, tls if secure else ()))


@RUNNERS
def test_the_end_of_a_connection_is_seen_at_once_with_what_came_before(run: Run) -> None:
    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        gathering = joined(rounds := Rounds(), transport)
        await reading.until(lambda: reading.ended)
        gathering.leave()
        rounds.close()
        assert b"".join(reading.pieces) == WHOLE

    run(served(trickle, read))


@RUNNERS
def test_many_bytes_are_read_at_once(run: Run) -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        for _ in range(40):
            writer.write(b"x" * MARK_BYTES)
            await writer.drain()
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        gathering = joined(rounds := Rounds(), transport)
        await reading.until(lambda: reading.size >= 39 * MARK_BYTES)
        gathering.leave()
        rounds.close()

    run(served(say, read))


@RUNNERS
def test_whoever_has_left_is_read_at_once(run: Run) -> None:
    go = asyncio.Event()

    async def say(writer: asyncio.StreamWriter) -> None:
        await go.wait()
        go.clear()
        writer.write(b"held")
        await go.wait()
        writer.write(b"seen")
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        gathering = joined(rounds := Rounds(), transport)
        go.set()
        await until_waiting(reading, transport, 4)
        assert not reading.pieces
        gathering.leave()
        gathering.leave()
        await reading.until(lambda: reading.size == 4)
        go.set()
        await reading.until(lambda: reading.size == 8)
        rounds.close()

    run(served(say, read))


def test_a_round_finds_nobody_who_has_left_and_a_connection_that_closes_takes_no_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        del reading
        rounds, flaws = Rounds(), list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: flaws.append(context))
        joined(rounds, transport).leave()
        await hold_round(rounds, monkeypatch)
        assert (flaws, rounds._timer) == ([], None)
        transport.abort()
        assert rounds.join(transport, since=0.0) is None
        rounds.close()

    asyncio.run(served(say, read))


def test_without_a_descriptor_left_each_piece_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: int) -> int:
        raise OSError(24, "Too many open files")

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        monkeypatch.setattr("evalkit.client.streaming.os.dup", none_left)
        assert Rounds().join(transport, since=0.0) is None
        monkeypatch.undo()
        await reading.until(lambda: reading.ended)
        assert b"".join(reading.pieces) == WHOLE

    asyncio.run(served(trickle, read))
