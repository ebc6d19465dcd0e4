"""Stores with Azure's and Google's interfaces that a test starts.

Azure's is Azurite, which Microsoft maintains: `npm install -g azurite`. Nothing like it was found for Google's. What
evalkit asks of that store, its XML interface shares with S3 but for names in addresses and the condition of a creation,
so a proxy translates these two for moto's server.
"""

import base64
import hashlib
import hmac
import http.client
import os
import re
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.object_stores import make_bucket, server_url

ACCOUNT = "devstoreaccount1"
KEY = base64.b64encode(hashlib.sha512(b"a key of a test's own store").digest()).decode()
VERSION = "2021-08-06"
CONTAINER = "runs"
SIGNED = "AWS4-HMAC-SHA256 Credential=someone/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=any"
"""Moto looks whether a request is signed, not how."""


@contextmanager
def azure(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A container that nobody has used: its URL, and what a process needs to reach it. Skips where Azurite is not."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("needs Azurite: npm install -g azurite")
    where = ("--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", "0")
    with subprocess.Popen(
        [program, "--silent", "--disableTelemetry", "--skipApiVersionCheck", *where],
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            url = _listening(server.stdout)
            _make_container(url)
            yield (
                f"az://{CONTAINER}",
                {
                    "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                    "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                    "AZURE_STORAGE_USE_EMULATOR": "true",
                    "AZURITE_BLOB_STORAGE_URL": url,
                },
            )
        finally:
            server.kill()


def _listening(said: Iterable[str]) -> str:
    """Where the server says that it listens."""
    found = next(match for line in said if (match := re.search(r"listens on (http://\S+)", line)))
    return found[1]


def _make_container(url: str) -> None:
    """By a request that is signed with the account's key."""
    date = formatdate(usegmt=True)
    named = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signed = "PUT" + 12 * "\n" + named
    mark = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(
        f"{url}/{ACCOUNT}/{CONTAINER}?restype=container",
        method="PUT",
        headers={"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{mark}"},
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


@contextmanager
def google(_: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The same in Google's interface."""
    bucket = make_bucket()
    host = urlsplit(server_url()).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def carry(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in ("connection", "authorization", "x-goog-if-generation-match")
            }
            headers["Authorization"] = SIGNED
            if self.headers.get("x-goog-if-generation-match") == "0":
                headers["If-None-Match"] = "*"
            path, _, query = self.path.partition("?")
            upstream = http.client.HTTPConnection(host)
            upstream.request(self.command, unquote(path) + ("?" + query if query else ""), body, headers)
            answer = upstream.getresponse()
            data = answer.read()
            upstream.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "server", "date"):
                    self.send_header(name, value)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", size or "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = carry  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield (
            bucket.replace("s3://", "gs://"),
            {"GOOGLE_BASE_URL": f"http://127.0.0.1:{server.server_port}", "GOOGLE_BEARER_TOKEN": "anything"},
        )
    finally:
        server.shutdown()
        server.server_close()
