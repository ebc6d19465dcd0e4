"""What pricing's optimum promises, in CPU time of this process, beside the reference's numerical search."""

import sys

from bench.measuring import best, span
from evalkit.envs.pricing.instance import DIFFICULTIES, load, market_of
from evalkit.envs.pricing.optimum import solve

OPTIMUM_US = 30.0
REFERENCE_S = {"basic": 0.8, "medium": 6.4, "hard": 14.8}
"""The reference's search, once a run, as measured beside the design (specification, section H): 0.6 to 37 s."""
MANY = 500


def main() -> bool:
    """Measure and print all; whether every promise is kept."""
    print(f"{'pricing, optimum of one instance':44}{'reference':>12}{'measured':>12}{'promise':>12}")
    kept = [_optimum(difficulty) for difficulty in DIFFICULTIES]
    return all(kept)


def _optimum(difficulty: str) -> bool:
    # Twelve markets, so that no cache of the processor's knows the way.
    line = {"id": "b", "generator": "reference", "products": DIFFICULTIES[difficulty]}
    markets = [market_of(load({**line, "seed": seed})) for seed in range(12)]
    spent = best(lambda: [solve(market) for _ in range(MANY) for market in markets]) / (MANY * len(markets))
    promise = OPTIMUM_US * 1e-6
    name = f"{difficulty}, {DIFFICULTIES[difficulty]} products"
    print(f"{name:44}{span(REFERENCE_S[difficulty]):>12}{span(spent):>12}{'<= ' + span(promise):>12}")
    return spent <= promise


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
