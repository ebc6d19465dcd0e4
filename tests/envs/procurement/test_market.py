"""What a plan costs and what it is good for: by hand, and against the golden plans."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.envs.procurement.market import (
    BASIC,
    BULK,
    TWO_PART,
    Deal,
    ProcurementMarket,
    is_feasible,
    market_digest,
    plan_cost,
    product,
    short_deals,
    totals,
    workers,
)

SMALL = ProcurementMarket(
    categories=(("A1", "A2"), ("B1", "B2")),
    effectiveness=(1, 3, 2, 5),
    deals=(
        Deal(id="one", kind=BASIC, contents=((0, 2), (3, 1)), price=150),
        Deal(id="two", kind=TWO_PART, contents=((1, 4),), price=100, fixed=700),
        Deal(id="three", kind=BULK, contents=((2, 1), (1, 1)), price=225, least=3),
    ),
    budget=2000,
)


def test_gains_are_units_times_effectiveness_by_category() -> None:
    assert SMALL.gains == ((2, 5), (12, 0), (3, 2))
    assert SMALL.items == ("A1", "A2", "B1", "B2")


@pytest.mark.parametrize(
    ("quantities", "cost", "by_category", "short", "feasible"),
    [
        ((0, 0, 0), 0, (0, 0), [], True),
        ((2, 0, 0), 300, (4, 10), [], True),
        ((0, 1, 0), 800, (12, 0), [], True),
        ((0, 2, 0), 900, (24, 0), [], True),
        ((0, 0, 2), 0, (6, 4), [2], False),
        ((0, 0, 3), 675, (9, 6), [], True),
        ((3, 3, 2), 1450, (48, 19), [2], False),
        ((0, 13, 0), 2000, (156, 0), [], True),
        ((0, 14, 0), 2100, (168, 0), [], False),
    ],
)
def test_costs_totals_and_feasibility(
    quantities: tuple[int, ...], cost: int, by_category: tuple[int, ...], short: list[int], feasible: bool
) -> None:
    assert plan_cost(SMALL, quantities) == cost
    assert totals(SMALL, quantities) == by_category
    assert product(SMALL, quantities) == math.prod(by_category)
    assert workers(SMALL, quantities) == pytest.approx(math.prod(by_category) ** 0.5)
    assert short_deals(SMALL, quantities) == short
    assert is_feasible(SMALL, quantities) is feasible


@given(st.tuples(*[st.integers(0, 10**9)] * 3), st.tuples(*[st.integers(0, 10**9)] * 3))
def test_products_order_plans_as_workers_do(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    if product(SMALL, one) < product(SMALL, other):
        assert workers(SMALL, one) <= workers(SMALL, other) * (1 + 1e-12)
    assert totals(SMALL, one) == tuple(sum(q * g[c] for q, g in zip(one, SMALL.gains, strict=True)) for c in range(2))


def test_the_digest_is_of_all_that_a_market_holds() -> None:
    deal = replace(SMALL.deals[0], price=151)
    others = [
        replace(SMALL, budget=2001),
        replace(SMALL, effectiveness=(1, 3, 2, 4)),
        replace(SMALL, categories=(("A1", "A2", "B1"), ("B2",))),
        replace(SMALL, deals=(deal, *SMALL.deals[1:])),
        replace(SMALL, deals=SMALL.deals[::-1]),
    ]
    assert len({market_digest(market) for market in (SMALL, *others)}) == 6
    assert market_digest(replace(SMALL)) == market_digest(SMALL)


def golden_market(row: dict[str, Any]) -> ProcurementMarket:
    """The market of a golden instance, as the row writes it."""
    items = [item for group in row["item_groups"] for item in group]
    deals = tuple(
        Deal(
            id=name,
            kind=deal["type"],
            contents=tuple((items.index(item), units) for item, units in deal["contents"].items()),
            price=round(deal.get("cost", deal.get("variable_cost")) * 100),
            fixed=round(deal.get("fixed_cost", 0) * 100),
            least=deal.get("min_quantity", 0),
        )
        for name, deal in row["menu"].items()
    )
    return ProcurementMarket(
        categories=tuple(map(tuple, row["item_groups"])),
        effectiveness=tuple(row["effectiveness"][item] for item in items),
        deals=deals,
        budget=round(row["budget"] * 100),
    )


def test_golden_plans_cost_and_support_the_same_bit_for_bit(shared: Path) -> None:
    folder, markets = shared / "goldens/econagentbench", {}
    for name in ("procurement_instances.jsonl", "procurement_instances_n40k5.jsonl"):
        for text in (folder / name).read_text().splitlines():
            row = json.loads(text)
            markets[row["difficulty"], row["seed"]] = golden_market(row)
    compared = 0
    for text in (folder / "procurement_plans.jsonl").read_text().splitlines():
        row = json.loads(text)
        if any(type(quantity) is not int or quantity < 0 for quantity in row["plan"].values()):
            continue  # no plans here; the reference accepts them
        market = markets[row["difficulty"], row["seed"]]
        plan = [row["plan"].get(deal.id, 0) for deal in market.deals]
        assert workers(market, plan) == row["workers"]
        assert is_feasible(market, plan) == row["feasible"]
        assert plan_cost(market, plan) == round(row["cost"] * 100)
        compared += 1
    assert compared > 500
