"""The kernels' promises, in CPU time of this process, each beside the plain definition measured in the same run."""

import sys

import numpy as np

from bench.measuring import best, span
from evalkit.envs.scheduling.batch import blocking_counts, repair_runs
from evalkit.envs.scheduling.instance import FAMILIES, Gaps, reference_market
from evalkit.envs.scheduling.market import SchedulingMarket, expected_numerator

SIZES = {10: 0.15, 20: 0.35, 50: 0.9}
"""Microseconds a matching that batches of this size may cost."""
EXPECTED_US = 20.0
HEURISTIC_MS = 1.0


def main() -> bool:
    """Measure and print all; whether every promise is kept."""
    print(f"{'kernel':44}{'plain':>12}{'measured':>12}{'promise':>12}")
    kept = [_counting(n, promise) for n, promise in SIZES.items()]
    return all([*kept, _expected(), _heuristic()])


def _market(n: int) -> SchedulingMarket:
    family = FAMILIES["uniform"]
    return reference_market(n, 0, Gaps(worker=family.worker, task=family.task))[0]


def _counting(n: int, promise_us: float) -> bool:
    market, draws = _market(n), np.random.default_rng(0)
    many = np.array([draws.permutation(n) for _ in range(20_000)])
    few = many[:200]
    plain = best(lambda: blocking_counts(market, few, compiled=False)) / len(few)
    return _row(
        f"blocking pairs of a matching, n = {n}",
        plain,
        best(lambda: blocking_counts(market, many, compiled=True)) / len(many),
        promise_us * 1e-6,
    )


def _expected() -> bool:
    # Plain: 10,000 random matchings, as the reference estimates it.
    market = _market(50)
    sample = np.array([np.random.default_rng(0).permutation(50) for _ in range(1000)])
    plain = 10 * best(lambda: blocking_counts(market, sample, compiled=False))
    exact = best(lambda: expected_numerator(market.worker_rank, market.task_rank_t))
    return _row("expected blocking pairs, n = 50", plain, exact, EXPECTED_US * 1e-6)


def _heuristic() -> bool:
    market, draws = _market(50), np.random.default_rng(0)
    starts = np.array([draws.permutation(50) for _ in range(200)])
    uniforms = draws.random((200, 99))
    plain = best(lambda: repair_runs(market, starts[:2], uniforms[:2], compiled=False)) / 2
    measured = best(lambda: repair_runs(market, starts, uniforms, compiled=True)) / len(starts)
    return _row("heuristic run, n = 50, 100 periods", plain, measured, HEURISTIC_MS * 1e-3)


def _row(name: str, plain: float, measured: float, promise: float) -> bool:
    print(f"{name:44}{span(plain):>12}{span(measured):>12}{'<= ' + span(promise):>12}")
    return measured <= promise


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
