"""A night in which the key expires twice: a command prints the next one, and nothing is lost or paid twice."""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from evalkit.serve.bill import BillLine
from evalkit.serve.options import options_from
from evalkit.serve.outcome import Arrival
from evalkit.serve.provider import Simulator
from tests.support.patience import PATIENCE_S

EXPIRES_AT = (20, 50)
"""Replies after which the key of the moment is valid no longer."""

PROVIDER = """
dialect = "openai_chat"
url = "{url}/v1"
key_command = [{command}]
any_model = true
[usd_per_mtok]
input = "1"
output = "4"
as_of = 2026-11-21
source = "made up"
"""
SWEEP = """
replicates = 2
width = 2
budget_usd = "50"
[[agents]]
name = "noisy"
provider = "acme"
model = "noisy"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6"]
vary = { periods = [4] }
"""
PRINTS = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


class Night:
    """A provider that accepts the newest key alone, and hands out keys."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.valid = ""
        self.wrong = False
        """Whether the keys that it hands out are of no use."""
        self.refused: Counter[str] = Counter()
        self.bill: list[BillLine] = []
        self.simulator = Simulator(options_from({"price": "1:4"}), 0.0)

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            self.keys.append(f"night-key-{len(self.keys)}-abcdefghijklmnop")
            self.valid = "" if self.wrong else self.keys[-1]
            return web.Response(text=self.keys[-1])
        body = await request.read()
        key = request.headers["Authorization"].removeprefix("Bearer ")
        await asyncio.sleep(0.01)  # so that several are in flight when the key expires
        if key != self.valid:
            self.refused[key] += 1
            return web.json_response({"error": {"message": f"The key {key} has expired."}}, status=401)
        arrival = Arrival(method="POST", path=request.path, headers=request.headers, body=body)
        outcome = self.simulator.handle(arrival, 0.0)
        assert outcome.line is not None
        self.simulator.leave(outcome)
        self.bill.append(outcome.line)
        if len(self.bill) in EXPIRES_AT:
            self.valid = ""
        return web.Response(status=outcome.status, headers=outcome.headers, body=outcome.body)


@contextmanager
def serving(night: Night) -> Iterator[str]:
    """The provider, in a thread of its own; gives its URL."""
    loop, ready, url = asyncio.new_event_loop(), threading.Event(), list[str]()

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(night.answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
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


def called(folder: Path, *words: str) -> tuple[int, bytes]:
    """Exit code and all that a command says."""
    command = [sys.executable, "-m", "evalkit", *words]
    env = {**os.environ, "COLUMNS": "300", "PYTHONASYNCIODEBUG": "1", "no_proxy": "*"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr


def prepared(folder: Path, url: str) -> None:
    (folder / "providers").mkdir()
    command = ", ".join(map(repr, (sys.executable, "-c", PRINTS, f"{url}/key")))
    (folder / "providers" / "acme.toml").write_text(PROVIDER.format(url=url, command=command))
    (folder / "mine.toml").write_text(SWEEP)


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files, and what is compressed in them."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()
        if path.suffix == ".parquet":
            yield f"{path}, decompressed", repr(pq.ParquetFile(path).read().to_pylist()).encode()


@pytest.mark.exhaustive
def test_a_night_whose_key_expires_twice_loses_nothing_and_pays_nothing_twice(tmp_path: Path) -> None:
    night = Night()
    with serving(night) as url:
        prepared(tmp_path, url)
        code, said = called(tmp_path, "run", "mine.toml", "--dir", "run")
    assert code == 0, said.decode()
    assert len(night.keys) == 3
    assert night.refused.keys() == {*night.keys[:2]}
    assert len(night.bill) > EXPIRES_AT[-1]
    asked = Counter(line.request_id.rpartition("/")[0] for line in night.bill)
    assert set(asked.values()) == {1}, "a step was paid twice"
    code, books = called(tmp_path, "budget", "run", "--json")
    assert orjson.loads(books)["spent_pico_usd"] == sum(line.cost for line in night.bill)
    code, shown = called(tmp_path, "status", "run", "--json")
    assert orjson.loads(shown)["cells"][0]["endings"] == {"complete": 6}
    everything = [("run", said), ("budget", books), ("status", shown), *written(tmp_path)]
    assert len(everything) > 8
    found = [(name, key) for name, data in everything for key in night.keys if key.encode() in data]
    assert found == []


class ShortNight(Night):
    """Its keys expire often, and once when a refused request comes again, after others were answered with the next."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.worked: set[str] = set()
        self.met_two = False

    async def answer(self, request: web.Request) -> web.Response:
        name = request.headers.get("X-Client-Request-Id", "").rpartition("/")[0]
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if name in self.seen and key in self.worked and not self.met_two:
            self.met_two, self.valid = True, ""
        self.seen.add(name)
        answer = await super().answer(request)
        if key and answer.status == 200:
            self.worked.add(key)
            if len(self.bill) % 8 == 0:
                self.valid = ""
        return answer


@pytest.mark.exhaustive
def test_a_request_may_meet_two_keys_that_have_expired(tmp_path: Path) -> None:
    night = ShortNight()
    with serving(night) as url:
        prepared(tmp_path, url)
        code, said = called(tmp_path, "run", "mine.toml", "--dir", "run")
    assert code == 0, said.decode()
    assert night.met_two
    assert set(Counter(line.request_id.rpartition("/")[0] for line in night.bill).values()) == {1}


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("wrong", [True, False])
def test_keys_that_are_of_no_use_end_the_lane_and_no_key_ends_the_command(tmp_path: Path, wrong: bool) -> None:
    night = Night()
    night.wrong = True
    with serving(night) as url:
        prepared(tmp_path, url if wrong else f"{url}/")
        if not wrong:
            path = tmp_path / "providers" / "acme.toml"
            path.write_text(path.read_text().replace("-c", "-no-such-flag"))
        code, said = called(tmp_path, "run", "mine.toml", "--dir", "run")
    if wrong:
        assert code == 3
        assert b"The key *** has expired. Check the key in what the command `" in said
        assert len(night.keys) == 2
    else:
        assert code == 2
        assert b"key_command: `" in said
        assert b"ended with exit code 2. unknown option" in said.lower()
    assert not night.bill
    assert not [key for key in night.keys if key.encode() in said]
