"""A TCP proxy that resets a connection on which no byte came from the server for some time, as many gateways do.

It reads no HTTP, so a kept connection that waits for its next request is reset too. A process that stood still loses no
connection by it.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit, urlunsplit

_NO_LINGER = struct.pack("ii", 1, 0)


class SilentProxy:
    """Where to connect, and what was done."""

    def __init__(self, silent_s: float) -> None:
        self.silent_s = silent_s
        self.connections = 0
        self.unanswered = 0
        """Connections reset while a request on them had no byte of its answer."""
        self.begun = 0
        """Connections reset after the last byte came from the server: in the middle of an answer, or between two."""
        self.url = ""
        """The URL that was given, with the proxy's address instead of the server's."""
        self.open: set[_End] = set()

    @property
    def resets(self) -> int:
        """Connections that were reset."""
        return self.unanswered + self.begun


class _End(asyncio.Protocol):
    """One end of a connection: what it receives goes to the other end."""

    def __init__(self, proxy: SilentProxy, address: tuple[str, int], client: "_End | None" = None) -> None:
        self.proxy, self.address, self.other = proxy, address, client
        self.is_server = client is not None
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []
        """What the client sent before the server was reached."""
        self.heard_s = 0.0
        """When the server last sent something, or the client began to wait for it."""
        self.waits = False
        """Whether the client sent something after the server's last byte."""
        self.timer: asyncio.TimerHandle | None = None
        self.doubted_s = -1.0
        """The `heard_s` for which it was silent when it was last looked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.proxy.open.add(self)
        if self.is_server:
            assert self.other is not None
            self.other.other = self
            for data in self.other.early:
                self.transport.write(data)
            return
        self.proxy.connections += 1
        self.heard_s = asyncio.get_running_loop().time()
        self.timer = asyncio.get_running_loop().call_later(self.proxy.silent_s, self._look)
        self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _End(self.proxy, self.address, self), *self.address
            )
        except OSError:
            self.reset()

    def data_received(self, data: bytes) -> None:
        client = self.other if self.is_server else self
        assert client is not None
        if self.is_server or not client.waits:
            client.heard_s = asyncio.get_running_loop().time()
        client.waits = not self.is_server
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, flaw: Exception | None) -> None:
        self.proxy.open.discard(self)
        if self.timer is not None:
            self.timer.cancel()
        other = self.other
        if other is None or other.transport is None:
            return
        if flaw is None:
            other.transport.close()
        else:
            other.reset()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self.heard_s + self.proxy.silent_s - loop.time()
        if left_s > 0 or self.doubted_s != self.heard_s:
            # Looked at twice: where the process stood still, what was due is sent and read before the second time.
            self.doubted_s = self.heard_s if left_s <= 0 else -1.0
            self.timer = loop.call_later(max(left_s, self.proxy.silent_s / 10), self._look)
            return
        if self.waits:
            self.proxy.unanswered += 1
        else:
            self.proxy.begun += 1
        self.reset()
        if self.other is not None:
            self.other.reset()

    def reset(self) -> None:
        """Break the connection so that its peer sees a reset and no orderly end."""
        if self.transport is None:
            return
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()


@asynccontextmanager
async def silent_proxy(url: str, silent_s: float) -> AsyncIterator[SilentProxy]:
    """A proxy before the server of `url` that resets a connection without a byte from the server for `silent_s`.

    Its own `url` is to be asked instead.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    proxy, address = SilentProxy(silent_s), (parts.hostname, parts.port or 80)
    server = await asyncio.get_running_loop().create_server(lambda: _End(proxy, address), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.url = urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
    try:
        yield proxy
    finally:
        server.close()
        for end in list(proxy.open):
            end.reset()
        await server.wait_closed()
