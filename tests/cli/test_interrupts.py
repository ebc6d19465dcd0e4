"""Signals and locks, with real processes: what was paid for is on disk, and nothing is asked for twice."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from evalkit.client.lanes.slow_start import TRIAL_EPISODES
from tests.provider.serving import simulated
from tests.support.command_line import Call, await_requests, bill_lines, finish, interrupt, lab, start
from tests.support.patience import PATIENCE_S

LATENCY_S = 0.1
FLIGHT = 24
"""Requests in flight: two agents on 12 instances, all at once."""
REQUESTS = 3 * FLIGHT
"""What the provider has seen when a signal comes."""


@pytest.fixture
def slow(here: Path) -> Iterator[Path]:
    """A sweep whose replies take a tenth of a second each, and the provider's bill."""
    bill = here / "bill.jsonl"
    with simulated({"bill": str(bill), "latency": f"{LATENCY_S}s"}) as url:
        lab(here, url, width=12, periods=12)
        yield bill


def asked(bill: Path) -> list[str]:
    """`episode/step` of every request that has arrived."""
    return [line["request_id"].rpartition("/")[0] for line in bill_lines(bill)]


def until_heard(process: "subprocess.Popen[str]") -> bool:
    """Whether the process has said that it heard a signal, once it has or cannot any more."""
    assert process.stderr is not None
    return any("stopping: waiting for replies in flight" in line for line in iter(process.stderr.readline, ""))


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_lets_requests_in_flight_finish_and_the_next_call_asks_nothing_twice(
    call: Call, here: Path, slow: Path, number: int
) -> None:
    process = start(here, "run", "sweep.toml")
    await_requests(process, slow, REQUESTS)
    interrupt(process, number)
    said = finish(process)
    assert said.code == 130, said.err
    # Every reply that was paid for is on disk.
    paid = len(asked(slow))
    status = json.loads(call("status", "sweep", "--json").out)
    assert status["steps"] == paid
    assert status["money"]["spent_pico_usd"] == sum(line["cost"] for line in bill_lines(slow))
    assert not status["running"]
    # It says how to go on.
    assert "Interrupted after " in said.out
    assert "evalkit run sweep.toml" in said.out

    rest = call("run", "sweep.toml", "--json")
    assert rest.code == 0, rest.err
    everything = asked(slow)
    assert len(set(everything)) == len(everything) > paid
    assert json.loads(rest.out)["unconfirmed_usd"] == 0
    assert json.loads(rest.out)["spent_usd"] == pytest.approx(sum(line["cost"] for line in bill_lines(slow)) / 1e12)
    assert call("verify", "sweep").code == 0


IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if sys.argv[1:] == ["nohup"]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "evalkit", "run", "sweep.toml"])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("heeded", [True, False])
def test_a_run_whose_terminal_has_gone_is_closed_and_goes_on_under_nohup(
    call: Call, here: Path, slow: Path, heeded: bool
) -> None:
    own, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *([] if heeded else ["nohup"])],
        cwd=here,
        env={**os.environ, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    until = time.monotonic() + PATIENCE_S
    while len(bill_lines(slow)) < REQUESTS:
        os.read(own, 65536)
        assert process.poll() is None
        assert time.monotonic() < until
    os.close(own)
    assert process.wait(PATIENCE_S) == (130 if heeded else 0)
    status = json.loads(call("status", "sweep", "--json").out)
    assert status["money"]["spent_pico_usd"] == sum(line["cost"] for line in bill_lines(slow))
    assert (status["steps"], status["running"]) == (len(asked(slow)), False)


@pytest.mark.exhaustive
def test_a_second_signal_stops_at_once_and_what_came_back_is_kept(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bill, processes = here / "bill.jsonl", list[subprocess.Popen[bytes]]()

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **how: Any) -> None:
            super().__init__(*words, **how)
            processes.append(self)

    options = {"bill": str(bill), "latency": f"{LATENCY_S}s"}
    with monkeypatch.context() as patch, ExitStack() as stack:
        patch.setattr(subprocess, "Popen", Noted)
        lab(here, stack.enter_context(simulated(options)), width=12, periods=12)
        process = start(here, "run", "sweep.toml", "--budget", "5")
        await_requests(process, bill, REQUESTS)
        processes[0].send_signal(signal.SIGSTOP)  # nothing that is in flight comes back before the second signal
        before = len(bill_lines(bill))
        interrupt(process)
        assert until_heard(process)
        interrupt(process)
        assert finish(process).code == 130
        processes[0].send_signal(signal.SIGCONT)
    seen = asked(bill)
    status = json.loads(call("status", "sweep", "--json").out)
    assert before - FLIGHT <= status["steps"] <= len(seen)
    assert not status["running"]
    # Nothing was in flight any more when it ended, so nothing is unconfirmed.
    assert (status["money"]["open_sessions"], status["money"]["crash_charges_pico_usd"]) == (0, 0)
    lost = len(seen) - status["steps"]
    with simulated(options) as url:
        lab(here, url, width=12, periods=12)
        rest = call("run", "sweep.toml", "--json", "--budget", "5")
    assert rest.code == 0, rest.err
    everything = asked(bill)
    again = len(everything) - len(set(everything))
    assert again <= lost <= FLIGHT  # at most what was in flight, once
    # What was cut off may have been billed: the run counts at least as much as the provider does.
    assert json.loads(rest.out)["spent_usd"] >= sum(line["cost"] for line in bill_lines(bill)) / 1e12 - 1e-9
    assert call("verify", "sweep").code == 0


@pytest.mark.exhaustive
def test_a_second_signal_does_not_wait_for_a_provider_that_is_silent(call: Call, here: Path) -> None:
    bill = here / "bill.jsonl"
    with simulated({"bill": str(bill), "latency": "24h"}) as url:
        lab(here, url)
        process = start(here, "run", "sweep.toml")
        await_requests(process, bill, TRIAL_EPISODES)
        interrupt(process)
        assert until_heard(process)
        assert process.poll() is None  # it waits for what is in flight
        interrupt(process)
        assert finish(process).code == 130  # long before a reply
    assert json.loads(call("status", "sweep", "--json").out)["steps"] == 0


HOLDING = """
import asyncio, threading
from pathlib import Path
import evalkit

@evalkit.agent(version=1)
async def holding(seat):
    blocked = asyncio.create_task(asyncio.to_thread(threading.Event().wait))
    await asyncio.sleep(0)
    Path("begun").touch()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


def test_one_signal_ends_a_run_whose_agent_holds_on_to_it(here: Path) -> None:
    (here / "holding.py").write_text(HOLDING)
    (here / "sweep.toml").write_text(
        'budget_usd = "1"\n[[agents]]\nagent = "holding:holding"\nmodels = { main = "simulated/random" }\n'
        '[[suites]]\nname = "pricing/basic"\ninstances = ["seed-0"]\n'
    )
    process = start(here, "run", "sweep.toml")
    until = time.monotonic() + PATIENCE_S
    while not (here / "begun").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    interrupt(process)
    said = finish(process)
    assert said.code == 130, said.err
    assert "0 of 1 episode ended, 1 remains" in said.out
    assert "Traceback" not in said.err
    assert "Task" not in said.err


@pytest.mark.exhaustive
def test_a_second_run_is_refused_and_names_the_first(call: Call, here: Path, slow: Path) -> None:
    process = start(here, "run", "sweep.toml", "--json")
    await_requests(process, slow, 1)
    process.send_signal(signal.SIGSTOP)  # it holds its run as long as we look
    for options in ([], ["--repair"]):
        said = call("run", "sweep.toml", *options)
        assert said.code == 2
        assert str(process.pid) in said.message
        assert socket.gethostname() in said.message
    status = json.loads(call("status", "sweep", "--json").out)
    assert status["running"]
    assert status["written_by"] == f"{socket.gethostname()}:{process.pid}"
    process.send_signal(signal.SIGCONT)
    first = finish(process)
    assert first.code == 0, first.err
    assert json.loads(first.out)["reason"] == "complete"
    assert len(set(asked(slow))) == len(asked(slow))


@pytest.mark.exhaustive
def test_nobody_finds_a_key_in_what_a_run_wrote_or_printed(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-planted-5b1f0c77e2"
    monkeypatch.setenv("LAB_KEY", key)
    monkeypatch.setenv("OPENAI_API_KEY", key + "-other")
    printed = []
    for wanted, code in ((key, 0), ("another", 3)):
        folder = here / wanted[:7]
        folder.mkdir()
        faults = {"fault_500": 0.02, "fault_truncated": 0.02}
        with simulated({"key": wanted, "retry_after": "0s", **faults}) as url:
            lab(folder, url, width=12, periods=2, more='key_env = "LAB_KEY"')
            said = finish(start(folder, "run", "sweep.toml"))
            assert said.code == code, said.err
            monkeypatch.chdir(folder)
            looks = (["providers"], ["status", "sweep"], ["report", "sweep"], ["plan", "sweep.toml"])
            after = [call(*argv) for argv in looks]
        printed += [one.out + one.err for one in (said, *after)]
    assert not [text for text in printed if "planted" in text]
    files = [path for path in here.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if b"planted" in path.read_bytes()]
    assert os.environ["LAB_KEY"] == key
