"""Sockets that are read in rounds: pieces gather in the kernel, and nothing that must be seen at once is late.

The rounds of most tests are so far apart that none comes: what is seen, was seen without one.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from evalkit.client.rounds import MARK_BYTES, SHARE, SUPPORTED, Gathering, Rounds
from tests.support.certificates import self_signed
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="only Linux looks at a socket's low-water mark")

NEVER_S = 1e6
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


def joined(rounds: Rounds, transport: asyncio.Transport, *, never: bool = True) -> Gathering:
    """The socket is read in rounds from now on, about one a second. `never`: none comes."""
    since = asyncio.get_running_loop().time() - (NEVER_S if never else 1.0) / SHARE
    found = rounds.join(transport, since=since, most_s=NEVER_S)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    certificate = self_signed(tmp_path_factory.mktemp("tls"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    return server, ssl.create_default_context(cafile=certificate)


async def trickle(writer: asyncio.StreamWriter) -> None:
    """A hundred pieces within at least a fifth of a second."""
    for number in range(100):
        writer.write(b"%03d" % number)
        await asyncio.sleep(0.002)


WHOLE = b"".join(b"%03d" % number for number in range(100))


@RUNNERS
@pytest.mark.parametrize("secure", [False, True])
def test_pieces_gather_until_a_round_and_come_whole(run: Run, secure: bool, tls: tuple[ssl.SSLContext, ...]) -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        await trickle(writer)
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        gathering = joined(rounds := Rounds(), transport, never=False)
        await reading.until(lambda: reading.size == len(WHOLE))
        gathering.leave()
        rounds.close()
        assert b"".join(reading.pieces) == WHOLE
        assert len(reading.pieces) < 30

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
        writer.write(b"held")
        await go.wait()
        writer.write(b"seen")
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        gathering = joined(rounds := Rounds(), transport)
        await asyncio.sleep(0.1)
        assert not reading.pieces
        gathering.leave()
        gathering.leave()
        await reading.until(lambda: reading.size == 4)
        go.set()
        await reading.until(lambda: reading.size == 8)
        rounds.close()

    run(served(say, read))


def test_a_round_finds_nobody_who_has_left_and_a_connection_that_closes_takes_no_part() -> None:
    async def say(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(PATIENCE_S)

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        del reading
        rounds = Rounds()
        joined(rounds, transport, never=False).leave()
        await asyncio.sleep(1.5)  # its round comes
        transport.abort()
        assert rounds.join(transport, since=0.0) is None
        rounds.close()

    asyncio.run(served(say, read))


def test_without_a_descriptor_left_each_piece_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: int) -> int:
        raise OSError(24, "Too many open files")

    async def read(reading: Reading, transport: asyncio.Transport) -> None:
        monkeypatch.setattr("evalkit.client.rounds.os.dup", none_left)
        assert Rounds().join(transport, since=0.0) is None
        monkeypatch.undo()
        await reading.until(lambda: reading.ended)
        assert b"".join(reading.pieces) == WHOLE

    asyncio.run(served(trickle, read))
