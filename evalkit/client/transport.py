"""HTTP, and nothing else: a body is sent, and an `HttpResponse` comes back in every case. The only timeouts are here.

One aiohttp session per provider. No redirect is followed and no cookie kept. A key is sent only over https or to this
machine, and is removed from every response.
"""

import asyncio
import copy
import errno
import io
import ipaddress
import math
import urllib.request
from collections.abc import Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import msgspec
from yarl import URL

from evalkit.client.credentials import Credentials
from evalkit.client.streaming import Rounds, Timeouts, feed, join_pieces, offloaded
from evalkit.errors import UsageError
from evalkit.redact import KEYS
from evalkit.replies import MOST_BYTES
from evalkit.version import __version__
from evalkit.wire.http import Failure, HttpResponse
from evalkit.wire.lenient import ON_LOOP_BYTES
from evalkit.wire.streams import ReplyStream, StreamForm, is_stream
from evalkit.wire.verdicts import judge

CONNECT_S = 30.0
IDLE_S = 120.0
"""Between two pieces of a body that has begun. While a model thinks, no body has begun: only the total timeout
applies."""
KEEP_ALIVE_S = 4.0
"""Common servers close idle connections after 5 s; a request sent into that moment would be lost, and charged."""
MOST_HEADERS = 1024
MOST_HEADER_BYTES = 2**18
"""Of one header. aiohttp's own limits (128, 8,190 bytes) are below what proxies add; a reply that breaks them is paid
for all the same."""
_HEAD_LIMITS: Mapping[str, Any] = {
    "max_line_size": MOST_HEADER_BYTES,
    "max_field_size": MOST_HEADER_BYTES,
    # Older versions do not count them.
    **({"max_headers": MOST_HEADERS} if "max_headers" in (aiohttp.ClientSession.__init__.__kwdefaults__ or {}) else {}),
}
_COPIED_BYTES = 2**20 - 1
"""aiohttp warns about larger bodies as plain bytes; these are passed as a stream."""
_NO_HEADERS: Mapping[str, str] = {}


class Transport(Protocol):
    """One provider's endpoint: over HTTP, or a simulated provider in this process."""

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The outcome of one POST; never raises but CancelledError."""


class HttpTransport:
    """A provider over HTTP. Use as `async with`; `to` gives its endpoints."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        key: str,
        timeout_s: float,
        silence_s: float = math.inf,
        credentials: Credentials | None = None,
    ) -> None:
        """`headers`: the dialect's, made from `key`. `silence_s`: of streams alone; `timeout_s` bounds every attempt.
        `credentials`: what authenticates the requests instead.

        Raises UsageError if a key would be sent unencrypted.
        """
        self._url = checked_url(url, with_key=bool(key or credentials))
        self._proxy = _proxy_for(self._url)
        self._credentials = credentials
        KEYS.learn(key, (self._proxy and self._proxy.password) or "")
        self._signed = {"Content-Type": "application/json", "Accept": "application/json"}
        self._headers = {
            **self._signed,
            # Replies are small: unpacking them costs more than their transport.
            "Accept-Encoding": "identity",
            "User-Agent": f"evalkit/{__version__}",
            **headers,
        }
        self._timeout_s = timeout_s
        self._body_cap = MOST_BYTES
        self._idle_s = min(IDLE_S, timeout_s)
        self._silence_s = min(silence_s, timeout_s)
        self._own: Mapping[str, str] = _NO_HEADERS
        self._twins: list[HttpTransport] = []

    def __repr__(self) -> str:
        return f"HttpTransport({str(self._url)!r})"

    async def __aenter__(self) -> Self:
        if self._credentials is not None:
            await self._credentials.headers(str(self._url), {}, b"")  # if there are none, it is said before anything
        self._total, self._idle = Timeouts(self._timeout_s), Timeouts(self._idle_s)
        self._silence = Timeouts(self._silence_s)
        self._rounds = Rounds()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            **_HEAD_LIMITS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_S, self._timeout_s)),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self, *self._twins):
            for timeouts in (one._total, one._idle, one._silence):
                timeouts.close()
        self._rounds.close()
        await self._session.close()

    def patient(self, timeout_s: float, headers: Mapping[str, str]) -> "HttpTransport":
        """The same server by the same connections, for requests that may take longer, silence included, and have
        headers of their own. It ends with this one."""
        twin = copy.copy(self)
        twin._timeout_s, twin._own = max(timeout_s, self._timeout_s), headers
        twin._total = Timeouts(twin._timeout_s)
        twin._silence = Timeouts(twin._timeout_s)
        self._twins.append(twin)
        return twin

    def to(self, path: str, form: StreamForm | None = None) -> "EndpointTransport":
        """The endpoint at a path below the provider's URL; it shares everything with its siblings. `form`: its replies
        are streamed so."""
        return EndpointTransport(self, URL(str(self._url).rstrip("/") + path, encoded=True), form)

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The outcome of one POST to the URL itself; never raises but CancelledError."""
        return await self.post(self._url, body, request_id)

    async def post(self, url: URL, body: bytes, request_id: str, form: StreamForm | None = None) -> HttpResponse:
        """The outcome of one POST; never raises but CancelledError. `form`: a stream is asked for; the response is as
        the same reply in one piece would be."""
        if form is not None:
            body = form.body(body)
        if self._credentials is None:
            return await self._timed(url, body, {"X-Client-Request-Id": request_id, **self._own}, form)
        try:
            own, number = await self._credentials.headers(str(url), self._signed, body)
        except UsageError as flaw:
            return _failed("connect", str(flaw))  # nothing was sent
        response = await self._timed(url, body, {"X-Client-Request-Id": request_id, **self._own, **own}, form)
        # AWS answers 403 where others answer 401; but not every 403 speaks of the key.
        if judge(response).kind == "bad_key":
            self._credentials.refused(number)
        elif response.status == 200:
            self._credentials.answered(number)
        worked = self._credentials.worked(number)
        return msgspec.structs.replace(response, credentials=number, credentials_worked=worked)

    async def _timed(self, url: URL, body: bytes, headers: Mapping[str, str], form: StreamForm | None) -> HttpResponse:
        timeout = self._total.start()
        try:
            return await self._post(url, body, headers, form, timeout.due - self._timeout_s)
        except asyncio.CancelledError:
            if timeout.caused_cancellation():
                return _failed("timeout", f"no complete reply within {self._timeout_s:g} s")
            raise
        finally:
            self._total.clear(timeout)

    async def _post(
        self, url: URL, body: bytes, headers: Mapping[str, str], form: StreamForm | None, since: float
    ) -> HttpResponse:
        try:
            reply = await self._session.post(
                url,
                data=body if len(body) <= _COPIED_BYTES else io.BytesIO(body),
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except aiohttp.ClientHttpProxyError as flaw:
            # The proxy did not connect to the provider: nothing was sent there.
            return _failed("connect", self._words(flaw), status=407 if flaw.status == 407 else 0)
        except (aiohttp.ClientError, OSError, TimeoutError) as flaw:
            return _failed(_kind_of(flaw), self._words(flaw))
        try:
            if form is None or reply.status != 200:
                return await self._read(reply)
            return await self._read_stream(reply, form, since)
        finally:
            if not reply.closed:  # it is closed, and its connection back in the pool, once its body was read completely
                reply.close()

    async def _read(self, reply: aiohttp.ClientResponse, begun: bytes = b"") -> HttpResponse:
        """The response. `begun`: the piece of its body that was read already."""
        failure: Failure = ""
        detail, body = "", b""
        try:
            # A short body mostly comes with its head: then nothing is waited for.
            body = begun + (reply.content.read_nowait() if reply.content.is_eof() else await self._body(reply))
            if len(body) > self._body_cap:
                failure, detail, body = "oversize", f"a body of more than {self._body_cap} bytes", b""
        except (aiohttp.ClientError, OSError) as flaw:
            failure, detail = self._broken(flaw)
        body = await self._redacted(body, good=reply.status == 200)
        if reply.status >= 300 and "location" in reply.headers:
            detail = KEYS.text(f"redirected to {reply.headers['location']}, which is not followed")
        return HttpResponse(status=reply.status, headers=reply.headers, body=body, failure=failure, detail=detail)

    async def _read_stream(self, reply: aiohttp.ClientResponse, form: StreamForm, since: float) -> HttpResponse:
        """The response whose body a stream is assembled to, or that came in one piece although a stream was asked
        for. `since`: when it was asked for."""
        stream = ReplyStream(form, self._body_cap)
        failure: Failure = ""
        detail = ""
        try:
            join_pieces(reply.content)
            begun = await reply.content.readany()
            if not is_stream(reply.headers.get("Content-Type", ""), begun):
                return await self._read(reply, begun)
            piece = partial(self._piece, silence=self._silence)
            await feed(stream, reply, begun, piece, rounds=self._rounds, since=since, silence_s=self._silence_s)
        except (aiohttp.ClientError, OSError) as flaw:
            failure, detail = self._broken(flaw)
        came = await offloaded(lambda: stream.end(failure=failure, detail=detail), stream.size)
        body = await self._redacted(came.body, good=came.status == 200)
        return HttpResponse(
            status=came.status, headers=reply.headers, body=body, failure=came.failure, detail=came.detail
        )

    def _broken(self, flaw: BaseException) -> tuple[Failure, str]:
        """What ended a body before its end, in words."""
        if isinstance(flaw, aiohttp.ClientPayloadError):
            return "truncated", self._words(flaw)
        if isinstance(flaw, TimeoutError):  # before OSError, which is its base class
            return "timeout", str(flaw)
        return "reset", self._words(flaw)

    async def _redacted(self, body: bytes, *, good: bool) -> bytes:
        if len(body) > ON_LOOP_BYTES:
            return await offloaded(lambda: KEYS.body(body, good=good), len(body))
        return KEYS.body(body, good=good)

    async def _body(self, reply: aiohttp.ClientResponse) -> bytes:
        """The body, cut soon after the cap. Raises TimeoutError when it stalls."""
        stream = reply.content
        if (reply.content_length or 0) > self._body_cap:
            return bytes(self._body_cap + 1)
        body = await self._piece(stream, self._idle)
        if stream.at_eof():
            return body
        pieces, size = [body], len(body)
        while size <= self._body_cap:
            piece = await self._piece(stream, self._idle)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    async def _piece(self, stream: aiohttp.StreamReader, silence: Timeouts) -> bytes:
        timeout = silence.start()
        try:
            return await stream.readany()
        except asyncio.CancelledError:
            if timeout.caused_cancellation():
                raise TimeoutError(f"the body stalled for {silence.seconds:g} s") from None
            raise
        finally:
            silence.clear(timeout)

    def _words(self, flaw: BaseException) -> str:
        if isinstance(flaw, aiohttp.ClientConnectorError) and flaw.errno == errno.ECONNREFUSED and not self._proxy:
            words = f"nothing listens at {self._url.origin()} (connection refused)"
            return f"{words}: start its server, or correct the provider's `url`"
        return KEYS.text(f"{type(flaw).__name__}: {flaw}")


class EndpointTransport:
    """One path of a provider; satisfies `Transport`."""

    __slots__ = ("_form", "_transport", "_url")

    def __init__(self, transport: HttpTransport, url: URL, form: StreamForm | None = None) -> None:
        self._transport = transport
        self._url = url
        self._form = form

    def __repr__(self) -> str:
        return f"Endpoint({str(self._url)!r})"

    def send(self, body: bytes, request_id: str) -> Coroutine[Any, Any, HttpResponse]:
        """The outcome of one POST; never raises but CancelledError."""
        return self._transport.post(self._url, body, request_id, self._form)


def checked_url(url: str, *, with_key: bool) -> URL:
    """The URL, parsed. Raises UsageError if it is not valid, contains credentials, a query or a fragment, or would send
    a key unencrypted."""
    try:
        parsed = URL(url)
    except ValueError as flaw:
        raise UsageError(f"The provider's `url` is not a URL ({flaw}). Correct it, or the variables in it.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"{url!r} is not an http or https URL. Correct `url` in the provider's file.")
    if parsed.raw_query_string or parsed.raw_fragment:
        raise UsageError(
            "The provider's `url` contains a query or a fragment (`?`, `#`): only a path may follow the host."
        )
    if parsed.user or parsed.password:
        raise UsageError(
            "The provider's `url` contains credentials. Put the key into a variable and name it in `key_env`."
        )
    if with_key and parsed.scheme != "https" and not is_loopback(parsed.host):
        raise UsageError(
            f"A key would be sent to {parsed.host} unencrypted. Use https in the provider's `url`, or remove `key_env`."
        )
    return parsed


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _proxy_for(url: URL) -> URL | None:
    """The environment's proxy. Asked once: aiohttp would look it up in a thread for every request."""
    assert url.host is not None
    if is_loopback(url.host):
        return None  # a key may be sent unencrypted only within this machine
    known = urllib.request.getproxies()
    name = url.scheme if known.get(url.scheme) else "all"
    proxy = known.get(name)
    if not proxy or _goes_direct(url.host, url.port, known.get("no", "")):
        return None
    try:
        parsed = URL(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        # Its value is not shown: it may hold a password.
        raise UsageError(f"The environment's proxy for {url.scheme} is not an http or https URL: correct {name}_proxy.")
    return parsed


def _goes_direct(host: str, port: int | None, exceptions: str) -> bool:
    """Whether no proxy is used for a host: by the system's rules, which know names and `host:port`, or because
    `no_proxy` names a network that holds its address."""
    if urllib.request.proxy_bypass(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") or (
        urllib.request.proxy_bypass(host)
    ):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for word in exceptions.replace(",", " ").split():
        try:
            if address in ipaddress.ip_network(word.strip("[]"), strict=False):
                return True
        except ValueError:
            continue
    return False


def _kind_of(flaw: BaseException) -> Failure:
    if isinstance(flaw, aiohttp.ClientConnectorCertificateError | aiohttp.ServerFingerprintMismatch):
        return "tls"
    # A handshake that breaks off may be a network failure; a wrong certificate is not.
    if isinstance(
        flaw, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientProxyConnectionError
    ):
        return "connect"
    if isinstance(flaw, aiohttp.ClientResponseError):
        return "truncated"  # something came back, and it was not HTTP
    return "timeout" if isinstance(flaw, TimeoutError) else "reset"


def _failed(failure: Failure, detail: str, status: int = 0) -> HttpResponse:
    return HttpResponse(status=status, headers=_NO_HEADERS, failure=failure, detail=detail)
