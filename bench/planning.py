"""What CostBench's plans promise, in CPU time of this process, beside the plain path and the reference's figure."""

import sys

import numpy as np

from bench.measuring import best, span
from evalkit.envs.costbench.distance import normalised
from evalkit.envs.costbench.domain.catalogue_files import shipped
from evalkit.envs.costbench.domain.world import Terms, World, make_world
from evalkit.envs.costbench.planning.batch import cheapest, greedy
from evalkit.envs.costbench.planning.chain_loops import UNAVAILABLE
from evalkit.envs.costbench.planning.solve import greedy_path, optimal_path

SOLVES_PER_S, GREEDY_PER_S = 4e6, 10e6
"""Chains a second that batches promise, N = 5..8."""
SOLVE_REFERENCE_S = {5: 148e-6, 6: 450e-6, 7: 1.27e-3, 8: 3.56e-3}
"""One solve of the reference without tools of other tasks, as measured beside the design (math.md, section 4.4)."""
GREEDY_REFERENCE_S = {5: 42e-3, 6: 65e-3, 7: 92e-3, 8: 155e-3}
"""One greedy plan of the reference (specification, section 10)."""
DISTANCE_REFERENCE_S = {5: 10.6e-6, 8: 23.3e-6}
"""One edit distance of the reference, between paths of so many calls (math.md, section 4.5)."""
MANY, FEW = 50_000, 300
LOW, HIGH, NOISE = 1500, 2500, 10
"""Cents: range of atomic costs, and the noise of a composite times the root of its size."""


def main() -> bool:
    """Measure and print all; whether every promise is kept."""
    print(
        f"{'CostBench, of one chain':34}{'reference':>12}{'plain':>12}{'in batches':>12}{'a second':>12}{'promise':>12}"
    )
    kept = [_plans(n) for n in SOLVE_REFERENCE_S]
    return all([*kept, *(_distance(calls) for calls in DISTANCE_REFERENCE_S)])


def _plans(n: int) -> bool:
    costs, held = _chains(n), np.ones(MANY, np.int64)
    world = make_world(shipped("travel"), "dining", n, whole=False)
    terms = [_terms(world, one) for one in costs[:FEW]]
    plain = best(lambda: [optimal_path(world, one, world.start) for one in terms]) / FEW
    quick = best(lambda: cheapest(costs, held, compiled=True)) / MANY
    solves = _row(f"cheapest plan, N = {n}", SOLVE_REFERENCE_S[n], plain, quick, SOLVES_PER_S)
    plain = best(lambda: [greedy_path(world, one, world.start, None, 20) for one in terms]) / FEW
    quick = best(lambda: greedy(costs, held, compiled=True)) / MANY
    return _row(f"greedy plan, N = {n}", GREEDY_REFERENCE_S[n], plain, quick, GREEDY_PER_S) and solves


def _chains(n: int) -> "np.typing.NDArray[np.int64]":
    """(MANY, n, n) span costs as the reference's settings draw them; the tool for everything is not there."""
    draws = np.random.default_rng(n)
    sums = np.zeros((MANY, n + 1), np.int64)
    sums[:, 1:] = np.cumsum(draws.integers(LOW, HIGH + 1, (MANY, n)), axis=1)
    costs = np.full((MANY, n, n), UNAVAILABLE)
    for i in range(n):
        for j in range(i, n - (i == 0)):
            noise = np.rint(draws.normal(0, NOISE * (j - i + 1) ** 0.5, MANY)).astype(np.int64)
            costs[:, i, j] = sums[:, j + 1] - sums[:, i] + (noise if j > i else 0)
    return costs


def _terms(world: World, costs: "np.typing.NDArray[np.int64]") -> Terms:
    return Terms(tuple(int(costs[tool.first, tool.last]) for tool in world.tools))


def _distance(calls: int) -> bool:
    # Encoding included, as scoring pays it. The promise is no figure of its own: never slower than the reference.
    reference = DISTANCE_REFERENCE_S[calls]
    world = make_world(shipped("travel"), "dining", 8, whole=False)
    draws = np.random.default_rng(calls)
    paths = [[world.tools[i].name for i in draws.integers(0, len(world.tools), calls)] for _ in range(FEW)]
    spent = best(lambda: [normalised(one, paths[0]) for one in paths]) / FEW
    return _row(f"edit distance, {calls} calls", reference, spent, None, 1 / reference)


def _row(name: str, reference: float, plain: float, quick: float | None, least: float) -> bool:
    spent = plain if quick is None else quick
    batch = "-" if quick is None else span(quick)
    print(f"{name:34}{span(reference):>12}{span(plain):>12}{batch:>12}{_rate(1 / spent):>12}{'>= ' + _rate(least):>12}")
    return 1 / spent >= least


def _rate(number: float) -> str:
    return f"{number / 1e6:.1f} M" if number >= 1e6 else f"{number / 1e3:.0f} k"


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
