"""The reference's prices, hints, quantities and profits beside ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.testing import GoldenKind, GoldenVerdict, differing, documented
from evalkit_litmus.duopoly import demand

SEARCHED = "searched-price"
OFF = 5e-6
"""In units of alpha: how far the reference's search may end from the price that it looks for."""
ROUNDING = 1e-12
"""Relative, of quantities and profits."""


def check(row: Mapping[str, Any], data: Path | None) -> GoldenVerdict:
    """One number of sellers and one alpha."""
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
    return documented(SEARCHED)


GOLDENS = GoldenKind(
    name="litmus_collusion",
    patterns=("litmus_collusion_reference*.json",),
    check=check,
    differences={
        SEARCHED: "both prices are roots of equations; the reference's numerical search ends up to 4e-6 of alpha away. "
        "Profits at its own prices, hints and quantities are the same"
    },
)
