"""The reference's instances beside ours: sizes, productivities, both plans, what they come to, and the next draw."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalkit.testing import GoldenKind, GoldenVerdict, judged
from evalkit_litmus.allocation.market import market_of

PERIODS = 30


def check(row: Mapping[str, Any], data: Path | None) -> GoldenVerdict:
    """One instance."""
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


GOLDENS = GoldenKind(
    name="litmus_efficiency_equality", patterns=("litmus_efficiency_equality_instances*.jsonl",), check=check
)
