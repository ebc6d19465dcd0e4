"""A real sweep for the kill tests: `evalkit run` in a process of its own, beside a simulated provider in another."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import bill_lines, lab
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the bill has it."""

    episode: str
    step: int
    attempt: int
    cost: int


def prepare(folder: Path, url: str, *, width: int = 12, periods: int = 30, replicates: int = 1) -> None:
    """A sweep and its provider in a folder of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    lab(folder, url, width=width, periods=periods)
    sweep = folder / "sweep.toml"
    sweep.write_text(f"replicates = {replicates}\n{sweep.read_text()}")


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    """`evalkit run` on the folder's sweep, in the background."""
    command = [sys.executable, "-m", "evalkit", "run", "sweep.toml", "--dir", "run", "--json", *more]
    with (folder / "out.log").open("a") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, text=True)


def finish(folder: Path, *more: str) -> int:
    """`evalkit run` on the folder's sweep, to its end; its exit code."""
    return start(folder, *more).wait(PATIENCE_S)


def kill_after(process: subprocess.Popen[str], seconds: float, bill: Path, since: int) -> bool:
    """Kill -9 so many seconds after the process's first request; False if it ended by itself before."""
    while len(read_bill(bill)) <= since:
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        return True
    return False


def read_bill(bill: Path) -> list[Seen]:
    """All requests that have arrived so far, in order."""
    known = _READ.setdefault(bill, [])
    for entry in bill_lines(bill, len(known)):
        episode, step, attempt = entry["request_id"].split("/")
        known.append(Seen(episode, int(step), int(attempt), entry["cost"]))
    return list(known)


_READ: dict[Path, list[Seen]] = {}
"""What was read of each bill: it is looked at many times a second, and only grows."""


def asked_again(lives: Sequence[Sequence[Seen]]) -> list[str]:
    """Violations of: in a new life, an episode begins no earlier than at the last request the server saw from it.

    `lives` are the requests of each process life, in order. Also within a life every step is asked once (attempts
    aside), and steps rise by one.
    """
    last: dict[str, int] = {}
    wrong = []
    for number, life in enumerate(lives):
        here: dict[str, int] = {}
        for one in life:
            if one.episode not in here:
                if one.step not in (last.get(one.episode, -1), last.get(one.episode, -1) + 1):
                    wrong.append(f"life {number}: {one} after step {last.get(one.episode)}")
            elif one.step != here[one.episode] + 1 and not (one.step == here[one.episode] and one.attempt > 0):
                wrong.append(f"life {number}: {one} after step {here[one.episode]} of the same life")
            here[one.episode] = one.step
        last |= here
    return wrong
