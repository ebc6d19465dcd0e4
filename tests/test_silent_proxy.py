"""The proxy of the tests passes everything on, and resets what is silent."""

import asyncio

import pytest

from tests.support.silent_proxy import silent_proxy


async def _server(sizes: list[int], pause_s: float) -> tuple[asyncio.Server, str]:
    """It answers a line with so many bytes each, a pause before each piece; and reads the next line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            for size in sizes:
                await asyncio.sleep(pause_s)
                writer.write(b"x" * size)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def _asked(url: str, size: int, times: int = 1) -> None:
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for _ in range(times):
            writer.write(b"question\n")
            assert len(await reader.readexactly(size)) == size
    finally:
        writer.close()


def test_what_both_say_is_passed_on_whole() -> None:
    async def go() -> None:
        server, url = await _server([3, 5_000_000], 0.0)
        async with server, silent_proxy(url, 600.0) as proxy:
            assert proxy.url.endswith("/v1")
            assert proxy.url != url
            await _asked(proxy.url, 5_000_003, times=3)
            assert (proxy.connections, proxy.resets) == (1, 0)

    asyncio.run(go())


def test_a_connection_without_a_byte_of_its_answer_is_reset() -> None:
    async def go() -> None:
        server, url = await _server([1], 600.0)
        async with server, silent_proxy(url, 0.05) as proxy:
            with pytest.raises(ConnectionResetError):
                await _asked(proxy.url, 1)
            assert (proxy.unanswered, proxy.begun) == (1, 0)

    asyncio.run(go())


def test_a_connection_that_falls_silent_in_its_answer_is_reset() -> None:
    async def go() -> None:
        server, url = await _server([1], 0.0)
        async with server, silent_proxy(url, 0.05) as proxy:
            with pytest.raises(ConnectionResetError):
                await _asked(proxy.url, 2)
            assert (proxy.unanswered, proxy.begun) == (0, 1)

    asyncio.run(go())
