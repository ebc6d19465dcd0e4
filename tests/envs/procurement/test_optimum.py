"""The optimum against complete enumeration, another solver, and golden figures; and what it says of itself."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from evalkit.envs.procurement import best, relax
from evalkit.envs.procurement.best import MOST_BUDGET, _Search, solve
from evalkit.envs.procurement.branch import TOLERANCE
from evalkit.envs.procurement.generate import DIFFICULTIES, Shape, reference_market
from evalkit.envs.procurement.market import MIN, ProcurementMarket, is_feasible, plan_cost, product, totals
from evalkit.envs.procurement.relax import direction
from tests.envs.procurement.cutting import best_by_cuts
from tests.envs.procurement.small_markets import a_market, best_product, drawn_market, plans
from tests.support.compiled_loops import printed
from tests.support.examples import examples

HARD = DIFFICULTIES["hard"]
BIG = structs.replace(HARD, categories=20, products=400, deals=400)


def market_of(shape: Shape, seed: int) -> ProcurementMarket:
    return reference_market(shape, seed).market


@pytest.mark.exhaustive
def test_two_thousand_small_markets_have_the_optimum_that_counting_out_finds() -> None:
    uncovered = 0
    for seed in range(2000):
        market = drawn_market(seed)
        found = solve(market, compiled=False)
        assert found.proven
        assert (seed, found.product) == (seed, best_product(market))
        assert found.product == product(market, found.quantities)
        assert is_feasible(market, found.quantities)
        assert found.cost == plan_cost(market, found.quantities)
        uncovered += found.product == 0
    assert 200 < uncovered < 1000


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    ("level", "seed"), [("basic", 3), ("basic", 11), ("basic", 20), ("medium", 7), ("medium", 21), ("hard", 6)]
)
def test_a_solver_with_cuts_finds_no_better_plan(level: str, seed: int) -> None:
    market = market_of(DIFFICULTIES[level], seed)
    theirs, bound = best_by_cuts(market)
    found = solve(market, compiled=False)
    assert found.product >= product(market, theirs)
    assert math.log(found.product) <= bound + 1e-7
    assert math.log(found.product) == pytest.approx(math.log(product(market, theirs)), abs=1e-7)


def test_golden_optima_are_met_exactly(shared: Path) -> None:
    seen = 0
    for level in ("basic", "medium", "hard"):
        path = shared / "goldens" / "econagentbench" / f"procurement_opt_exact_{level}.jsonl"
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            made = reference_market(DIFFICULTIES[level], row["seed"], budget=row["budget_cents"])
            found = solve(made.market, compiled=False)
            assert (row["seed"], str(found.product)) == (row["seed"], row["product_of_totals"])
            seen += 1
    assert seen >= 24


def test_the_appendix_instance_has_its_optimum() -> None:
    # Budget of the paper's appendix: 109.98. Its optimum, 82.3062 workers, is 40 + 4 of one deal and 6 of another.
    market = reference_market(DIFFICULTIES["basic"], 0, budget=10998).market
    found = solve(market, compiled=False)
    assert (found.product, found.cost) == (557568, 10989)
    assert {market.deals[j].id: units for j, units in enumerate(found.quantities) if units} == {
        "Offer_4": 44,
        "Offer_8": 6,
    }


@pytest.mark.parametrize("spare", [0, 1])
def test_a_plan_may_cost_exactly_the_budget(spare: int) -> None:
    # Seed 11: the best plan costs 52.44, the budget; in floats its parts add up to more.
    market = market_of(DIFFICULTIES["basic"], 11)
    assert market.budget == 5244
    found = solve(replace(market, budget=5244 + spare), compiled=False)
    assert found.cost == 5244


def test_a_deal_that_is_not_bought_costs_nothing() -> None:
    # Beside the first deal, the others' fixed costs would leave too little money, bought or not.
    market = a_market([(2, 1), (9, 0), (0, 9)], 20, price=[2, 1, 1], fixed=[0, 18, 19])
    assert solve(market, compiled=False).quantities == (10, 0, 0)


def test_a_least_quantity_beyond_the_budget_crosses_nothing() -> None:
    market = a_market([(5, 5), (1, 0), (0, 1)], 8, price=[3, 1, 1], least=[3, 0, 8])
    found = solve(market, compiled=False)
    assert (found.product, found.proven) == (0, True)
    market = a_market([(5, 5), (1, 0), (0, 1)], 9, price=[3, 1, 1], least=[3, 0, 9])
    assert solve(market, compiled=False).quantities == (3, 0, 0)


@pytest.mark.parametrize(
    "market",
    [
        a_market([(1, 0), (2, 0)], 10),
        a_market([(0, 0)], 10),
        a_market([(1, 1)], 0),
        a_market([(1, 1)], 10, price=[11]),
        a_market([(1, 1)], 10, price=[4], fixed=[7]),
        a_market([(3, 0), (0, 3)], 10, price=[6, 6]),
        a_market([(3, 0), (0, 3)], 10, price=[3, 3], fixed=[3, 3]),
        ProcurementMarket(categories=(("A1",),), effectiveness=(1,), deals=(), budget=5),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_where_no_plan_covers_all_categories_the_empty_one_is_the_best(market: ProcurementMarket, given: bool) -> None:
    empty = (0,) * len(market.deals)
    found = solve(market, empty if given else None, compiled=False)
    assert (found.quantities, found.product, found.cost) == (empty, 0, 0)
    assert (found.proven, found.gap) == (True, 0.0)


@pytest.mark.exhaustive
def test_parallel_and_equal_deals_do_not_make_newton_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    real = direction

    def counted(*args):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        return real(*args)

    monkeypatch.setattr(relax, "direction", counted)
    rows: list[tuple[int, ...]] = [
        (a * scale, b * scale, 3 * scale) for scale in (1, 2, 4) for a, b in ((1, 2), (2, 1), (1, 1)) for _ in "ab"
    ]
    prices = [5 * scale for scale in (1, 2, 4) for _ in range(6)]
    found = solve(a_market(rows, 997, price=prices), compiled=False)
    assert found.proven
    assert steps < 20 * found.nodes
    steps = 0
    found = solve(market_of(BIG, 117), compiled=False)
    assert found.proven
    assert steps < 20 * found.nodes


def test_a_deal_is_left_out_only_where_another_one_is_as_free_to_buy() -> None:
    rows: list[tuple[int, ...]] = [(2, 1), (1, 1), (4, 2), (2, 1), (2, 1), (2, 1)]
    market = a_market(rows, 90, price=[3, 3, 6, 3, 3, 2], fixed=[0, 0, 0, 0, 2, 0], least=[0, 0, 0, 2, 0, 3])
    search = _Search(market, compiled=False)
    replaced = {(i, j) for i in range(6) for j in range(6) if i != j and search._replaces(i, j)}
    # Two units of the bulk discount at 3, and three of that at 2, give what one of the deal at 6 does.
    assert replaced == {(0, 1), (0, 2), (0, 3), (0, 4), (3, 2), (5, 2)}
    assert search._core([0] * 6, [9] * 6) == [0, 5]
    assert search._core([0, 1, 0, 0, 0, 0], [9] * 6) == [0, 1, 5]
    twins = _Search(a_market([(1, 1), (1, 1)], 9), compiled=False)
    assert (twins._replaces(0, 1), twins._replaces(1, 0)) == (True, False)


def test_a_start_is_kept_where_the_search_ends_early_and_a_useless_one_does_no_harm() -> None:
    made = reference_market(HARD, 7)
    market, best = made.market, solve(made.market, made.start, compiled=False)
    early = solve(market, best.quantities, compiled=False, nodes=1)
    assert early.quantities == best.quantities
    assert solve(market, made.start, compiled=False, nodes=1).product >= product(market, made.start)
    dear = tuple(10 * units for units in made.start)
    assert not is_feasible(market, dear)
    assert solve(market, dear, compiled=False) == solve(market, compiled=False)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("nodes", [1, 2, 7, 100])
def test_a_search_that_gives_up_says_so_and_its_gap_holds(nodes: int) -> None:
    market = market_of(HARD, 7)
    best, found = solve(market, compiled=False), solve(market, compiled=False, nodes=nodes)
    assert best.proven
    assert best.gap == TOLERANCE
    assert not found.proven
    assert found.nodes == nodes
    missing = math.log(best.product) - math.log(found.product)
    assert TOLERANCE < found.gap < 0.2
    assert missing <= found.gap


def test_a_search_that_gives_up_before_it_has_a_plan_promises_nothing() -> None:
    market = a_market([(1, 0, 0), (0, 1, 0), (0, 0, 1)], 100, price=[40, 35, 30])
    found = solve(market, compiled=False, nodes=1)
    assert (found.product, found.proven, found.gap) == (0, False, math.inf)
    assert solve(market, compiled=False).proven


def test_what_makes_no_sense_is_refused() -> None:
    market = a_market([(1, 1), (1, 2)], 10)
    with pytest.raises(ValueError, match="1 quantities, the menu 2 deals"):
        solve(market, [1])
    with pytest.raises(ValueError, match="below 0"):
        solve(market, [1, -1])
    with pytest.raises(ValueError, match="D1: a unit must cost"):
        solve(a_market([(1, 1), (1, 2)], 10, price=[1, 0]))
    with pytest.raises(ValueError, match="fixed cost must not be negative"):
        solve(a_market([(1, 1), (1, 2)], 10, fixed=[0, -1]))
    with pytest.raises(ValueError, match="budget must not exceed"):
        solve(replace(market, budget=MOST_BUDGET + 1))


def test_as_much_money_as_is_allowed_is_spent() -> None:
    market = a_market([(1, 0), (0, 1)], MOST_BUDGET, price=[1, 3])
    found = solve(market, compiled=False)
    assert found.proven
    assert found.cost == MOST_BUDGET
    assert found.quantities[0] == pytest.approx(MOST_BUDGET / 2, rel=1e-5)


def test_compiled_loops_find_the_same_plans_in_as_many_steps() -> None:
    markets = [drawn_market(seed) for seed in range(3000, 3100)]
    markets += [market_of(shape, seed) for shape in DIFFICULTIES.values() for seed in range(20, 24)]
    for market in [*markets, market_of(BIG, 114)]:
        assert solve(market, compiled=True) == solve(market, compiled=False)
    market = markets[-1]
    assert solve(market, compiled=True, nodes=7) == solve(market, compiled=False, nodes=7)


@pytest.mark.exhaustive
def test_a_small_market_does_not_load_numba() -> None:
    script = (
        "import sys\n"
        "from evalkit.envs.procurement.generate import DIFFICULTIES, reference_market\n"
        "from evalkit.envs.procurement.best import solve\n"
        "print(solve(reference_market(DIFFICULTIES['hard'], 0).market).proven, 'numba' in sys.modules)\n"
    )
    assert printed(script) == ["True", "False"]


def test_a_big_market_is_solved_by_compiled_kernels_once_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(best.KERNELS, "ready", lambda *, at_once: asked.append(at_once))
    hard = DIFFICULTIES["hard"]
    big = structs.replace(hard, categories=26, products=390, deals=390)
    assert [solve(reference_market(shape, 0).market).proven for shape in (hard, big)] == [True, True]
    assert asked == [True]


def test_the_greatest_least_total_is_what_counting_out_finds() -> None:
    for seed in range(examples(1500)):
        market = replace(drawn_market(seed), aggregate=MIN)
        wanted = max((min(sums) for _, sums in plans(market)), default=0)
        found = solve(market)
        assert (found.product, found.proven) == (wanted, True), seed
        assert is_feasible(market, found.quantities)
        assert product(market, found.quantities) == found.product


@pytest.mark.parametrize("seed", range(3))
def test_the_papers_markets_have_a_proven_least_total(seed: int) -> None:
    market = replace(reference_market(DIFFICULTIES["medium"], seed).market, aggregate=MIN)
    found = solve(market)
    assert found.proven
    # No plan is better in all its totals, so the best by product is worse in its least.
    other = solve(replace(market, aggregate="product"))
    assert found.product >= min(totals(market, other.quantities))
    assert found.cost <= market.budget
