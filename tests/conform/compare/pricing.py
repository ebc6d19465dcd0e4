"""Golden cases of pricing: instances, demand, optima, hints, and whole runs with their scores.

Instances, demand, hints and what a run is told are compared exactly. An optimum is not, and neither is a score, which
is divided by one: figures of another derivation of the same closed form are equal within `ROUNDING`, the last bits of
sums and logarithms; the reference's own, found by a numerical search, within what that search leaves (`SEARCH_PROFIT`,
`SEARCH_PRICE`), after it was shown that they are what its prices earn by our demand. The latter are a documented
difference.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.environment import Facts, Kit
from evalkit.envs.pricing.demand import CUSTOMERS, LINEAR, PricingMarket, profits, quantities
from evalkit.envs.pricing.instance import DIFFICULTIES, REFERENCE_PERIODS, PricingInstance, load, market_of
from evalkit.envs.pricing.optimum import BLOCK, best_prices, hint, solve
from evalkit.envs.pricing.pricing import ACTION, PRICING, RULES
from evalkit.spec.packs import read_pack
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, documented, judged, parting

ROUNDING = 1e-13
"""Relative: sums of at most a hundred doubles, and logarithms of other platforms."""
SEARCH_PROFIT = 1e-12
"""Relative: 4e-13 is the most that was seen."""
SEARCH_PRICE = 1e-6
"""Relative: 3.2e-7 is the most that was seen. Profit is flat at its top, so prices are the worse known."""

CLOSED_FORM = "closed-form-optimum"


def instances(row: Row, data: Path | None) -> GoldenVerdict:
    """Everything drawn, and the alphas of all periods, bit for bit."""
    del data
    target = target_of(row)
    market = market_of(target)
    drift, ids = market.drift, list(market.products)
    linear = drift.kind == LINEAR
    ours = {
        "env": PRICING.name,
        "difficulty": row["difficulty"],
        "seed": target.seed,
        "n": target.products,
        "product_ids": ids,
        "env_type": drift.kind,
        "starting_alphas": drift.start,
        "costs": dict(zip(ids, market.costs, strict=True)),
        "a": market.qualities,
        "a0": 0.0,
        "sigma": market.sigma,
        "mu": market.mu,
        "period_length": drift.length,
        "group_idxs": market.groups,
        "slopes": drift.step if linear else (),
        "amplitudes": () if linear else drift.step,
        "multiplier_unique": [CUSTOMERS],
        "upper_bound_multiplier": market.factor,
        "alpha_list": [drift.alphas(period) for period in range(REFERENCE_PERIODS)],
    }
    return judged(row, ours)


def vectors(row: Row, data: Path | None) -> GoldenVerdict:
    """Quantities and profits of one list of prices in one period, unrounded, bit for bit."""
    del data
    market = market_of(target_of(row))
    alphas = market.drift.alphas(row["period"])
    sold = quantities(market, alphas, row["prices"])
    return judged(row, {**row, "quantities": sold, "profits": profits(market, alphas, row["prices"], sold)})


def optima(row: Row, data: Path | None) -> GoldenVerdict:
    """The closed form against the other derivation of it; then the reference's search against the closed form."""
    del data
    market = market_of(target_of(row))
    best = solve(market)
    half = REFERENCE_PERIODS // 2
    pairs = [
        ("exact_markup", row["exact_markup"], best.markup),
        ("exact_profit_per_period", row["exact_profit_per_period"], best.profit),
        ("exact_last50", row["exact_last50"], half * best.profit),
        *((f"exact_x[{i}]", x, market.costs[i] + best.markup) for i, x in enumerate(row["exact_x"])),
    ]
    pairs += [
        (f"exact_profit_via_upstream_get_profits[{i}]", profit, _earned(market, 0, best_prices(market, 0)))
        for i, profit in enumerate(row["exact_profit_via_upstream_get_profits"])
    ]
    by_period = row["opt_total_profit_per_period"]
    pairs.append(("opt_last50", row["opt_last50"], math.fsum(by_period[half:])))
    for period, prices in row["opt_prices"].items():
        place = f"opt_total_profit_per_period[{period}]"
        pairs.append((place, by_period[int(period)], _earned(market, int(period), prices)))
    if found := _apart(pairs, ROUNDING):
        return differing(found)
    searched = [(f"opt_total_profit_per_period[{i}]", profit, best.profit) for i, profit in enumerate(by_period)]
    priced = [
        (f"opt_prices.{period}[{i}]", price, ours)
        for period, prices in row["opt_prices"].items()
        for i, (price, ours) in enumerate(zip(prices, best_prices(market, int(period)), strict=True))
    ]
    found = _apart(searched, SEARCH_PROFIT) or _apart(priced, SEARCH_PRICE)
    return differing(found) if found else documented(CLOSED_FORM)


def hints(row: Row, data: Path | None) -> GoldenVerdict:
    """The price that each block's openings name, and the factor behind it."""
    del data
    market = market_of(target_of(row))
    blocks = [hint(market, first, REFERENCE_PERIODS) for first in range(0, REFERENCE_PERIODS, BLOCK)]
    golden = {key: value for key, value in row.items() if key == "multiplier" or key.startswith("upper_bound")}
    return judged(golden, {key: market.factor if key == "multiplier" else blocks for key in golden})


def replay(row: Row, data: Path | None) -> GoldenVerdict:
    """A hundred recorded prices: what each period brought, then the score by the reference's rule and by ours."""
    del data
    target = target_of(row)
    trajectory = play(target, row["actions"])
    ids = market_of(target).products
    actions = [facts["action"] for facts in trajectory if "action" in facts]
    per_period = [
        [dict(zip(ids, action[what], strict=True)) for what in ("quantities", "profits")] for action in actions
    ]
    if found := parting(row["per_period"], per_period, "per_period"):
        return differing(found)
    golden, ours = row["notebook"], PRICING.score(target, trajectory)
    if golden["ratio"] != golden["total_profits_last50"] / golden["opt_profits_last50"]:
        return differing("notebook.ratio: golden is not its total over its optimum")
    counted = [profit for action in actions[-target.counted :] for profit in action["profits"]]
    best = target.counted * solve(market_of(target)).profit
    found = (
        _apart([("notebook.total_profits_last50", golden["total_profits_last50"], math.fsum(counted))], ROUNDING)
        or _apart([("notebook.opt_profits_last50", golden["opt_profits_last50"], best)], SEARCH_PROFIT)
        or _apart([("notebook.ratio", golden["ratio"], ours.value)], SEARCH_PROFIT)
        or parting(golden["exploration_rate"], ours.metrics["exploration_rate"], "notebook.exploration_rate")
    )
    if found:
        return differing(found)
    return EQUAL if golden["ratio"] == ours.value else documented(CLOSED_FORM)


def target_of(row: Row) -> PricingInstance:
    """The reference's instance that a row is about. Raises ValueError for an unknown difficulty."""
    return _target(row["difficulty"].lower(), row["seed"])


@lru_cache(maxsize=64)
def _target(difficulty: str, seed: int) -> PricingInstance:
    if difficulty not in DIFFICULTIES:
        raise ValueError(f"there is no difficulty {difficulty!r}")
    line = {"id": f"{difficulty}-{seed}", "generator": "reference", "seed": seed, "periods": REFERENCE_PERIODS}
    return load({**line, "products": DIFFICULTIES[difficulty]})


def play(target: PricingInstance, actions: Sequence[Mapping[str, float]]) -> list[Facts]:
    """The facts of an episode that sets these prices, one mapping a period."""
    state = PRICING.start(target, Kit(pack=read_pack("standard", PRICING.name)))
    found: list[Facts] = []
    for prices in actions:
        arguments = json.dumps({RULES.argument: repr(dict(prices))})
        state, seen = PRICING.step(state, Reply(calls=(ToolCall(id="call", name=ACTION, arguments=arguments),)))
        found.append(seen.facts)
    return found


def _earned(market: PricingMarket, period: int, prices: Sequence[float]) -> float:
    alphas = market.drift.alphas(period)
    return math.fsum(profits(market, alphas, prices, quantities(market, alphas, prices)))


def _apart(pairs: Sequence[tuple[str, Any, float]], bound: float) -> str:
    """The first of (where, golden, ours) that are further apart than a relative bound, in words."""
    for where, golden, ours in pairs:
        if not math.isclose(golden, ours, rel_tol=bound, abs_tol=0.0):
            return f"{where}: golden {golden!r}, ours {ours!r}, more than {bound:g} apart"
    return ""
