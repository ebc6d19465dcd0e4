"""Object stores that a test starts: moto's S3 server, and a proxy before it that is slow, refuses, loses answers or
ignores conditions."""

import http.client
import itertools
import logging
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from evalkit.store.objects import store_of

_numbers = itertools.count()

Fault = Callable[[str, str], str]
"""(method, path) -> what happens to a request: nothing (empty), a refusal by status (`401`, `403`, `409`, `503`),
`drop` (carried out, but its answer does not arrive), `silence` (not carried out, and no answer)."""


@cache
def server_url() -> str:
    """Where moto's server listens: one for the whole process, and ended with it."""
    pytest.importorskip("obstore", reason="obstore is not installed: it is in the extra `cloud` and in `dev`")
    server = pytest.importorskip("moto.server", reason="moto's server is not installed: it is in the extra `dev`")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = pytest.importorskip("werkzeug.serving")
    app, turn = server.DomainDispatcherApplication(server.create_backend_app), threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> Any:
        """Moto looks whether an object is there and then makes it, so two threads can both make it."""
        with turn:
            return app(environ, start_response)

    started = serving.make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    threading.Thread(target=started.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{started.server_port}"


def make_bucket() -> str:
    """A bucket that nobody has used: its URL."""
    name = f"bucket-{next(_numbers)}"
    with urllib.request.urlopen(urllib.request.Request(f"{server_url()}/{name}", method="PUT")) as answer:
        assert answer.status == 200
    return f"s3://{name}"


def environment(url: str) -> dict[str, str]:
    """What a process needs to find a store and to be let in."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def reached_at(url: str) -> Iterator[None]:
    """Stores of this process are looked for there."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(url).items():
            patch.setenv(name, value)
        store_of.cache_clear()
        try:
            yield
        finally:
            store_of.cache_clear()


@dataclass(slots=True)
class StoreProxy:
    """How requests fare, and what was asked."""

    delay_s: float = 0.0
    ignores_conditions: bool = False
    fault: Fault = lambda _, __: ""
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by method."""
    url: str = ""


@contextmanager
def proxy() -> Iterator[StoreProxy]:
    """A proxy before the server; `reached_at(proxy.url)` sends a process through it."""
    state = StoreProxy()
    host = urlsplit(server_url()).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def carry(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.asked[self.command] += 1
            fate = state.fault(self.command, urlsplit(self.path).path)
            time.sleep(state.delay_s)
            if fate in ("503", "409", "401", "403"):
                self.send_response(int(fate))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fate == "silence":
                _until_closed(self)
                return
            headers = {name: value for name, value in self.headers.items() if not self._is_dropped(name)}
            upstream = http.client.HTTPConnection(host)
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            data = answer.read()
            upstream.close()
            if fate == "drop":
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "server", "date"):
                    self.send_header(name, value)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", size or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _is_dropped(self, name: str) -> bool:
            return name.lower() == "connection" or (state.ignores_conditions and name.lower() == "if-none-match")

        def do_GET(self) -> None:
            self.carry()

        def do_PUT(self) -> None:
            self.carry()

        def do_HEAD(self) -> None:
            self.carry()

        def do_DELETE(self) -> None:
            self.carry()

        def do_POST(self) -> None:
            self.carry()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _until_closed(handler: BaseHTTPRequestHandler) -> None:
    """Say nothing until the other side gives up."""
    handler.close_connection = True
    while handler.connection.recv(1 << 16):
        pass
