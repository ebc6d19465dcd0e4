"""The gateway: a loopback address at which any client of a model API asks through an agent's seat.

A framework (LangGraph, the OpenAI Agents SDK, one's own program) is given the address in place of a provider's. Each
request becomes an ask of the seat: durable before it is answered, held to the run's budget and limits, and answered
from the log when the episode is resumed. Three dialects are spoken, whole and streamed. A model's name is a role.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from aiohttp import web

from evalkit.dialogue import Reply, Request, Sampling, Usage
from evalkit.digests import ask_digest
from evalkit.errors import AgentError, AskRefused
from evalkit.integrations.gateway.anthropic_messages import SERVED_ANTHROPIC_MESSAGES
from evalkit.integrations.gateway.openai_responses import SERVED_OPENAI_RESPONSES
from evalkit.loopback import HOST, REFUSED, refusal
from evalkit.replies import decode_reply, encode_reply
from evalkit.seats import Fork, Seat
from evalkit.seeds import Stream
from evalkit.serve.formats import BASE_PATH, ServedFormat
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.serve.outcome import JSON, Arrival
from evalkit.serve.streams import as_unstreamed, streamed

FORMATS: Mapping[str, ServedFormat] = {
    served.dialect.name: served for served in (SERVED_OPENAI_CHAT, SERVED_OPENAI_RESPONSES, SERVED_ANTHROPIC_MESSAGES)
}
"""What is spoken, by the dialect's name."""
_BY_PATH = {BASE_PATH + served.dialect.path: served for served in FORMATS.values()}
_MOST_BODY_BYTES = 64 * 2**20
_NAME = 16
"""Hexadecimal digits of a request's digest that name its fork."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Where the requests of one episode go.

    >>> import evalkit
    >>> evalkit.Gateway(url="http://127.0.0.1:40123/g/TOKEN").base_url("openai_chat", key="critic")
    'http://127.0.0.1:40123/g/TOKEN/critic/v1'
    """

    url: str
    """`http://127.0.0.1:PORT/g/TOKEN`. The token is the episode's; a key that a client needs may be any text."""

    def base_url(self, dialect: str = "openai_chat", key: str = "") -> str:
        """What the official SDK of a dialect takes as its base URL: of `openai_chat`, `openai_responses`
        or `anthropic_messages`. A `key` names a part of the agent, so that equal requests of two parts are
        told apart. Raises AgentError for a dialect or key that cannot be."""
        if dialect not in FORMATS:
            raise AgentError(f"gateway: there is no dialect {dialect!r}: {', '.join(FORMATS)}.")
        if "/" in key or f"/{key}" == BASE_PATH:
            raise AgentError(f"gateway: a key is a word without `/`, and not {BASE_PATH[1:]}; got {key!r:.80}.")
        return f"{self.url}{'/' if key else ''}{key}{FORMATS[dialect].sdk_path}"


@asynccontextmanager
async def gateway(seat: Seat) -> AsyncIterator[Gateway]:
    """Serve a seat's models to clients of a model API on this machine, as long as the block lasts.

    Every request goes to the role that it names as its model. Equal requests of one step are told apart by their
    order; others by what they hold, so they may come in any order. At most as many as the agent declares (`parallel`)
    are in flight; further ones wait. Replies name no tokens: what is read from the log has none.

    Raises OSError if no port can be had.

    >>> import evalkit
    >>> @evalkit.agent(version=1)
    ... async def framework(seat: evalkit.Seat) -> None:
    ...     async with evalkit.gateway(seat) as gate:
    ...         base_url = gate.base_url("openai_chat")  # for AsyncOpenAI(base_url=base_url, api_key="-")
    """
    server = await _server()
    token, opened = secrets.token_urlsafe(18), _OpenEpisode(seat=seat, free=asyncio.Semaphore(seat.parallel))
    server.episodes[token] = opened
    try:
        yield Gateway(url=f"{server.url}/g/{token}")
    finally:
        del server.episodes[token]
        opened.close()
        await asyncio.shield(server.rest_soon())


@dataclass(slots=True, kw_only=True)
class _KnownRequest:
    """Who asks one request, again and again if it comes again within the step."""

    fork: Fork
    one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = 0


@dataclass(slots=True, kw_only=True)
class _OpenEpisode:
    """The requests of one episode."""

    seat: Seat
    free: asyncio.Semaphore
    step: int = -1
    keys: dict[str, Fork] = field(default_factory=dict)
    askers: dict[tuple[str, str], _KnownRequest] = field(default_factory=dict)
    answering: set["asyncio.Task[Any]"] = field(default_factory=set)

    def close(self) -> None:
        """Answer nothing more."""
        for task in self.answering:
            task.cancel()

    async def answer(self, served: ServedFormat, arrival: Arrival, key: str) -> web.Response:
        """Ask the seat, and answer in the request's own dialect."""
        task = asyncio.current_task()
        assert task is not None
        self.answering.add(task)
        try:
            return await self._answer(served, arrival, key)
        finally:
            self.answering.discard(task)

    async def _answer(self, served: ServedFormat, arrival: Arrival, key: str) -> web.Response:
        wish, arrival = as_unstreamed(arrival)
        try:
            role, request = served.decode_request(arrival.body)
            name, reply = await self._ask(key, role, request)
        except (ValueError, AgentError) as flaw:
            return _refused(served, 400, "invalid_request_error", str(flaw))
        except AskRefused as flaw:
            return _refused(served, 400, flaw.kind, str(flaw))
        body = served.encode_reply(replace(reply, model=role, response_id=served.reply_id(name)))
        if wish is None:
            return web.Response(body=body, headers=JSON)
        outcome = streamed(served, body, wish, Stream(0, "gateway", name))
        return web.Response(body=outcome.body, headers=outcome.headers)

    async def _ask(self, key: str, role: str, request: Request) -> tuple[str, Reply]:
        """(hexadecimal digits of its own, the reply as it will be read from the log)."""
        settings = _settings(request.sampling, offers=bool(request.tools))
        digest = ask_digest(role, b"", request.messages, request.tools, orjson.dumps(settings)).hex()[:_NAME]
        async with self.free:
            asker = self._asker(key, digest)
            async with asker.one_by_one:
                place = f"{key}/{digest}/{self.step}/{asker.asked}"
                asker.asked += 1
                reply = await asker.fork.ask(request.messages, model=role, tools=request.tools, sampling=settings)
        as_logged = replace(decode_reply(encode_reply(reply)), usage=Usage())
        return hashlib.sha256(place.encode()).hexdigest(), as_logged

    def _asker(self, key: str, digest: str) -> _KnownRequest:
        """The fork of a request in this step. Raises AgentError."""
        if self.step != self.seat.step:
            self.step = self.seat.step
            self.keys.clear()
            self.askers.clear()
        if (key, digest) not in self.askers:
            if key and key not in self.keys:
                self.keys[key] = self.seat.fork(key)
            self.askers[key, digest] = _KnownRequest(fork=(self.keys[key] if key else self.seat).fork(digest))
        return self.askers[key, digest]


def _settings(sampling: Sampling, *, offers: bool) -> dict[str, Any]:
    """What a request sets itself; all else is the agent's."""
    usual = Sampling()
    settings = {
        name: getattr(sampling, name)
        for name in ("temperature", "top_p", "effort", "max_tokens", "parallel_calls")
        if getattr(sampling, name) != getattr(usual, name)
    }
    return {**settings, "tool_choice": sampling.tool_choice} if offers else settings


def _refused(served: ServedFormat, status: int, code: str, message: str) -> web.Response:
    return web.Response(status=status, body=served.encode_error(status, code, message), headers=JSON)


@dataclass(slots=True, kw_only=True)
class _Server:
    """One listening socket for all episodes of an event loop."""

    episodes: dict[str, _OpenEpisode] = field(default_factory=dict)
    """By token."""
    runner: web.ServerRunner | None = None
    url: str = ""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _resting: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def start(self) -> None:
        """Listen, if it does not. Raises OSError."""
        async with self.changing:
            if self.runner is not None:
                return
            loop = asyncio.get_running_loop()

            def request(*parts: Any) -> web.BaseRequest:
                message, payload, protocol, writer, task = parts
                return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MOST_BODY_BYTES)

            runner = web.ServerRunner(
                web.Server(self.answer, request_factory=request, access_log=None), shutdown_timeout=0.1
            )
            await runner.setup()
            await web.TCPSite(runner, HOST, 0).start()
            (host, port), self.runner = runner.addresses[0][:2], runner
            self.url = f"http://{host}:{port}"

    def rest_soon(self) -> "asyncio.Task[None]":
        """Stop listening once there is no episode, also if who waits for it is cancelled."""
        resting = asyncio.ensure_future(self._rest())
        self._resting.add(resting)
        resting.add_done_callback(self._resting.discard)
        return resting

    async def _rest(self) -> None:
        async with self.changing:
            if not self.episodes and self.runner is not None:
                runner, self.runner = self.runner, None
                await runner.cleanup()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request of any episode."""
        _, _, token, rest = (*request.path.split("/", 3), "", "", "")[:4]
        opened, served, key = self.episodes.get(token), _BY_PATH.get(f"/{rest}"), ""
        if served is None:
            key, _, rest = rest.partition("/")
            served = _BY_PATH.get(f"/{rest}")
        if why := refusal(request.headers.getall("Host", []), request.headers.getall("Origin", [])):
            return _refused(served or SERVED_OPENAI_CHAT, REFUSED, "refused", why)
        if opened is None or not request.path.startswith("/g/"):
            return _unknown(served, "There is no such episode here, or it is over.")
        if served is None or request.method != "POST":
            return _unknown(served, f"Unknown: {request.method} /{rest}.")
        headers: Mapping[str, str] = request.headers
        arrival = Arrival(method="POST", path=f"/{rest}", headers=headers, body=await request.read())
        with suppress(asyncio.CancelledError):
            return await opened.answer(served, arrival, key)
        return _refused(served, 503, "over", "The episode has been left.")


def _unknown(served: ServedFormat | None, message: str) -> web.Response:
    return _refused(served or SERVED_OPENAI_CHAT, 404, "unknown_url", message)


_SERVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Server] = WeakKeyDictionary()


async def _server() -> _Server:
    server = _SERVERS.setdefault(asyncio.get_running_loop(), _Server())
    await server.start()
    return server
