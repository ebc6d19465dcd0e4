"""Whether a step costs the same in a run of a thousand episodes and in one of a million.

Thirty lanes play at once under virtual time: the engine's own players, lanes, budget, log and compaction, and providers
that are functions in this process. Their replies take different times, and some are refusals and failures. CPU seconds
are divided by steps; memory is the peak of a process of its own for each size. Exits non-zero where a step of the
largest size costs more than `MOST` times one of the smallest.

    python -m bench.growth                    # 10^3 to 10^5 episodes, some minutes
    python -m bench.growth 1000 1000000       # other sizes
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from evalkit.wire.http import HttpResponse
from tests.support.virtual_fleet import OK, Fleet, sail_with_files

SIZES = (1_000, 10_000, 100_000)
LANES, WIDTH, LENGTH = 30, 20, 2
MOST = 1.3
"""Times the first size's CPU per step: caches of the processor hold less of a larger run."""
BUDGET = 10**24
"""Pico-dollars: there is a budget, and it does not bind."""
FAULTS = ((0.01, 429), (0.01, 503), (0.005, 500))
"""Shares of replies, and their status."""


class _NoList(list[Any]):
    def append(self, _: Any) -> None:
        """Keep nothing: what is measured is evalkit's memory."""


class _NoDict(dict[Any, Any]):
    def __setitem__(self, *_: Any) -> None:
        """Likewise."""


def provider(lane: int) -> Callable[[float], Awaitable[HttpResponse]]:
    """A provider with faults, each lane's of another speed."""
    draws = random.Random(lane)
    usual_s = 0.1 + 0.02 * lane

    async def answer(now: float) -> HttpResponse:
        del now
        await asyncio.sleep(usual_s * (0.5 + draws.random()))
        drawn = draws.random()
        for share, status in FAULTS:
            if drawn < share:
                return HttpResponse(status=status, headers={}, body=b"{}")
            drawn -= share
        return OK

    return answer


def play(folder: Path, episodes: int) -> int:
    """Play so many episodes; the number of steps."""
    fleets = [
        Fleet(
            f"lane-{number}",
            episodes=episodes // LANES + (number < episodes % LANES),
            width=WIDTH,
            length=LENGTH,
            provides=provider(number),
            sent=_NoList(),
            answered=_NoList(),
            queue_s=_NoList(),
            began=_NoDict(),
            ended=_NoDict(),
        )
        for number in range(LANES)
    ]
    sail_with_files(folder, *fleets, budget=BUDGET)
    contexts = [fleet.context for fleet in fleets if fleet.context is not None]
    ended = sum(context.ended["complete"] for context in contexts)
    assert ended == episodes, f"{ended} of {episodes} ended"
    return sum(context.steps for context in contexts)


def one(episodes: int) -> None:
    """Measure one size, in this process."""
    with tempfile.TemporaryDirectory(prefix="evalkit-bench-") as folder:
        play(Path(folder) / "first", 300)  # what is imported and compiled once
        began = time.process_time()
        steps = play(Path(folder) / "run", episodes)
        print(steps, time.process_time() - began)


def main() -> bool:
    """Whether the promise is kept."""
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        one(int(sys.argv[2]))
        return True
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    first = each = 0.0
    for episodes in sizes:
        child = subprocess.Popen([sys.executable, "-m", "bench.growth", "--one", str(episodes)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        said = child.stdout.read().split()
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{episodes:,} episodes: exit code {os.waitstatus_to_exitcode(status)}")
        each = float(said[1]) / int(said[0])
        first = first or each
        print(
            f"{episodes:>9,} episodes, {int(said[0]):>9,} steps: {each * 1e6:6.0f} us of CPU per step "
            f"({each / first:.2f} of the first), {used.ru_maxrss / 1024:5.0f} MB at most",
            flush=True,
        )
    print(f"a step of the largest run: {each / first:.2f} of the first's CPU, promise <= {MOST}")
    return each <= MOST * first


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
