"""CPU of a call by the plain twin and by the compiled kernel, by size: what `evalkit/compiled.py` says.

python -m bench.compiled
"""

import sys
from collections.abc import Callable
from importlib import import_module

from bench.measuring import best
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, make_world
from evalkit.envs.costbench.planning import solve
from evalkit.envs.scheduling import market
from evalkit.envs.scheduling.instance import FAMILIES, native_market

CALLS = 200


def main() -> bool:
    """Measure and print all; whether each kernel is faster where it serves."""
    for kernels in (market.KERNELS, solve.KERNELS):
        kernels._module = import_module(kernels.name)
    return all([*map(_pairs, (50, 200, 1000)), *map(_paths, (5, 8, 15))])


def _pairs(n: int) -> bool:
    made, matching = native_market(n, 0, FAMILIES["uniform"]), tuple(range(n))
    return _row(f"blocking pairs, n = {n}", market, "COMPILED_N", n, lambda: market.blocking(made, matching))


def _paths(length: int) -> bool:
    world = make_world(shipped("travel"), "dining", length, whole=False)
    terms = Terms(tuple(range(100, 100 + len(world.tools) + len(world.foreign))), frozenset())
    call = solve.distances.__wrapped__
    return _row(f"shortest paths, N = {length}", solve, "COMPILED_LENGTH", length, lambda: call(world, terms))


def _row(what: str, module: object, threshold: str, size: int, call: Callable[[], object]) -> bool:
    served = size >= getattr(module, threshold)
    times = []
    for least in (10**9, 0):
        setattr(module, threshold, least)
        call()  # takes the kernel from the cache, or compiles it
        times.append(best(lambda: [call() for _ in range(CALLS)]) / CALLS * 1e6)
    setattr(module, threshold, size if served else size + 1)
    plain, compiled = times
    print(f"{what:28}{plain:10.1f} us plain{compiled:10.1f} us compiled; {'compiled' if served else 'plain'} serves")
    return compiled < plain or not served


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
