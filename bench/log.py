"""What the log takes of a run with 512 episodes in flight: CPU a step, and requests a second where the disk is slow.

Players wait for a reply, write its row and wait until it is durable; around that nothing. Replies take a second in the
middle, as those of hosted models do. The slow disk's syncs take 20 ms each, the instant one's no time; neither really
syncs, so that the machine's own disk does not matter. Rounds alternate, and the medians of all rounds are compared.
"""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from evalkit.money import PicoUsd
from evalkit.store import disk
from evalkit.store.files.record import LedgerRecord, StepRecord
from evalkit.store.writing.writer import Store, open_store

WIDTH = 512
REPLY_S, SPREAD = 1.0, 0.4
"""Median time of a reply, s, and the standard deviation of its logarithm."""
TURNS = 12
SYNC_S = 0.02
ROUNDS = 3
LEAST = 0.9
"""Of the requests a second with an instant disk."""
TEXT = b'{"calls":[{"arguments":"{\\"key\\": 17}","id":"c1","name":"lookup"}],"finish":"tool_calls","text":"%b"}'
FACTS = b'{"calls":[{"outcome":"ok","tool":"lookup"}],"paid":17,"left":[3,1,4,1,5,9,2,6]}'


def main() -> bool:
    """Measure and print; whether the promise is kept."""
    found: dict[float, list[tuple[float, float]]] = {0.0: [], SYNC_S: []}
    for _ in range(ROUNDS):
        for sync_s, rounds in found.items():
            rounds.append(measure(sync_s))
    instant, slow = (median(rate for rate, _ in rounds) for rounds in found.values())
    cpu = median(cpu for _, cpu in found[0.0])
    print(f"{f'{WIDTH} in flight':34}{'instant':>12}{f'{SYNC_S * 1e3:.0f} ms a sync':>14}{'ratio':>8}{'promise':>12}")
    print(f"{'requests/s':34}{instant:12,.0f}{slow:14,.0f}{slow / instant:8.2f}{f'>= {LEAST}':>12}")
    print(f"{'CPU of the log a step':34}{cpu * 1e6:9.0f} us")
    return slow / instant >= LEAST


def measure(sync_s: float) -> tuple[float, float]:
    """(requests a second, CPU seconds a step) of a session on a disk whose syncs take so long."""
    real = disk.sync_file, disk.sync_directory

    def wait(_: object) -> None:
        if sync_s:
            time.sleep(sync_s)

    disk.sync_file = disk.sync_directory = wait  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            rate = asyncio.run(session(Path(folder) / "run", REPLY_S))
            return rate, (time.process_time() - began) / (WIDTH * TURNS)
    finally:
        disk.sync_file, disk.sync_directory = real


async def session(run: Path, reply_s: float) -> float:
    """Requests a second of a session whose log is there; `reply_s`: median time of a reply."""
    with open_store(run, session="bench") as store:
        store.pace(reply_s)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(WIDTH):
                group.create_task(_play(store, number, reply_s))
        return WIDTH * TURNS / (time.perf_counter() - began)


async def _play(store: Store, number: int, reply_s: float) -> None:
    dice = random.Random(number)
    for step in range(TURNS):
        await asyncio.sleep(reply_s * dice.lognormvariate(0.0, SPREAD))
        if step % 4 == 0:
            store.enter(LedgerRecord(kind="lease", session="bench", amount=PicoUsd(10**9), at=time.time()))
        store.append(_row(number, step))
        await store.durable()


def _row(number: int, step: int) -> StepRecord:
    mark = b"%016d" % (number * 1000 + step)
    return StepRecord(
        episode=f"{number:032x}",
        environment="lookup",
        suite="lookup/basic",
        instance=f"seed-{number}",
        agent=f"agent-{number % 4}",
        replicate=0,
        take=0,
        step=step,
        period=step,
        turn=0,
        reply=TEXT % (mark * 20),
        raw=None,
        facts=FACTS,
        observation_digest=mark,
        request_digest=mark,
        step_digest=mark,
        tokens_in=900 + step,
        tokens_out=30,
        tokens_cached_read=0,
        tokens_cached_write=0,
        tokens_reasoning=0,
        cost=PicoUsd(10**6),
        latency_s=1.0,
        queue_s=0.0,
        attempts="ok",
        started_at=time.time(),
        served_model="m-1",
        fingerprint="fp",
        response_id=f"r{number}-{step}",
        finish="tool_calls",
        ending="answered" if step == TURNS - 1 else "",
        worker="bench",
    )


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
