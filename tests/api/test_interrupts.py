"""Ctrl-C in a program: the run drains, the program gets KeyboardInterrupt, the next call goes on. Real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import evalkit
from evalkit.serve.launch import simulated
from tests.api.specs import LAB, served
from tests.support.command_line import await_requests, bill_lines, finish

PROJECT = Path(__file__).resolve().parent.parent.parent

ENDS = """
import json, signal, sys
def ended(how):
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(json.dumps({"how": how, "handlers": mine}), flush=True)
"""

PLAIN = f"""{ENDS}
import evalkit
try:
    evalkit.run(json.loads(sys.argv[1]))
except KeyboardInterrupt:
    ended("KeyboardInterrupt")
"""

NOTEBOOK = f"""{ENDS}
import asyncio, evalkit
async def cell():
    try:
        evalkit.run(json.loads(sys.argv[1]))
    except KeyboardInterrupt:
        print("in the cell", flush=True)
        raise
loop = asyncio.new_event_loop()
try:
    loop.run_until_complete(cell())
except KeyboardInterrupt:
    ended("KeyboardInterrupt")
"""

AWAITED = f"""{ENDS}
import asyncio, evalkit
try:
    asyncio.run(evalkit.run_async(json.loads(sys.argv[1])))
except KeyboardInterrupt:
    ended("KeyboardInterrupt")
"""


@pytest.fixture
def bill(here: Path) -> Iterator[Path]:
    """The bill of a provider whose replies take a tenth of a second each."""
    (here / "providers").mkdir()
    with simulated({"latency": "0.1s", "bill": str(here / "bill.jsonl")}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))
        yield here / "bill.jsonl"


def begin(script: str, here: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(served())],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("script", [PLAIN, NOTEBOOK, AWAITED], ids=["plain", "notebook", "awaited"])
def test_the_first_signal_drains_and_nothing_is_asked_twice(script: str, here: Path, bill: Path) -> None:
    process = begin(script, here)
    await_requests(process, bill, 40)
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert json.loads(said.out.splitlines()[-1]) == {"how": "KeyboardInterrupt", "handlers": True}, said.err
    if script == NOTEBOOK:
        assert said.out.splitlines()[0] == "in the cell"
    begun = evalkit.load("mine")
    assert (begun.reason, begun.planned) == ("interrupt", 24)
    steps = begun.sql("select count(*) as n from steps").to_pylist()[0]["n"]
    assert steps == len(bill_lines(bill)) >= 40
    assert begun.spent_usd == Decimal(sum(line["cost"] for line in bill_lines(bill))) / 10**12

    done = evalkit.run(served())
    assert (done.reason, done.ended) == ("complete", 24)
    asked = [line["request_id"].rpartition("/")[0] for line in bill_lines(bill)]
    assert len(set(asked)) == len(asked)


@pytest.mark.exhaustive
@pytest.mark.parametrize("script", [PLAIN, NOTEBOOK], ids=["plain", "notebook"])
def test_a_second_signal_stops_at_once(script: str, here: Path) -> None:
    (here / "providers").mkdir()
    bill = here / "bill.jsonl"
    # Replies that never come within a test's patience: only who does not wait for them ends.
    with simulated({"latency": "3600s", "bill": str(bill)}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))
        process = begin(LOOK + script.replace("evalkit.run(", "evalkit.run(on_progress=look, spec="), here)
        assert process.stdout is not None
        assert process.stdout.readline() == "in flight\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        said = finish(process)
    assert json.loads(said.out.splitlines()[-1])["how"] == "KeyboardInterrupt", said.err
    assert evalkit.load("mine").reason == "interrupt"


LOOK = """
told = set()
def look(now):
    words = "stopping" if now.stopping else "in flight" if any(one["in_flight"] for one in now.lanes.values()) else ""
    if words and words not in told:
        told.add(words)
        print(words, flush=True)
"""
