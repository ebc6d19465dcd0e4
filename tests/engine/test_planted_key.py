"""A planted key, providers that throw it back in every way, a kill, a resume, and every command that reads a run: no
byte that evalkit has written, shown or been called with holds it."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.exhaustive

KEY = "sk-planted/0123456789+abcdefGHIJ"
OTHER_KEY = "sk-of-another-provider-9876543210"
IN_BASE64 = base64.b64encode(f"user:{KEY}".encode()).decode()
PERCENT = "".join(f"%{ord(char):02X}" if place % 2 else char for place, char in enumerate(KEY))
TRACES = (
    *(KEY, *(KEY[at : at + 12] for at in range(len(KEY) - 11)), json.dumps(KEY)[1:-1].replace("/", "\\/"), OTHER_KEY),
    *(base64.b64encode(KEY.encode()).decode(), base64.urlsafe_b64encode(KEY.encode()).decode()),
    *(IN_BASE64[8:30], IN_BASE64[8:30].replace("/", "\\/")),
    *(KEY.encode().hex(), KEY.encode().hex().upper(), PERCENT, PERCENT[10:40]),
)
"""The keys, each long piece of one, and how it may be spelled."""

KINDS = ("echo", "escaped", "encoded", "denied", "page", "moved", "cut", "reason", "cookie")

PROVIDER = """
dialect = "openai_chat"
url = "{url}"
key_env = "{key_env}"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""
SWEEP = """
replicates = 1
width = 3
budget_usd = "50"
[[agents]]
name = "knuth"
provider = "simulated"
model = "knuth"
{agents}
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = [1] }}
"""


async def throw_back(request: web.Request) -> web.StreamResponse:
    """Whatever the model's name asks for, with the key in it."""
    kind = json.loads(await request.read())["model"]
    assert request.headers["Authorization"] == f"Bearer {OTHER_KEY if kind == 'stranger' else KEY}"
    await asyncio.sleep(0.02)
    headers = {"x-request-id": KEY, "x-ratelimit-limit-requests": KEY}
    if kind == "denied":
        return web.json_response(
            {"error": {"message": f"No: {KEY}, {KEY[:24]}...{KEY[-13:]}", "code": KEY[4:]}}, status=401, headers=headers
        )
    if kind == "page":
        return web.Response(text=f"<html><head><title>{KEY}</title></head></html>", headers=headers)
    if kind == "moved":
        return web.Response(status=307, headers={**headers, "Location": f"http://x.example/?key={KEY}"})
    if kind == "reason":
        return web.Response(status=403, reason=f"bad key {KEY}", text=KEY, headers=headers)
    if kind == "cut" and request.headers["X-Client-Request-Id"].endswith("0/0"):
        response = web.StreamResponse(headers={**headers, "Content-Length": "9999"})
        await response.prepare(request)
        await response.write(KEY.encode())
        assert request.transport is not None
        request.transport.close()
        return response
    if kind == "cookie":
        headers |= {"Set-Cookie": f"{KEY}=[{KEY}]; expires={KEY}"}
    text = json.dumps(reply(kind))
    if kind == "escaped":
        text = text.replace(json.dumps(KEY)[1:-1], "".join(f"\\u{ord(char):04x}" for char in KEY))
    if kind == "encoded":
        forms = (IN_BASE64, IN_BASE64.replace("/", "\\/"), KEY.encode().hex(), KEY.encode().hex().upper(), PERCENT)
        text = text.replace(KEY, " ".join((*forms, base64.urlsafe_b64encode(KEY.encode()).decode())))
    if kind == "stranger":
        text = text.replace(KEY, f"{KEY} {OTHER_KEY}")
    return web.Response(text=text, content_type="application/json", headers=headers)


def reply(kind: str) -> object:
    call = {"name": KEY, "arguments": json.dumps({"assignment": KEY})}
    calls = [{"id": KEY, "type": "function", "function": call}]
    message = {
        "content": f"Your key is {KEY}. It begins with {KEY[:20]}.",
        "tool_calls": calls,
        "reasoning_content": KEY,
    }
    choices = [{"message": message, "finish_reason": "tool_calls"}]
    said = {"id": KEY, "model": f"{kind}-{KEY}", "system_fingerprint": KEY}
    return {**said, "choices": choices, "usage": {"prompt_tokens": 50, "completion_tokens": 9}}


@contextmanager
def hostile() -> Iterator[str]:
    """The provider, in a thread of its own; gives its URL."""
    loop, ready, url = asyncio.new_event_loop(), threading.Event(), []

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/{tail:.*}", throw_back)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield url[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)


class Shell:
    """Calls evalkit with the key in its environment, and keeps what it says and how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[tuple[str, bytes]] = []
        self.env = {
            **os.environ,
            "PLANTED_KEY": KEY,
            "OTHER_KEY": OTHER_KEY,
            "PYTHONASYNCIODEBUG": "1",
            "COLUMNS": "300",
        }
        # In debug mode asyncio prints what it runs.

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "evalkit", *words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def end(self, process: subprocess.Popen[bytes], *words: str) -> int:
        said, _ = process.communicate(timeout=PATIENCE_S)
        self.said.append((" ".join(words), said))
        return process.returncode

    def call(self, *words: str) -> int:
        return self.end(self.start(*words), *words)

    def command_lines(self, process: subprocess.Popen[bytes]) -> int:
        """Of the process and all that it has started, as anybody on the machine may read them: how many there are."""
        before = len(self.said)
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
                if process.pid in (int(status.parent.name), parent):
                    self.said.append(
                        (f"command line of {status.parent.name}", (status.parent / "cmdline").read_bytes())
                    )
            except OSError:
                continue  # it has ended meanwhile
        return len(self.said) - before


def traces(name: str, data: bytes) -> list[str]:
    return [
        f"{name}: {trace} in {data[max(0, at - 80) : at + 80]!r}"
        for trace in TRACES
        if (at := data.find(trace.encode())) >= 0
    ]


def columns(path: Path) -> bytes:
    """Every value of a Parquet file, decompressed, and its metadata."""
    file = pq.ParquetFile(path)
    values = [repr(file.schema_arrow), repr(file.metadata.metadata)]
    for column in file.read().columns:
        values += [
            value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in column.to_pylist()
        ]
    return "\n".join(values).encode()


def test_no_byte_that_was_written_or_shown_holds_the_key(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "providers").mkdir()
    agents = "".join(f'[[agents]]\nname = "{kind}"\nprovider = "acme"\nmodel = "{kind}"\n' for kind in KINDS)
    agents += '[[agents]]\nname = "stranger"\nprovider = "other"\nmodel = "stranger"\n'
    (tmp_path / "mine.toml").write_text(SWEEP.format(agents=agents))
    with hostile() as url:
        for name, key_env in (("acme", "PLANTED_KEY"), ("other", "OTHER_KEY")):
            (tmp_path / "providers" / f"{name}.toml").write_text(PROVIDER.format(url=url, key_env=key_env))
        assert shell.call("plan", "mine.toml") == 0, shell.said[-1]
        assert shell.call("providers") == 0
        killed = shell.start("run", "mine.toml", "--dir", "run")
        wait_for_rows(tmp_path / "run", killed)
        shell.command_lines(killed)
        os.kill(killed.pid, signal.SIGKILL)
        shell.end(killed, "run, killed")
        del shell.env["PYTHONASYNCIODEBUG"]
        assert shell.call("run", "mine.toml", "--dir", "run", "--only", "agent=denied") == 3, shell.said[-1]
        resumed = shell.start("run", "mine.toml", "--dir", "run", "--json")
        while shell.command_lines(resumed) < 2 and resumed.poll() is None:  # its simulated provider is to come
            time.sleep(0.02)
        assert shell.end(resumed, "run --json") == 3
    assert shell.call("verify", "run") == 0
    for words in (("status", "run"), ("report", "run"), ("status", "run", "--json"), ("report", "run", "--json")):
        assert shell.call(*words) == 0, shell.said[-1]
    for agent in ("encoded", "stranger", "escaped", "echo", "cookie"):
        assert shell.call("show", "run", f"{agent}:scheduling/basic?periods=1:seed-0:0") == 0, shell.said[-1]
    assert b"Your key is ***." in shell.said[-1][1]
    found = [hit for name, data in shell.said for hit in traces(name, data)]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        found += traces(str(path), path.read_bytes())
        if path.suffix == ".parquet":
            found += traces(f"{path}, decompressed", columns(path))
    assert found == []
    assert len([path for path in files if path.suffix == ".parquet"]) >= 2
    assert len({name for name, _ in shell.said if "command line" in name}) >= 3, "the simulated provider's was not seen"


def wait_for_rows(run: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while len(list(run.glob("log/*/*.parquet"))) < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_neither_help_nor_version_reads_the_environment(tmp_path: Path, flag: str) -> None:
    shell = Shell(tmp_path)
    assert shell.call(flag) == 0
    assert traces(flag, shell.said[0][1]) == []
