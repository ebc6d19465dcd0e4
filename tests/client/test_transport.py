import asyncio
import math
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from evalkit.client.credentials import Credentials, Grant, key_grant
from evalkit.client.open import endpoint_of, open_transport
from evalkit.client.streaming import Timeouts
from evalkit.client.transport import HttpTransport, checked_url, is_loopback
from evalkit.engine.session import make_room
from evalkit.errors import UsageError
from evalkit.spec.model import Provider, ServerSpec
from evalkit.wire.http import HttpResponse
from evalkit.wire.verdicts import judge
from tests.support.each_case import check_each
from tests.support.patience import PATIENCE_S
from tests.support.virtual_clock import VirtualLoop, run_virtual
from tests.support.virtual_http import Write, say_to_all

KEY = "sk-planted-0123456789"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**30)
    app.router.add_post("/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1/chat"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def speaking(say: Say) -> AsyncIterator[str]:
    """A server below HTTP: it says exactly these bytes."""

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await say(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(heard, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def sent(
    url: str, body: bytes = b"{}", *, timeout_s: float = PATIENCE_S, cap: int = 2**20, idle_s: float = PATIENCE_S
) -> HttpResponse:
    transport = HttpTransport(url, headers={"Authorization": f"Bearer {KEY}"}, key=KEY, timeout_s=timeout_s)
    transport._body_cap, transport._idle_s = cap, idle_s
    async with transport:
        return await transport.send(body, "episode/3/0")


def raw(say: Say, **more: Any) -> HttpResponse:
    async def main() -> HttpResponse:
        async with speaking(say) as url:
            return await sent(url, **more)

    return asyncio.run(main())


def test_a_post_carries_body_key_and_request_id_and_brings_status_headers_and_body() -> None:
    seen: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request)
        assert await request.read() == b'{"a":1}'
        return web.Response(status=429, body=b"slow down", headers={"Retry-After": "7"})

    async def main() -> HttpResponse:
        async with serving(handler) as url:
            return await sent(url, b'{"a":1}')

    response = asyncio.run(main())
    assert (response.status, response.body, response.failure) == (429, b"slow down", "")
    assert response.headers["retry-after"] == "7"
    assert seen[0].headers["X-Client-Request-Id"] == "episode/3/0"
    assert seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert seen[0].headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("size", [0, 10, 2**20 + 5])
def test_bodies_of_any_size_go_out_whole(size: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b"%d" % len(await request.read()))

    async def main() -> HttpResponse:
        async with serving(handler) as url:
            return await sent(url, b"x" * size)

    assert asyncio.run(main()).body == b"%d" % size


def test_a_reply_with_long_or_many_headers_is_read() -> None:
    long, many = "x" * 100_000, {f"X-Trace-{number}": "y" for number in range(500)}

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b"a reply", headers={"X-Long": long, **many})

    async def main() -> HttpResponse:
        async with serving(handler) as url:
            return await sent(url)

    response = asyncio.run(main())
    assert (response.status, response.failure, response.body) == (200, "", b"a reply")
    assert (response.headers["x-long"], response.headers["x-trace-499"]) == (long, "y")


def test_a_connection_is_used_again() -> None:
    ports: set[int] = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response(body=b"{}")

    async def main() -> None:
        async with serving(handler) as url, HttpTransport(url, headers={}, key="", timeout_s=PATIENCE_S) as transport:
            for _ in range(5):
                assert (await transport.send(b"{}", "e/0/0")).status == 200

    asyncio.run(main())
    assert len(ports) == 1


def test_a_redirect_is_not_followed() -> None:
    calls: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        calls.append(request.path)
        return web.Response(status=307, headers={"Location": "http://elsewhere.example/v2"})

    async def main() -> HttpResponse:
        async with serving(handler) as url:
            return await sent(url)

    response = asyncio.run(main())
    assert (response.status, len(calls)) == (307, 1)
    assert "elsewhere.example" in response.detail


def test_silence_is_a_timeout() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(PATIENCE_S)

    response = raw(say, timeout_s=0.2)
    assert (response.status, response.failure) == (0, "timeout")


def test_a_body_that_stalls_is_a_timeout_long_before_the_total_one() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await asyncio.sleep(PATIENCE_S)

    response = raw(say, timeout_s=PATIENCE_S, idle_s=0.2)
    assert (response.status, response.failure) == (200, "timeout")
    assert "stalled" in response.detail


def test_a_body_that_trickles_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    async def say(write: Write) -> None:
        for piece in b"[1,23]":
            await write(bytes([piece]))
            await asyncio.sleep(2.0)

    say_to_all(monkeypatch, say)
    response = run_virtual(sent("http://127.0.0.1/", idle_s=2.5))
    assert (response.body, response.failure) == (b"[1,23]", "")


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
)
def test_a_body_that_breaks_off_is_truncated(start: bytes) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()

    response = raw(say)
    assert (response.status, response.failure) == (200, "truncated")


def test_a_connection_that_breaks_before_an_answer_is_a_reset() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    response = raw(say)
    assert response.failure == "reset"
    assert judge(response).billable


def test_an_answer_that_is_not_http_is_truncated() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    assert raw(say).failure == "truncated"


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_above_the_cap_is_refused(announced: bool) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = b"Content-Length: 5000000\r\n" if announced else b"Connection: close\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        for _ in range(50):
            writer.write(b"x" * 100_000)

    response = raw(say, cap=1_000_000)
    assert (response.status, response.failure, response.body) == (200, "oversize", b"")


def test_nobody_listening_is_a_failure_to_connect() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        response = asyncio.run(sent(f"http://127.0.0.1:{held.getsockname()[1]}/"))
    assert (response.failure, response.status) == ("connect", 0)


def test_cancellation_from_outside_is_not_taken_for_a_timeout() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.set()
            await asyncio.sleep(PATIENCE_S)

        async with speaking(say) as url, HttpTransport(url, headers={}, key="", timeout_s=PATIENCE_S) as transport:
            task = asyncio.ensure_future(transport.send(b"{}", "e/0/0"))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_many_timeouts_share_one_timer_and_each_keeps_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = list[float]()
    call_at = VirtualLoop.call_at

    def counted(self: VirtualLoop, when: float, callback: Callable[..., Any], *args: Any, **how: Any) -> Any:
        if isinstance(getattr(callback, "__self__", None), Timeouts):
            timers.append(when)
        return call_at(self, when, callback, *args, **how)

    async def main() -> list[float]:
        loop, timeouts = asyncio.get_running_loop(), Timeouts(0.3)

        async def one(after: float) -> float:
            await asyncio.sleep(after)
            timeout = timeouts.start()
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                assert timeout.caused_cancellation()
            finally:
                timeouts.clear(timeout)
            return loop.time() - after

        return await asyncio.gather(*(one(i * 0.1) for i in range(5)))

    monkeypatch.setattr(VirtualLoop, "call_at", counted)
    assert run_virtual(main()) == pytest.approx([0.3] * 5)
    assert timers == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7])  # the next one once the one before has come


@pytest.mark.parametrize("url", ["http://api.example.com/v1", "http://10.0.0.1/v1", "http://localhost.example/v1"])
def test_a_key_is_never_sent_in_the_clear(url: str) -> None:
    with pytest.raises(UsageError, match="unencrypted"):
        HttpTransport(url, headers={}, key=KEY, timeout_s=5)
    assert HttpTransport(url, headers={}, key="", timeout_s=5)


@pytest.mark.parametrize(
    "url", ["https://api.example.com/v1", "http://127.0.0.1:8000/v1", "http://[::1]/", "http://localhost/"]
)
def test_https_and_this_machine_may_have_the_key(url: str) -> None:
    assert str(checked_url(url, with_key=True)) == url


@pytest.mark.parametrize(
    "url",
    [
        *("", "api.example.com", "ftp://x/y", "file:///etc/passwd", "https://me:secret@x.example/", "https://[::1"),
        *("https://x:99999/v1", "https://x:secret/v1", "https://x.example/v1?q=secret", "https://x.example/#secret"),
    ],
)
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as flaw:
        checked_url(url, with_key=False)
    assert "secret" not in str(flaw.value)


def test_loopback_never_goes_through_a_proxy_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    assert HttpTransport("http://127.0.0.1/", headers={}, key=KEY, timeout_s=5)._proxy is None
    assert (
        str(HttpTransport("http://x.example/", headers={}, key="", timeout_s=5)._proxy) == "http://proxy.example:3128"
    )
    monkeypatch.setenv("no_proxy", "x.example")
    assert HttpTransport("http://x.example/", headers={}, key="", timeout_s=5)._proxy is None
    assert is_loopback("127.8.9.1")
    monkeypatch.setenv("http_proxy", "proxy.example:3128")
    assert (
        str(HttpTransport("http://y.example/", headers={}, key="", timeout_s=5)._proxy) == "http://proxy.example:3128"
    )


def test_every_way_to_name_a_proxy_and_who_goes_without_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(case: tuple[str, str, str]) -> None:
        url, exceptions, through = case
        monkeypatch.setenv("no_proxy", exceptions)
        proxy = HttpTransport(url, headers={}, key="", timeout_s=5)._proxy
        assert (proxy.host if proxy else "") == through

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", "http://any.example:3128")
    monkeypatch.setenv("https_proxy", "http://own.example:3128")
    cases = [
        ("http://x.example/", "", "any.example"),
        ("https://x.example/", "", "own.example"),
        ("http://x.example:8000/", "y.example, x.example:8000", ""),
        ("http://x.example:8001/", "x.example:8000", "any.example"),
        ("https://x.example/", "x.example:443", ""),
        ("http://10.1.2.3:8000/", "localhost,10.0.0.0/8", ""),
        ("http://10.1.2.3:8000/", "10.1.2.3:8000", ""),
        ("http://11.1.2.3/", "10.0.0.0/8", "any.example"),
        ("http://10.1.2.3/", "10.1.2.9/24", ""),
        ("http://[fd00::7]:8000/", "fd00::/8", ""),
        ("http://[fd00::7]:8000/", "fe80::/10 odd/8", "any.example"),
        ("http://x.example/", "*", ""),
    ]
    check_each([(case, case) for case in cases], check)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("all_proxy", "socks5h://me:secret@any.example:1080")
    with pytest.raises(UsageError, match="correct all_proxy") as flaw:
        HttpTransport("http://x.example/", headers={}, key="", timeout_s=5)
    assert "secret" not in str(flaw.value)


@pytest.mark.parametrize("proxy", ["http://me:secret@[bad", "socks5://me:secret@x.example", "http://:99"])
def test_a_proxy_that_is_none_is_refused_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(UsageError, match="correct https_proxy") as flaw:
        HttpTransport("https://x.example/", headers={}, key="", timeout_s=5)
    assert "secret" not in str(flaw.value)


@pytest.mark.parametrize(("status", "kind", "action"), [(407, "proxy", "end_lane"), (502, "connect", "retry")])
def test_a_proxy_that_opens_no_way_costs_nothing(
    status: int, kind: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider behind it was never reached."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readline()).startswith(b"CONNECT x.example:443")
        writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    async def main() -> HttpResponse:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            monkeypatch.delenv("no_proxy", raising=False)
            async with HttpTransport("https://x.example/", headers={}, key=KEY, timeout_s=PATIENCE_S) as transport:
                return await transport.send(b"{}", "e/0/0")

    verdict = judge(asyncio.run(main()))
    assert (verdict.kind, verdict.action, verdict.billable) == (kind, action, False)


def test_the_key_is_blacked_out_of_whatever_comes_back() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=401, text=f"Incorrect API key provided: {KEY}")

    async def main() -> HttpResponse:
        async with serving(handler) as url:
            transport = HttpTransport(url, headers={"Authorization": f"Bearer {KEY}"}, key=KEY, timeout_s=PATIENCE_S)
            assert KEY not in repr(transport)
            async with transport:
                return await transport.send(b"{}", "e/0/0")

    response = asyncio.run(main())
    assert KEY not in repr(response)
    assert b"Incorrect API key provided: ***" in response.body


def test_a_missing_key_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider(
        name="acme", dialect="openai_chat", servers=(ServerSpec(url="https://x.example/v1/"),), key_env="ACME_KEY"
    )
    monkeypatch.delenv("ACME_KEY", raising=False)
    with pytest.raises(UsageError, match="ACME_KEY"):
        open_transport(provider)
    monkeypatch.setenv("ACME_KEY", "two\nlines")
    with pytest.raises(UsageError, match="ACME_KEY") as flaw:
        open_transport(provider)
    assert "two" not in str(flaw.value)
    monkeypatch.setenv("ACME_KEY", KEY)
    transport = open_transport(provider)
    assert repr(transport) == "HttpTransport('https://x.example/v1/')"
    assert repr(endpoint_of(transport, provider, "m")) == "Endpoint('https://x.example/v1/chat/completions')"


def test_the_descriptor_limit_is_raised_or_the_width_lowered() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1024:
        pytest.skip("this machine allows too few descriptors to try it")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        assert make_room(300) == 300
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 664
        if hard != resource.RLIM_INFINITY:
            assert make_room(hard) == (hard - 64) // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("status", "says", "renewed"),
    [
        (401, "expired", True),
        (403, "The security token included in the request is expired", True),
        (403, "This request was flagged by moderation", False),
        (403, "It violates our content policy", False),
        (400, "content policy", False),
        (404, "model not found", False),
    ],
)
def test_only_a_refusal_that_is_about_the_key_renews_it(status: int, says: str, renewed: bool) -> None:
    keys: list[str] = []

    async def fetch() -> Grant:
        keys.append(f"{KEY}-{len(keys)}")
        return key_grant(keys[-1], {"Authorization": f"Bearer {keys[-1]}"}, math.inf)

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": says}}, status=status)

    async def main() -> list[int]:
        async with serving(handler) as url:
            credentials = Credentials(fetch)
            async with HttpTransport(
                url, headers={}, key="", timeout_s=PATIENCE_S, credentials=credentials
            ) as transport:
                return [(await transport.send(b"{}", f"episode/{n}/0")).credentials for n in range(3)]

    assert asyncio.run(main()) == ([1, 2, 3] if renewed else [1, 1, 1])
    assert len(keys) == (3 if renewed else 1)
