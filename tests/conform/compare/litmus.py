"""The litmus tests of `examples/evalkit-litmus`, read from its folder: plans and prices beside the reference's."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.conform.compare.goldens import GoldenVerdict, Row, differing, documented, judged

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "evalkit-litmus"
sys.path.append(str(EXAMPLE))

from evalkit_litmus.allocation.market import market_of  # noqa: E402
from evalkit_litmus.duopoly import demand  # noqa: E402
from evalkit_litmus.patience.rates import reliability_of  # noqa: E402

PERIODS = 30
OFF = 5e-6
"""In units of alpha: how far the reference's search may end from the price that it looks for."""
ROUNDING = 1e-12
"""Relative, of quantities and profits."""
LAST_DIGITS = 1e-15
"""Of reliabilities."""


def plans(row: Row, data: Path | None) -> GoldenVerdict:
    """Sizes, productivities, both plans, what they come to, and the next draw."""
    del data
    market = market_of(row["seed"], PERIODS)
    (most, widest), (least, narrowest) = market.totals(market.efficient), market.totals(market.equal)
    ours = {
        "seed": row["seed"],
        "task_sizes": _joined(market.sizes),
        "productivities": market.productivities,
        "equality_alloc": _joined(market.equal),
        "efficiency_alloc": _joined(market.efficient),
        "revenue_max_efficiency": most,
        "revenue_max_equality": least,
        "inequality_max_efficiency": widest,
        "inequality_max_equality": narrowest,
        "rng_probe_next_double": market.probe,
    }
    return judged(row, ours)


def _joined(periods: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {task: value for of_period in periods for task, value in of_period.items()}


def prices(row: Row, data: Path | None) -> GoldenVerdict:
    """Prices, hints, quantities and profits of one number of sellers and one alpha."""
    del data
    sellers, alpha = row["num_agents"], row["alpha"]
    expected = {"monopoly": demand.monopoly(sellers), "nash": demand.competitive(sellers)}
    for name, price in expected.items():
        for i, golden in enumerate(row[name]):
            if abs(golden / alpha - price) > OFF:
                return differing(f"{name}[{i}]: golden {golden}, ours {alpha * price}")
        ours = demand.profits(alpha, row[name])
        for i, (golden, profit) in enumerate(zip(row[f"{name}_profits"], ours, strict=True)):
            if abs(golden - profit) > ROUNDING * golden:
                return differing(f"{name}_profits[{i}]: golden {golden}, ours {profit}")
    if row["upper_bound_price"] != demand.hint(alpha, sellers):
        return differing(f"upper_bound_price: golden {row['upper_bound_price']}, ours {demand.hint(alpha, sellers)}")
    sold = demand.quantities(alpha, [1.5 * alpha] * sellers)
    if any(abs(golden - ours) > ROUNDING * golden for golden in row["quantities_at_1_5alpha"] for ours in sold):
        return differing(f"quantities_at_1_5alpha: golden {row['quantities_at_1_5alpha']}, ours {list(sold)}")
    return documented("searched-price")


def rates(row: Row, data: Path | None) -> GoldenVerdict:
    """One horizon's sample of answers: the reliability of each rate of the golden grid."""
    del data
    nows, trials = row["preferred_100_count"], row["num_trials"]
    counts = {float(value): (now, trials) for value, now in zip(row["values"], nows, strict=True)}
    reliability = reliability_of(counts, row["horizon_years"])
    for rate, golden in row["reliability_by_rate"]:
        ours = reliability(rate)
        if ours is None or abs(float(ours) - golden) > LAST_DIGITS:
            return differing(f"reliability_by_rate[{rate}]: golden {golden}, ours {ours}")
    return documented("exact-reliability")
