"""Both generators: the golden instances bit for bit, and what holds of every market they make."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.envs.procurement.generate import (
    DIFFICULTIES,
    N40K5,
    MadeMarket,
    Shape,
    item_ids,
    native_market,
    reference_market,
)
from evalkit.envs.procurement.market import BULK, KINDS, TWO_PART, is_feasible, plan_cost, product, workers_of
from evalkit.envs.procurement.market import totals as totals_of
from tests.envs.procurement.test_market import golden_market

SHAPES = {**DIFFICULTIES, "n40k5": N40K5}
MORE_DEALS = replace(DIFFICULTIES["basic"], deals=41)
FEW_DEALS = replace(DIFFICULTIES["basic"], deals=13)


def golden_rows(shared: Path) -> list[dict[str, Any]]:
    folder = shared / "goldens/econagentbench"
    names = ("procurement_instances.jsonl", "procurement_instances_n40k5.jsonl")
    return [json.loads(text) for name in names for text in (folder / name).read_text().splitlines()]


def test_golden_instances_are_made_bit_for_bit(shared: Path) -> None:
    rows = golden_rows(shared)
    assert len(rows) >= 32
    for row in rows:
        made = reference_market(SHAPES[row["difficulty"].lower()], row["seed"])
        assert made.market == golden_market(row)
        bought = {deal.id: units for deal, units in zip(made.market.deals, made.start, strict=True) if units}
        assert bought == row["start_alloc"]
        assert plan_cost(made.market, made.start) == round(row["start_cost"] * 100)
        assert workers_of(totals_of(made.market, made.start)) == row["start_utility"]
        low, high = (round(bound * 100) for bound in row["budget_range_upstream"])
        for slack, budget in ((0.0, low), (1.0, high), (row["budget_slack_global_seed_eq_seed"], made.market.budget)):
            assert reference_market(SHAPES[row["difficulty"].lower()], row["seed"], slack).market.budget == budget


@pytest.mark.parametrize("make", [native_market, reference_market])
@pytest.mark.parametrize("shape", [*DIFFICULTIES.values(), N40K5, MORE_DEALS, FEW_DEALS])
def test_every_market_is_what_its_shape_says(make: Any, shape: Shape) -> None:
    for seed in range(6):
        made: MadeMarket = make(shape, seed)
        market = made.market
        assert [len(market.categories), len(market.items), len(market.deals), len(market.effectiveness)] == [
            shape.categories,
            shape.products,
            shape.offered,
            shape.products,
        ]
        assert shape.effectiveness_least <= min(market.effectiveness)
        assert max(market.effectiveness) <= shape.effectiveness_most
        assert {item for deal in market.deals for item, _ in deal.contents} == set(range(shape.products))
        for deal in market.deals:
            assert deal.kind in KINDS
            assert 100 <= deal.price <= 2000
            assert (100 <= deal.fixed <= 2000) if deal.kind == TWO_PART else deal.fixed == 0
            assert (2 <= deal.least <= 9) if deal.kind == BULK else deal.least == 0
            assert all(units >= 1 for _, units in deal.contents)
            assert len(dict(deal.contents)) == len(deal.contents)
        assert is_feasible(market, made.start)
        assert product(market, made.start) > 0
        assert 0 <= market.budget - plan_cost(market, made.start) <= 100


def test_native_markets_follow_from_their_seed_and_differ_between_seeds() -> None:
    shape = DIFFICULTIES["medium"]
    assert native_market(shape, 5) == native_market(shape, 5)
    assert len({str(native_market(shape, seed)) for seed in range(20)}) == 20
    more = replace(shape, p_quantity=0.3)
    kinds = [[deal.kind for deal in native_market(one, 5).market.deals] for one in (shape, more)]
    assert kinds[0] == kinds[1]  # a deal's kind hangs on its place, not on what else was drawn


def test_native_draws_have_the_reference_s_distributions() -> None:
    shape = replace(DIFFICULTIES["hard"], p_items=0.4, p_quantity=0.25)
    deals = [deal for seed in range(60) for deal in native_market(shape, seed).market.deals]
    shares = [sum(deal.kind == kind for deal in deals) / len(deals) for kind in KINDS]
    assert all(abs(share - 1 / 3) < 0.02 for share in shares)
    units = [units for deal in deals for _, units in deal.contents]
    assert abs(sum(units) / len(units) - 4.0) < 0.15
    assert abs(units.count(1) / len(units) - 0.25) < 0.02
    assert abs(sum(len(deal.contents) for deal in deals) / len(deals) - 2.5) < 0.1
    assert abs(sum(deal.price for deal in deals) / len(deals) - 1050) < 25
    assert {deal.least for deal in deals} == {0, 2, 3, 4, 5, 6, 7, 8, 9}


def test_slack_and_budget_can_be_set() -> None:
    shape = DIFFICULTIES["basic"]
    for make in (native_market, reference_market):
        free = make(shape, 3)
        cost = plan_cost(free.market, free.start)
        assert make(shape, 3, 0.25).market.budget == cost + 25
        pinned = make(shape, 3, None, 12345)
        assert pinned.market.budget == 12345
        assert pinned.market.deals == free.market.deals
        assert pinned.start == free.start


def test_item_ids_go_on_behind_z() -> None:
    ids = item_ids(54, 2)
    assert [ids[0], ids[25], ids[26], ids[27], ids[51], ids[52]] == [
        ("A1", "A2"),
        ("Z1", "Z2"),
        ("AA1", "AA2"),
        ("AB1", "AB2"),
        ("AZ1", "AZ2"),
        ("BA1", "BA2"),
    ]
    assert len({item for category in ids for item in category}) == 108
