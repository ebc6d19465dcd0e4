"""Replies over HTTP without sockets, so that virtual time does not run away from them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

Write = Callable[[bytes], Awaitable[None]]
Say = Callable[[Write], Awaitable[None]]


def say_to_all(monkeypatch: pytest.MonkeyPatch, say: Say, headers: Mapping[str, str] | None = None) -> None:
    """Every session's `post` gets a reply whose head is there at once, and whose body is what `say` writes."""

    async def post(session: aiohttp.ClientSession, url: object, **request: object) -> Any:
        del session, url, request
        connection = ResponseHandler(asyncio.get_running_loop())
        connection.connection_made(asyncio.Transport())
        body = aiohttp.StreamReader(connection, 2**16)

        async def write(piece: bytes) -> None:
            body.feed_data(piece)

        async def answer() -> None:
            await say(write)
            body.feed_eof()

        answering = asyncio.get_running_loop().create_task(answer())
        return SimpleNamespace(
            status=200,
            headers=headers or {},
            content=body,
            content_length=None,
            connection=None,
            closed=False,
            close=answering.cancel,
        )

    monkeypatch.setattr(aiohttp.ClientSession, "post", post)
