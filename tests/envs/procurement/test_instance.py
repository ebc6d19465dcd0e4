import copy
import itertools
from typing import Any

import orjson
import pytest

from evalkit.envs.lines import DERIVED, canonical
from evalkit.envs.procurement import best, instance
from evalkit.envs.procurement.generate import DIFFICULTIES, MadeMarket, Shape
from evalkit.envs.procurement.procurement import PROCUREMENT
from evalkit.envs.procurement.score import score
from evalkit.errors import UsageError
from tests.envs.procurement.purchasing import ITEMS, KIT, MENU, NATIVE, SMALL, Play, reference

LINES: list[dict[str, Any]] = [
    SMALL,
    NATIVE,
    reference("basic", 3),
    reference("medium", 5, slack=0.25),
    reference("hard", 1, budget=2400.0),
    {**NATIVE, "periods": 7, "queries": 3, "no_action": "restart", "deals": 19, "slack": 0.0},
    {**NATIVE, "categories": 27, "products": 27, "p_items": 0.5},
]
IDS = ["explicit", "native", "basic", "slack", "budget", "played otherwise", "beyond Z"]


@pytest.mark.parametrize("line", LINES, ids=IDS)
def test_a_described_instance_is_the_same_when_loaded_again(line: dict[str, Any]) -> None:
    full = orjson.loads(orjson.dumps(PROCUREMENT.describe(PROCUREMENT.load(line))))
    again = PROCUREMENT.load(full)
    assert PROCUREMENT.describe(again) == full
    assert {key: full[key] for key in line if key not in ("menu", "budget")} == {
        key: value for key, value in line.items() if key not in ("menu", "budget")
    }
    assert Play(full).state.world.market == Play(line).state.world.market
    optimum = full["optimum"]
    assert optimum["proven"]
    action = Play(full).buy(optimum["plan"])
    assert action["feasible"]
    assert (action["product"], action["cost"], action["plan"]) == (
        optimum["product"],
        optimum["cost"],
        optimum["plan"],
    )


def test_an_explicit_line_keeps_its_market_when_keys_are_sorted() -> None:
    full = PROCUREMENT.describe(PROCUREMENT.load(SMALL))
    defining = {key: value for key, value in full.items() if key not in DERIVED}
    sorted_again = PROCUREMENT.describe(PROCUREMENT.load({"id": "small", **orjson.loads(canonical(defining))}))
    assert sorted_again == full
    assert full["menu"][1] == {
        "id": "two",
        "kind": "two_part_tariff",
        "price": 1.5,
        "fixed": 7.0,
        "contents": [["A2", 4]],
    }
    assert (full["optimum"]["product"], full["optimum"]["plan"]) == ("2626", {"one": 1, "three": 8})


@pytest.mark.parametrize("more", [{}, {"aggregate": "min"}])
def test_the_optimum_of_a_small_menu_is_the_best_of_all_plans(more: dict[str, Any]) -> None:
    described = PROCUREMENT.describe(PROCUREMENT.load({**SMALL, **more}))
    assert more.items() <= described.items()
    optimum = described["optimum"]
    play = Play({**SMALL, **more, "periods": 10**4})
    plans = itertools.product(range(11), range(9), range(9))
    actions = [play.buy(dict(zip(("one", "two", "three"), plan, strict=True))) for plan in plans]
    assert max(int(action["product"]) for action in actions if action["feasible"]) == int(optimum["product"])


def test_workers_are_the_least_total_where_that_is_what_counts() -> None:
    target = PROCUREMENT.load(PROCUREMENT.describe(PROCUREMENT.load({**SMALL, "aggregate": "min"})))
    optimum = instance.optimum_of(target)
    play = Play({**SMALL, "aggregate": "min"})
    action = play.buy(optimum.plan)
    assert action["product"] == str(min(action["totals"]))
    assert f"{min(action['totals'])}.00" in play.state.history
    half = play.buy({name: units // 2 for name, units in optimum.plan.items()})
    best = score(target, [{"period": 0, "action": action}])
    assert (best.value, best.solved) == (1.0, True)
    worse = score(target, [{"period": 0, "action": half}])
    assert worse.value == (min(half["totals"]) / optimum.product if half["feasible"] else 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"categories": 0}, "categories: 0 is out of range (1 to 100)"),
        ({"categories": 5}, "products: 12 items cannot be shared out evenly among 5 categories"),
        ({"products": 2001}, "products: 2001 is out of range"),
        ({"products": "12"}, "products: expected a whole number, got '12'"),
        ({"deals": 11}, "deals: 11 deals are too few for 12 items"),
        ({"p_items": 0.0}, "p_items: 0.0 is out of range (0.02 to 1.0)"),
        ({"p_quantity": float("nan")}, "p_quantity: nan is out of range"),
        ({"p_budget": 1.5}, "p_budget: 1.5 is out of range"),
        ({"effectiveness_least": 4}, "effectiveness_least: is greater than effectiveness_most"),
        ({"price_low": 30}, "price_low: is greater than price_high"),
        ({"bulk_most": 1}, "bulk_least: is greater than bulk_most"),
        ({"price_high": 1001}, "price_high: 1001 is out of range"),
        ({"weight_basic": 0, "weight_two_part": 0, "weight_bulk": 0}, "weight_basic: some kind of deal needs a weight"),
        ({"aggregate": "sum"}, "aggregate: there is no 'sum'"),
        ({"effectiveness_most": 101}, "effectiveness_most: 101 is out of range"),
        ({"slack": 1.01}, "slack: 1.01 is out of range (0.0 to 1.0)"),
        ({"slack": 0.5, "budget": 100}, "slack: says nothing where budget is given"),
        ({"budget": "1,000"}, "budget: expected an amount with at most two decimals, got '1,000'"),
        ({"budget": 100.123}, "budget: expected an amount with at most two decimals, got 100.123"),
        ({"budget": True}, "budget: expected an amount with at most two decimals, got True"),
        ({"budget": -5}, "budget: expected an amount"),
        ({"budget": float("inf")}, "budget: expected an amount"),
        ({"budget": 0}, "budget: 0.0 is out of range (0.01 to 10000000.00)"),
        ({"periods": 0}, "periods: 0 is out of range"),
        ({"queries": -1}, "queries: -1 is out of range"),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"generator": "referense"}, "generator: there is no 'referense'. Did you mean 'reference'?"),
        ({"generator": "reference", "seed": 2**32}, "seed: 4294967296 is out of range for the reference's generator"),
        (
            {"generator": "reference", "categories": 27, "products": 27},
            "categories: 27 is out of range for the reference",
        ),
        ({"no_action": "skip"}, "no_action: there is no 'skip'"),
        ({"catgories": 3}, "catgories: a procurement instance has no such field. Did you mean 'categories'?"),
        ({"environment": "pricing"}, "environment: expected 'procurement', got 'pricing'"),
        ({"id": 7}, "id: expected a string, got 7"),
        ({"digest": 7}, "digest: expected a string, got 7"),
        ({"generator": "explicit"}, "items: is missing"),
        ({"menu": MENU}, "menu: needs generator 'explicit', not 'native'"),
        ({"optimum": 2.5}, "optimum: expected an object, got 2.5"),
        ({"optimum": {"product": "1"}}, "optimum.workers: is missing"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        PROCUREMENT.load({**NATIVE, **change})
    assert words in str(flaw.value)


def menu_with(place: int, **change: Any) -> list[dict[str, Any]]:
    made = copy.deepcopy(MENU)
    made[place] |= change
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": None}, "budget: is missing"),
        ({"p_items": 0.5}, "p_items: is for markets that are generated"),
        ({"categories": 2}, "categories: is for markets that are generated"),
        ({"slack": 0.5}, "slack: is for markets that are generated"),
        ({"items": {}}, "items: expected a list of 1 to 100 categories"),
        ({"items": [*ITEMS, []]}, "items[2]: expected a list of [item, number], one at least, got []"),
        ({"items": [["A1", 1]]}, "items[0][0]: expected [item, number], got 'A1'"),
        ({"items": [[["A1", 0]]]}, "items[0][0][1]: 0 is out of range (1 to 1000000)"),
        ({"items": [[["A1", True]]]}, "items[0][0][1]: expected a whole number, got True"),
        (
            {"items": [[["{x}", 1]]]},
            "items[0][0][0]: expected a letter and then up to 39 letters, digits, _ . or -, got '{x}'",
        ),
        ({"items": [*ITEMS, [["A1", 1]]]}, "items: an item is listed twice"),
        ({"items": [*ITEMS, [["C1", 1]]]}, "menu: no deal holds an item of category 2: C1"),
        ({"items": [[[f"A{i}", 1] for i in range(2001)]]}, "items: there may be 2000 in all"),
        ({"menu": {}}, "menu: expected a list of 1 to 2000 deals"),
        ({"menu": []}, "menu: expected a list"),
        ({"menu": [7]}, "menu[0]: expected an object"),
        ({"menu": [*MENU, MENU[0]]}, "menu: two deals share an id"),
        ({"menu": menu_with(0, kind="simple")}, "menu[0].kind: there is no 'simple'"),
        ({"menu": menu_with(0, fixed=1)}, "menu[0].fixed: says nothing in a deal of kind 'basic'"),
        ({"menu": menu_with(1, id="a:b")}, "menu[1].id: expected a letter"),
        ({"menu": menu_with(1, price=0)}, "menu[1].price: 0.0 is out of range (0.01 to 10000.00)"),
        ({"menu": menu_with(1, fixed="x")}, "menu[1].fixed: expected an amount"),
        ({"menu": menu_with(2, least=0)}, "menu[2].least: 0 is out of range (1 to 1000000000)"),
        ({"menu": menu_with(2, contents=[])}, "menu[2].contents: expected a list"),
        ({"menu": menu_with(2, contents=[["B9", 1]])}, "menu[2].contents: there is no item 'B9'"),
        ({"menu": menu_with(2, contents=[["B1", 1], ["B1", 2]])}, "menu[2].contents: an item is listed twice"),
        ({"menu": menu_with(2, contents=[["B1", 10**6]])}, "three: a unit adds 2000000 to a category's total"),
    ],
)
def test_a_wrong_explicit_market_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        PROCUREMENT.load({**SMALL, **change})
    assert words in str(flaw.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("product", 5, "optimum.product: expected a positive whole number, as a string of 4000 digits at most, got 5"),
        ("product", "-5", "optimum.product"),
        (
            "product",
            "0",
            "optimum.product: expected a positive whole number, as a string of 4000 digits at most, got '0'",
        ),
        ("product", "1" * 4001, "optimum.product"),
        ("workers", "3", "optimum.workers: expected a number, got '3'"),
        ("workers", float("nan"), "optimum.workers: nan is out of range"),
        ("cost", 1.5, "optimum.cost: expected a whole number, got 1.5"),
        ("plan", {"one": 0}, "optimum.plan.one: 0 is out of range"),
        ("plan", {"one": 1.0}, "optimum.plan.one: expected a whole number"),
        ("plan", [["one", 1]], "optimum.plan"),
        ("gap", -1, "optimum.gap: -1 is out of range"),
        ("proven", 1, "optimum.proven: expected true or false, got 1"),
    ],
)
def test_a_wrong_stored_optimum_is_named(field: str, value: object, words: str) -> None:
    full = PROCUREMENT.describe(PROCUREMENT.load(SMALL))
    with pytest.raises(UsageError) as flaw:
        PROCUREMENT.load({**full, "optimum": {**full["optimum"], field: value}})
    assert words in str(flaw.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"product": "7"}, "small: optimum: its plan has product"),
        ({"cost": 1}, "small: optimum: its plan has cost"),
        ({"workers": 2.0}, "small: optimum: its plan supports"),
        ({"plan": {"one": 11}}, "small: optimum: its plan is not feasible"),
        ({"plan": {"three": 1}}, "small: optimum: its plan is not feasible"),
        ({"plan": {"five": 1}}, "small: optimum: its plan buys five"),
    ],
)
def test_an_optimum_that_is_not_one_of_the_market_is_refused_when_an_episode_starts(
    change: dict[str, Any], words: str
) -> None:
    full = PROCUREMENT.describe(PROCUREMENT.load(SMALL))
    loaded = PROCUREMENT.load({**full, "optimum": {**full["optimum"], **change}})
    with pytest.raises(UsageError, match=words):
        PROCUREMENT.start(loaded, KIT)


def test_a_line_whose_market_has_changed_is_refused_when_an_episode_starts() -> None:
    full = PROCUREMENT.describe(PROCUREMENT.load(NATIVE))
    with pytest.raises(UsageError, match="native: digest: the market made from this line"):
        PROCUREMENT.start(PROCUREMENT.load({**full, "seed": 5}), KIT)


def test_a_budget_that_supports_nobody_is_refused_when_described() -> None:
    with pytest.raises(UsageError, match="native: budget: no plan within it supports a worker"):
        PROCUREMENT.describe(PROCUREMENT.load({**NATIVE, "budget": 0.5}))


def test_a_run_neither_solves_nor_scores_without_a_stored_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    full = PROCUREMENT.describe(PROCUREMENT.load(NATIVE))

    def refuse(*_: object) -> None:
        raise AssertionError("an optimum was solved for")

    monkeypatch.setattr(instance, "made_best", refuse)
    monkeypatch.setattr(best, "made_best", refuse)
    instance._solved.cache_clear()
    play = Play(full)
    play.buy({"Offer_1": 1})
    assert PROCUREMENT.score(play.instance, play.facts).value >= 0
    assert PROCUREMENT.describe(play.instance) == full
    bare = Play(NATIVE)
    with pytest.raises(UsageError, match="native: optimum: is missing"):
        PROCUREMENT.score(bare.instance, bare.facts)


def test_loading_makes_no_market(monkeypatch: pytest.MonkeyPatch) -> None:
    full = PROCUREMENT.describe(PROCUREMENT.load({**NATIVE, "seed": 77}))

    def refuse(*_: object) -> None:
        raise AssertionError("a market was made")

    monkeypatch.setattr(instance, "native_market", refuse)
    loaded = PROCUREMENT.load({**full, "seed": 78})
    assert PROCUREMENT.describe(loaded)["optimum"] == full["optimum"]
    with pytest.raises(AssertionError, match="was made"):
        PROCUREMENT.start(loaded, KIT)


def test_episodes_on_one_instance_share_its_market() -> None:
    assert Play(NATIVE).state.world.market is Play({**NATIVE, "periods": 3, "id": "other"}).state.world.market


def test_budgets_read_as_number_or_text_are_the_same() -> None:
    budgets = [109.98, "109.98", "109.980"]
    assert {Play({**NATIVE, "budget": budget}).state.world.market.budget for budget in budgets} == {10998}
    assert Play({**NATIVE, "budget": 110}).state.world.market.budget == 11000
    assert Play({**NATIVE, "budget": "110.5"}).state.world.market.budget == 11050


def test_strata_are_sizes() -> None:
    lines = [NATIVE, {**NATIVE, "categories": 5, "products": 40}, reference("hard", 0), SMALL]
    assert [PROCUREMENT.stratum(PROCUREMENT.load(line)) for line in lines] == ["n12k3", "n40k5", "n100k10", "explicit"]


def test_generated_lines_are_lazy_fresh_and_repeat() -> None:
    lines = list(itertools.islice(PROCUREMENT.generate({"p_items": 0.7}, 10**9, 5), 6))
    assert len({line["id"] for line in lines}) == len({line["seed"] for line in lines}) == 6
    assert lines == list(PROCUREMENT.generate({"p_items": 0.7}, 6, 5))
    assert not {line["seed"] for line in lines} & {line["seed"] for line in PROCUREMENT.generate({}, 6, 6)}
    for line in lines:
        assert PROCUREMENT.describe(PROCUREMENT.load(line)) == line
        assert (line["generator"], line["p_items"], line["optimum"]["proven"]) == ("native", 0.7, True)


def test_the_reference_s_instances_can_be_generated_by_seed() -> None:
    lines = list(PROCUREMENT.generate({"generator": "reference"}, 3, 0))
    assert [(line["id"], line["seed"]) for line in lines] == [(f"seed-{seed}", seed) for seed in range(3)]
    assert lines[0]["optimum"]["product"] == "537600"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"n": 3}, "n: procurement has no such parameter"), ({"generator": "explicit"}, "written, not generated")],
)
def test_parameters_that_generate_nothing_are_refused_at_once(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PROCUREMENT.generate(parameters, 1, 0)


def test_every_parameter_has_a_default_that_it_accepts_and_they_are_basic_s() -> None:
    line = {name: parameter.default for name, parameter in PROCUREMENT.parameters.items()}
    loaded = PROCUREMENT.load({"id": "d", "environment": "procurement", **line})
    shape = Shape(**{name: getattr(loaded, name) for name in Shape.__struct_fields__})
    assert shape == DIFFICULTIES["basic"]
    assert (loaded.periods, loaded.queries) == (100, 40)


def test_no_market_of_a_large_suite_is_solved_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []

    def counted(made: MadeMarket) -> best.Best:
        solved.append(made)
        return best.Best(digits="1", workers=1.0, cost=1, plan={}, gap=0.0, proven=True)

    instance._solved.cache_clear()
    monkeypatch.setattr(instance, "made_best", counted)
    line = {"generator": "native", "categories": 1, "products": 1}
    loaded = [instance.load({**line, "id": str(seed), "seed": seed}) for seed in range(2 * instance._MARKETS_KEPT)]
    for _ in range(2):
        for one in loaded:
            instance.describe(one)
    instance._solved.cache_clear()  # what was counted is no optimum
    assert len(solved) == len(loaded)
