"""What procurement's optimum promises, in CPU time of this process, beside the plain path and the reference's solver.

Other seeds than those of the paper's instances; every search begins without a plan. Each is solved once:
a mean and a maximum over many markets say more here than the fastest of several runs.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from bench.measuring import span
from evalkit.envs.procurement.best import solve
from evalkit.envs.procurement.generate import DIFFICULTIES, Shape, reference_market
from evalkit.envs.procurement.market import ProcurementMarket

HARD = DIFFICULTIES["hard"]
BIG = replace(HARD, categories=20, products=400, deals=400)
SEED = 100
"""The first; the paper's instances have 0 to 11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One size of markets on one path."""

    name: str
    shape: Shape
    compiled: bool
    markets: int
    mean_s: float | None = None
    """Promise; None: only that all are proven."""
    most_s: float | None = None
    reference: tuple[float, float] | None = None
    """Mean and maximum of Gurobi 13 with tangent cuts, as measured beside the design (math.md, section 3.4)."""


LINES = (
    Line(name="hard, plain", shape=HARD, compiled=False, markets=60, mean_s=1.0, most_s=4.0, reference=(0.16, 0.99)),
    Line(name="hard", shape=HARD, compiled=True, markets=300, mean_s=5e-3, most_s=50e-3, reference=(0.16, 0.99)),
    Line(name="n = 200, k = 10", shape=replace(HARD, products=200, deals=200), compiled=True, markets=60,
         reference=(0.17, 0.90)),
    Line(name="n = 400, k = 20", shape=BIG, compiled=True, markets=60, reference=(1.3, 2.2)),
)  # fmt: skip


def main() -> bool:
    """Measure and print all; whether every promise is kept."""
    print(f"{'procurement optimum':24}{'reference, most':>18}{'mean':>10}{'most':>10}{'proven':>10}{'promise':>20}")
    kept = [_line(line) for line in LINES]
    return all(kept)


def _line(line: Line) -> bool:
    solve(reference_market(DIFFICULTIES["basic"], SEED).market, compiled=line.compiled)  # compiles
    times, proven = _measured((reference_market(line.shape, SEED + i).market for i in range(line.markets)), line)
    mean, most = sum(times) / len(times), max(times)
    theirs = "-" if line.reference is None else f"{span(line.reference[0])}, {span(line.reference[1])}"
    promise = "all proven"
    kept = proven == len(times)
    if line.mean_s is not None and line.most_s is not None:
        promise = f"<= {span(line.mean_s)}, {span(line.most_s)}"
        kept = kept and mean <= line.mean_s and most <= line.most_s
    share = f"{proven}/{len(times)}"
    print(f"{line.name:24}{theirs:>18}{span(mean):>10}{span(most):>10}{share:>10}{promise:>20}")
    return kept


def _measured(markets: Iterable[ProcurementMarket], line: Line) -> tuple[list[float], int]:
    times, proven = [], 0
    for market in markets:
        began = time.process_time_ns()
        found = solve(market, compiled=line.compiled)
        times.append((time.process_time_ns() - began) * 1e-9)
        proven += found.proven
    return times, proven


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
