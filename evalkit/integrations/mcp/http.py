"""ServedEpisodes over HTTP, on this machine alone: each has a URL of its own that nobody can guess.

`POST /episodes` begins one and answers with its URL. What a browser sends for another site is refused
(`loopback.py`).
"""

import json
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server import streamable_http
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from evalkit.errors import UsageError
from evalkit.integrations.mcp.server import EpisodeServer
from evalkit.integrations.play_session import PlaySession
from evalkit.loopback import HOST, REFUSED, refusal

_SDK = TransportSecuritySettings(enable_dns_rebinding_protection=False)
"""The SDK's own check takes anything for a port."""
JSON = "application/json"
MOST_EPISODES = 1000
"""That one server keeps."""
MOST_BODY = 64 * 1024

Begin = Callable[[str, int], Awaitable[PlaySession]]
"""(instance, replicate) -> an episode; an empty instance is the suite's first. Raises UsageError."""


class ServedEpisodes:
    """All episodes of a server."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        logging.getLogger(streamable_http.__name__).addFilter(_stayed)
        self._apps: dict[str, StreamableHTTPASGIApp] = {}
        self._tasks: TaskGroup | None = None

    def app(self, started: Callable[[], Awaitable[None]]) -> Starlette:
        """The application; `started` is awaited once episodes can be added."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await started()
                yield
                tasks.cancel_scope.cancel()

        routes = [Route("/episodes", self._post, methods=["POST"]), Mount("/episodes", app=self._episode)]
        return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard)])

    async def add(self, session: PlaySession) -> str:
        """Serve an episode; its path. Raises UsageError."""
        if len(self._apps) >= MOST_EPISODES:
            raise UsageError(f"This server has {MOST_EPISODES:,} episodes, which is the most. Start another.")
        episode = EpisodeServer(session)
        manager = StreamableHTTPSessionManager(app=episode.server, security_settings=_SDK)
        assert self._tasks is not None
        await self._tasks.start(_host, manager)
        name = secrets.token_urlsafe(24)
        self._apps[name] = StreamableHTTPASGIApp(manager)
        return f"/episodes/{name}/mcp"

    async def _episode(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, _, rest = scope["path"].removeprefix("/episodes/").partition("/")
        app = self._apps.get(name) if rest == "mcp" else None
        if app is None:
            await JSONResponse({"error": "There is no such episode."}, status_code=404)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async def _post(self, request: Request) -> Response:
        try:
            if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
                raise UsageError(f"The content type must be {JSON}.")
            wanted = await _body(request)
            session = await self._begin(wanted.get("instance", ""), wanted.get("replicate", 0))
            path = await self.add(session)
        except UsageError as flaw:
            return JSONResponse({"error": str(flaw)}, status_code=400)
        game = session.game
        host, port = request.scope["server"]
        told = {"url": f"http://{host}:{port}{path}", "suite": game.instance.suite}
        return JSONResponse({**told, "instance": game.instance.id, "step": game.step}, status_code=201)


def _stayed(record: logging.LogRecord) -> bool:
    """Whether what the SDK logs is not only that a client has gone."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ClientDisconnect)


class Guard:
    """Refuses what another site sends; a client that has gone gets no answer, and leaves no traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = Headers(raw=scope.get("headers", []))
        if scope["type"] != "lifespan" and (why := refusal(headers.getlist("Host"), headers.getlist("Origin"))):
            await JSONResponse({"error": why}, status_code=REFUSED)(scope, receive, send)
            return
        with suppress(ClientDisconnect):
            await self._app(scope, receive, send)


async def _body(request: Request) -> dict[str, Any]:
    """What an episode is asked for with. Raises UsageError."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MOST_BODY:
            raise UsageError(f"The body is larger than {MOST_BODY:,} bytes.")
    try:
        wanted = json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        wanted = None
    if not isinstance(wanted, dict) or not set(wanted) <= {"instance", "replicate"}:
        raise UsageError('The body must be a JSON object such as {"instance": "seed-0", "replicate": 0}.')
    replicate = wanted.get("replicate", 0)
    if not isinstance(wanted.get("instance", ""), str) or not isinstance(replicate, int) or isinstance(replicate, bool):
        raise UsageError("`instance` must be a string, `replicate` a whole number.")
    return wanted


async def _host(manager: StreamableHTTPSessionManager, *, task_status: TaskStatus[None]) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()


async def serve_http(
    begin: Begin, *, port: int, ready: Callable[[str], None], instance: str = "", replicate: int = 0
) -> None:
    """Serve until a signal; `ready` is called with the URL of the first episode. Raises UsageError."""
    first = await begin(instance, replicate)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as flaw:
        listener.close()
        raise UsageError(f"--http: port {port} of {HOST} cannot be used: {flaw.strerror}.") from flaw
    listener.listen()
    episodes = ServedEpisodes(begin)

    async def tell() -> None:
        ready(f"http://{HOST}:{listener.getsockname()[1]}{await episodes.add(first)}")

    config = uvicorn.Config(episodes.app(tell), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve([listener])
