"""`python -m tests.sim`: live through many seeds, and tell the story of those in which a promise did not hold.

python -m tests.sim --seeds 10000      # or: make sim SEEDS=10000
python -m tests.sim --seed 4711        # one seed's story
python -m tests.sim --always agents    # in each seed agents are code
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count

from tests.sim.scenario import AIMED, DISTURBANCES, Scenario, scenario
from tests.sim.seed import Lived, live_through
from tests.sim.shrink import shrunk
from tests.sim.sweeps import SWEEPS


def main() -> int:
    """0: all promises held in all seeds; 1: they did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this seed alone, with its story")
    parser.add_argument("--stop", type=int, default=5, help="end after so many seeds that break a promise")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--always", choices=(*DISTURBANCES, *AIMED), action="append", default=[], help="each seed has this"
    )
    parser.add_argument("--plain", action="store_true", help="do not shrink what fails")
    given = parser.parse_args()
    always = frozenset(given.always)
    if given.seed is not None:
        return _one(given.seed, always)
    took: list[float] = []
    counts, seeds = Counter[str](), Counter[str]()
    broken: list[int] = []
    seeds_given = range(given.first, given.first + given.seeds)
    for number, (lived, seconds) in enumerate(_all(seeds_given, given.processes, always)):
        took.append(seconds)
        counts.update(lived.counts)
        seeds.update(name for name, count in lived.counts.items() if count)
        if lived.broken:
            broken.append(given.first + number)
            print(f"seed {given.first + number}: {lived.broken}", flush=True)
            if len(broken) >= given.stop:
                break
    print(summary(took, len(broken), counts, seeds))
    if broken and not given.plain:
        _tell(shrunk(scenario(broken[0], len(SWEEPS), always=always)))
    return 1 if broken else 0


def summary(took: Sequence[float], broken: int, counts: Mapping[str, int], seeds: Mapping[str, int]) -> str:
    """How many seeds, how long, and how often each disturbance came about: what never does proves nothing."""
    ordered = sorted(took)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    names = [*DISTURBANCES, *sorted(set(counts) - set(DISTURBANCES))]
    rows = [f"  {name:16} {counts.get(name, 0):9,} times in {seeds.get(name, 0):7,} seeds" for name in names]
    never = [name for name in DISTURBANCES if not counts.get(name)]
    return "\n".join(
        [
            *rows,
            *([f"NEVER: {', '.join(never)}"] if never else []),
            f"{len(took)} seeds, {broken} broken; CPU s per seed: median {statistics.median(took):.3f}, "
            f"p95 {p95:.3f}, most {ordered[-1]:.2f}",
        ]
    )


def _all(seeds: range, processes: int, always: frozenset[str]) -> Iterator[tuple[Lived, float]]:
    live = partial(timed, always=always)
    if processes == 1:
        yield from map(live, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield from pool.map(live, seeds, chunksize=8)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


COLLECT_EVERY = 16
"""Seeds between two collections of a process's garbage: each walks all modules, and a seed leaves little."""

_SEEDS = count(1)
"""How many this process has lived through."""


def timed(seed: int, *, always: frozenset[str]) -> tuple[Lived, float]:
    """A seed lived through, and its CPU seconds."""
    began = time.process_time()
    gc.disable()
    lived = live_through(scenario(seed, len(SWEEPS), always=always))
    if next(_SEEDS) % COLLECT_EVERY == 0:
        gc.collect()
    return lived, time.process_time() - began


def _one(seed: int, always: frozenset[str]) -> int:
    lived = live_through(scenario(seed, len(SWEEPS), always=always), detailed=True)
    print("\n".join(lived.story))
    print(lived.broken or f"all promises held: {lived.lives} lives, {lived.requests} requests")
    if lived.broken:
        _tell(shrunk(scenario(seed, len(SWEEPS), always=always)))
    return 1 if lived.broken else 0


def _tell(least: tuple[Scenario, Lived]) -> None:
    told, _ = least
    lived = live_through(told, detailed=True)
    active = ", ".join(sorted(told.active)) or "no disturbances"
    print(f"\nThe shortest story of seed {told.seed} ({active}; {len(told.lives)} disturbed lives):")
    print("\n".join(lived.story))
    print(lived.broken)


if __name__ == "__main__":
    sys.exit(main())
