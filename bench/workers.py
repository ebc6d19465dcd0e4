"""What several processes of one run are worth, and what coordinating them costs. Nothing is sent: the transport of each
worker is a table in memory, so that the engine alone is measured, with its lanes, its money, its log and its shares.

    python -m bench.workers
    python -m bench.workers --rounds 1 --episodes 400

One process and two alternate, one process first and last, and a ratio is that of two processes to the mean of the
rounds around them. The same is measured of two runs at once that share nothing: what two cores give on this machine,
and so the most that two workers can reach. All figures are of the time between the first tenth of a run's steps and
the last: no process starts or ends in it. With fewer than two free cores the ratio says nothing.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from unittest import mock

import orjson

from bench.measuring import span
from evalkit.dialogue import Reply, ToolCall, Usage
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.loop import run_loop
from evalkit.engine.options import RunOptions
from evalkit.engine.view import View
from evalkit.envs.table import ENVIRONMENTS
from evalkit.machines import children, process
from evalkit.money import PicoUsd
from evalkit.playing.sweeps import run_sweep
from evalkit.serve.openai_chat import SERVED_OPENAI_CHAT
from evalkit.spec.model import AgentSpec, Provider, SuiteUse, Sweep
from evalkit.wire.http import HttpResponse

INSTANCES, PERIODS = 100, 10
EPISODES = 6000
"""Workers tell of their steps twice a second: in a shorter run that alone moves a ratio by a tenth."""
WIDTH = 128
ROUNDS = 3
BUDGET = PicoUsd(10**16)
LEAST_RATIO = 1.8
MOST_MS = 60.0
"""CPU of the coordinator, for 1,000 episodes."""
EDGE = 0.1
"""So much of a run's steps is left out at its beginning and at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run."""

    per_s: float
    """Steps."""
    cpu_ms: float
    """Of the process that was started, for 1,000 episodes."""


class _Memory:
    """A provider in this process that answers at once, with the same prices each time."""

    def __init__(self) -> None:
        call = ToolCall(id="c1", name="set_prices", arguments=orjson.dumps({"prices_dict_str": PRICES}).decode())
        usage = Usage(input=900, output=30)
        reply = Reply(text="", calls=(call,), finish="tool_calls", usage=usage, model="m", response_id="r")
        self._response = HttpResponse(status=200, headers={}, body=SERVED_OPENAI_CHAT.encode_reply(reply))

    async def __aenter__(self) -> "_Memory":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def to(self, path: str, form: object = None) -> "_Memory":
        """Each of its paths."""
        del path, form
        return self

    async def send(self, body: bytes, request_id: str) -> HttpResponse:
        """The reply."""
        del body, request_id
        await asyncio.sleep(0)
        return self._response


PRICES = '{"Product_1": 7.5}'


def main() -> bool:
    """Measure and print; whether the promises are kept."""
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--episodes", type=int, default=EPISODES)
    args = options.parse_args(sys.argv[1:] if __name__ == "__main__" else [])
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    alone, both, apart = [measure(1, args.episodes)], list[Round](), list[float]()
    for _ in range(args.rounds):
        both.append(measure(2, args.episodes))
        apart.append(_apart(args.episodes))
        alone.append(measure(1, args.episodes))
    around = [mean((one.per_s, other.per_s)) for one, other in pairwise(alone)]
    ratios = [two.per_s / one for two, one in zip(both, around, strict=True)]
    most = [two / one for two, one in zip(apart, around, strict=True)]
    cpu_ms = median(one.cpu_ms for one in both)
    print(f"{'in memory, steps/s':32}{'1 process':>12}{'2 workers':>12}{'ratio':>8}{'range':>15}{'promise':>12}")
    print(f"{f'{args.episodes:,} episodes x {PERIODS}':32}", end="")
    print(f"{median(one.per_s for one in alone):12,.0f}{median(one.per_s for one in both):12,.0f}", end="")
    print(f"{median(ratios):8.2f}{f'{min(ratios):.2f} to {max(ratios):.2f}':>15}{f'>= {LEAST_RATIO}':>12}")
    print(f"{'two runs that share nothing':32}{'':12}{median(apart):12,.0f}", end="")
    print(f"{median(most):8.2f}{f'{min(most):.2f} to {max(most):.2f}':>15}")
    lowest, highest = min(one.cpu_ms for one in both), max(one.cpu_ms for one in both)
    print(f"{'coordinator, CPU of 1,000 episodes':56}{span(cpu_ms * 1e-3):>8}", end="")
    print(f"{f'{lowest:.0f} to {highest:.0f} ms':>15}{f'<= {MOST_MS:.0f} ms':>12}")
    return median(ratios) >= LEAST_RATIO and cpu_ms <= MOST_MS


def measure(workers: int, episodes: int) -> Round:
    """One run in a process of its own."""
    words = [sys.executable, "-m", "bench.workers", "run", str(workers), str(episodes)]
    said = subprocess.run(words, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    return Round(**json.loads(said.splitlines()[-1]))


def _apart(episodes: int) -> float:
    """Steps/s of two runs of one process at once."""
    with ThreadPoolExecutor(2) as pool:
        return sum(one.per_s for one in pool.map(lambda _: measure(1, episodes), range(2)))


def _run(workers: int, episodes: int) -> Round:
    seen: list[tuple[float, float, int, int]] = []

    def look(view: View) -> None:
        steps, done = sum(lane.steps for lane in view.lanes), sum(lane.done for lane in view.lanes)
        seen.append((time.perf_counter(), time.process_time(), steps, done))

    @contextmanager
    def nowhere(provider: Provider, run: Path) -> Iterator[str]:
        del provider, run
        yield "http://127.0.0.1:9"

    command = (sys.executable, "-m", "bench.workers", "work")
    with tempfile.TemporaryDirectory() as folder, _in_memory(), mock.patch.object(children, "COMMAND", command):
        options = RunOptions(directory=Path(folder) / "run", launch=nowhere)
        sweep = _sweep(Path(folder), episodes)
        outcome = run_loop(run_sweep(resolve(replace(sweep, workers=workers)), options, look))
    assert outcome.reason == "complete", outcome
    steps = seen[-1][2]
    inner = [one for one in seen if EDGE * steps <= one[2] <= (1 - EDGE) * steps]
    (first_s, first_cpu_s, first, before), (last_s, last_cpu_s, last, after) = inner[0], inner[-1]
    return Round(
        per_s=(last - first) / (last_s - first_s), cpu_ms=1e6 * (last_cpu_s - first_cpu_s) / max(1, after - before)
    )


def _sweep(folder: Path, episodes: int) -> Sweep:
    suite = folder / "fresh.jsonl"
    made = ENVIRONMENTS["pricing"].generate({"products": 1, "periods": PERIODS}, INSTANCES, 1)
    suite.write_bytes(b"\n".join(orjson.dumps(dict(line)) for line in made))
    return Sweep(
        name="bench",
        source="bench",
        agents=(AgentSpec(name="model", provider="simulated", model="learner"),),
        suites=(SuiteUse(name=str(suite)),),
        replicates=episodes // INSTANCES,
        width=WIDTH,
        budget=BUDGET,
    )


@contextmanager
def _in_memory() -> Iterator[None]:
    with mock.patch("evalkit.engine.endpoints.open_transport", return_value=_Memory()):
        yield


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        with _in_memory():
            sys.exit(run_loop(process.main(int(sys.argv[2]), sys.argv[3])))
    if sys.argv[1:2] == ["run"]:
        done = _run(int(sys.argv[2]), int(sys.argv[3]))
        print(json.dumps({"per_s": done.per_s, "cpu_ms": done.cpu_ms}))
        sys.exit(0)
    sys.exit(0 if main() else 1)
