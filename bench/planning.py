"""What CostBench's plans promise, in CPU time of this process: none is slower than the reference's figure."""

import sys

import numpy as np

from bench.measuring import best, span
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.planning.solve import optimal_path
from evalkit.envs.costbench.score import normalised

SOLVE_REFERENCE_S = {5: 148e-6, 6: 450e-6, 7: 1.27e-3, 8: 3.56e-3}
"""One solve of the reference without tools of other tasks, as measured beside the design (math.md, section 4.4)."""
DISTANCE_REFERENCE_S = {5: 10.6e-6, 8: 23.3e-6}
"""One edit distance of the reference, between paths of so many calls (math.md, section 4.5)."""
FEW = 300
LOW, HIGH, NOISE = 1500, 2500, 10
"""Cents: range of atomic costs, and the noise of a composite times the root of its size."""


def main() -> bool:
    """Measure and print all; whether every promise is kept."""
    print(f"{'CostBench, of one chain':34}{'reference':>12}{'measured':>12}{'a second':>12}{'promise':>12}")
    kept = [_plans(n) for n in SOLVE_REFERENCE_S]
    return all([*kept, *(_distance(calls) for calls in DISTANCE_REFERENCE_S)])


def _plans(n: int) -> bool:
    world = make_world(shipped("travel"), "dining", n, whole=False)
    draws = np.random.default_rng(n)
    terms = [_terms(world, draws) for _ in range(FEW)]
    spent = best(lambda: [optimal_path(world, one, world.start) for one in terms]) / FEW
    return _row(f"cheapest plan, N = {n}", SOLVE_REFERENCE_S[n], spent)


def _terms(world: World, draws: np.random.Generator) -> Terms:
    """Costs as the reference's settings draw them."""
    sums = [0, *np.cumsum(draws.integers(LOW, HIGH + 1, world.length)).tolist()]
    noise = [round(draws.normal(0, NOISE * tool.size**0.5)) if tool.size > 1 else 0 for tool in world.tools]
    spans = zip(world.tools, noise, strict=True)
    return Terms(tuple(sums[tool.last + 1] - sums[tool.first] + more for tool, more in spans))


def _distance(calls: int) -> bool:
    # Encoding included, as scoring pays it.
    world = make_world(shipped("travel"), "dining", 8, whole=False)
    draws = np.random.default_rng(calls)
    paths = [[world.tools[i].name for i in draws.integers(0, len(world.tools), calls)] for _ in range(FEW)]
    spent = best(lambda: [normalised(one, paths[0]) for one in paths]) / FEW
    return _row(f"edit distance, {calls} calls", DISTANCE_REFERENCE_S[calls], spent)


def _row(name: str, reference: float, spent: float) -> bool:
    rates = f"{_rate(1 / spent):>12}{'>= ' + _rate(1 / reference):>12}"
    print(f"{name:34}{span(reference):>12}{span(spent):>12}{rates}")
    return spent <= reference


def _rate(number: float) -> str:
    return f"{number / 1e6:.1f} M" if number >= 1e6 else f"{number / 1e3:.2f} k"


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
