import itertools
from typing import Any

import orjson
import pytest

from evalkit.envs.pricing import instance as instances
from evalkit.envs.pricing.demand import FAMILIES
from evalkit.envs.pricing.optimum import solve
from evalkit.envs.pricing.pricing import PRICING
from evalkit.errors import UsageError
from tests.envs.pricing.playing import KIT, SMALL, Play, priced, reference

EXPLICIT = {
    "id": "e",
    "environment": "pricing",
    "generator": "explicit",
    "products": 2,
    "periods": 3,
    "costs": [1, 1.5],
    "qualities": [2.0, 2.5],
    "group_of": [1, 1],
    "alphas": [[2.0, 3.0], [2.5, 3.0], [4, 5]],
}
LINES = [
    SMALL,
    EXPLICIT,
    reference("medium", 4),
    reference("medium", 4, family="periodic_shifts", periods=7, sigma=0.25, mu=2, strength=0.5, hint=False),
    {**SMALL, "family": "linear_shifts", "periods": 7, "scored": 3, "queries": 3, "no_action": "restart", "groups": 3},
    {**SMALL, "cost_low": 0.5, "cost_high": 4, "quality_low": 2.5, "quality_high": 2.5, "sigma": 0},
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_described_instance_is_the_same_when_loaded_again(line: dict[str, Any]) -> None:
    full = orjson.loads(orjson.dumps(PRICING.describe(PRICING.load(line))))
    again = PRICING.load(full)
    assert PRICING.describe(again) == full
    assert {key: full[key] for key in line} == line
    market = instances.market_of(again)
    assert full["digest"] == market.digest
    assert full["optimum"] == {"profit": solve(market).profit, "markup": solve(market).markup}
    assert Play(full).state.world.market == Play(line).state.world.market


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"products": 0}, "products: 0 is out of range (1 to 2000)"),
        ({"products": 2001}, "products: 2001 is out of range"),
        ({"products": "4"}, "products: expected a whole number, got '4'"),
        ({"products": True}, "products: expected a whole number, got True"),
        ({"groups": 4}, "groups: 4 groups need as many products, not 3"),
        ({"sigma": 0.95}, "sigma: 0.95 is out of range (0.0 to 0.9)"),
        ({"sigma": float("nan")}, "sigma: nan is out of range"),
        ({"mu": 0}, "mu: 0 is out of range (0.01 to 100.0)"),
        ({"strength": 2}, "strength: 2 is out of range (0.0 to 1.9)"),
        ({"cost_low": 3}, "cost_low: 3.0 is above cost_high, 2.0"),
        ({"cycle_least": 20}, "cycle_least: 20 is above cycle_most, 19"),
        ({"alpha_low": 11}, "alpha_low: 11.0 is above alpha_high, 10.0"),
        ({"customers": 0}, "customers: 0 is out of range (1.0 to 1000000.0)"),
        ({"outside": 0}, "outside: 0 is out of range"),
        ({"group_odds": 1}, "group_odds: 1 is out of range (0.01 to 0.9)"),
        ({"generator": "reference", "groups": None, "group_odds": 0.6}, "group_odds: 0.6 is out of range for the ref"),
        ({"quality_high": 1}, "quality_low: 2.0 is above quality_high, 1.0"),
        ({"periods": 0}, "periods: 0 is out of range"),
        ({"scored": 101}, "scored: 101 is more than there are periods, 100"),
        ({"scored": 0}, "scored: 0 is out of range"),
        ({"queries": -1}, "queries: -1 is out of range"),
        ({"hint": 1}, "hint: expected true or false, got 1"),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"generator": "referense"}, "generator: there is no 'referense'. Did you mean 'reference'?"),
        ({"generator": "reference"}, "groups: in the reference's markets"),
        ({"generator": "reference", "seed": 2**32}, "seed: 4294967296 is out of range for the reference's generator"),
        ({"generator": "reference", "products": 41}, "products: 41 is out of range for the reference's generator"),
        ({"generator": "reference", "periods": 101}, "periods: 101 is out of range for the reference's generator"),
        ({"family": "linear"}, "family: there is no 'linear'. Did you mean 'linear_shifts'?"),
        ({"no_action": "skip"}, "no_action: there is no 'skip'"),
        ({"product": 3}, "product: a pricing instance has no such field. Did you mean 'products'?"),
        ({"environment": "scheduling"}, "environment: expected 'pricing', got 'scheduling'"),
        ({"id": 7}, "id: expected a string, got 7"),
        ({"digest": 7}, "digest: expected a string, got 7"),
        ({"optimum": 41.66}, "optimum: expected an object, got 41.66"),
        ({"optimum": {"profit": 41.66}}, "optimum.markup: is missing"),
        ({"optimum": {"profit": 41, "markup": 1, "cost": 2}}, "optimum.cost: there is no such field"),
        ({"optimum": {"profit": "41", "markup": 1}}, "optimum.profit: expected a number, got '41'"),
        ({"optimum": {"profit": 41, "markup": float("nan")}}, "optimum.markup: nan is out of range (0.0 to"),
        ({"optimum": {"profit": 0.0, "markup": 1}}, "optimum.profit: 0.0 is out of range"),
        ({"generator": "explicit"}, "costs: is missing"),
        ({"alphas": []}, "alphas: needs generator 'explicit', not 'native'"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        PRICING.load({**SMALL, **change})
    assert words in str(flaw.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"products": 3}, "costs: expected a list of 3 numbers, one a product, got 2"),
        ({"periods": 4}, "alphas: expected a list of 4 rows"),
        ({"alphas": [[1, 2], [1, 2], [1]]}, "alphas[2]: expected a list of 2 numbers"),
        ({"alphas": [[1, 2], [1, 0], [1, 2]]}, "alphas[1][1]: 0 is out of range (1e-06 to 1000000.0)"),
        ({"alphas": "abc"}, "alphas: expected a list, got 'abc'"),
        ({"costs": [1, -1]}, "costs[1]: -1 is out of range (0.0 to 1000000.0)"),
        ({"costs": [1, True]}, "costs[1]: expected a number, got True"),
        ({"qualities": [1, float("inf")]}, "qualities[1]: inf is out of range"),
        ({"qualities": {"a": 1}}, "qualities: expected a list, got {'a': 1}"),
        ({"group_of": [1, 1, 2]}, "group_of: expected a list of 2 numbers"),
        ({"group_of": [1, 3]}, "group_of: groups are numbered from 1 without gaps"),
        ({"group_of": [0, 1]}, "group_of: groups are numbered from 1"),
        ({"group_of": [1, 1.0]}, "group_of[1]: expected a whole number, got 1.0"),
        ({"strength": 1.0}, "strength: nothing is drawn for an explicit market"),
        ({"family": "linear_shifts"}, "family: nothing is drawn for an explicit market"),
        ({"groups": 1}, "groups: nothing is drawn"),
    ],
)
def test_a_wrong_explicit_market_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as flaw:
        PRICING.load({**EXPLICIT, **change})
    assert words in str(flaw.value)


def test_explicit_markets_are_played() -> None:
    play = Play(EXPLICIT)
    alphas = [play.state.world.market.drift.alphas(period) for period in range(3)]
    assert alphas == [(2.0, 3.0), (2.5, 3.0), (4.0, 5.0)]
    # The same price in the units of costs sells the same, whatever the period's alphas are.
    sold = [play.submit(priced(*(3 * alpha for alpha in row)))["action"]["quantities"] for row in alphas]
    assert sold[0] == sold[1] == sold[2]
    assert play.state.ended == "complete"
    assert PRICING.stratum(play.instance) == "explicit"


def test_a_line_whose_market_has_changed_is_refused_when_an_episode_starts() -> None:
    full = PRICING.describe(PRICING.load(SMALL))
    worse = {**full["optimum"], "profit": full["optimum"]["profit"] * (1 + 1e-9)}
    for change, words in (({"digest": "0" * 32}, "small: digest"), ({"optimum": worse}, "small: optimum")):
        changed = PRICING.load({**full, **change})
        with pytest.raises(UsageError, match=words):
            PRICING.start(changed, KIT)


def test_a_market_in_which_nothing_can_be_earned_is_refused() -> None:
    line = {**SMALL, "cost_low": 500, "cost_high": 600}
    with pytest.raises(UsageError, match=r"small: the best prices earn .* Lower the costs"):
        PRICING.describe(PRICING.load(line))


def test_loading_makes_no_market(monkeypatch: pytest.MonkeyPatch) -> None:
    full = PRICING.describe(PRICING.load({**SMALL, "products": 9, "seed": 77}))

    def refuse(*_: object) -> None:
        raise AssertionError("a market was made")

    monkeypatch.setattr(instances, "native_market", refuse)
    loaded = PRICING.load({**full, "seed": 78})
    assert PRICING.describe(loaded)["digest"] == full["digest"]
    assert PRICING.score(loaded, []).value == 0.0
    with pytest.raises(AssertionError, match="was made"):
        PRICING.start(loaded, KIT)


def test_episodes_on_one_instance_share_its_market() -> None:
    assert Play(SMALL).state.world.market is Play({**SMALL, "queries": 3, "id": "other"}).state.world.market


def test_a_shortened_reference_instance_is_the_published_one_s_beginning() -> None:
    whole, short = (instances.market_of(PRICING.load(reference("hard", 2, periods=n))) for n in (100, 15))
    assert [whole.drift.alphas(t) for t in range(15)] == [short.drift.alphas(t) for t in range(15)]


def test_families_follow_the_reference_s_seeds() -> None:
    for seed in range(4):
        full = PRICING.describe(PRICING.load(reference("basic", seed)))
        assert "family" not in full
        assert PRICING.stratum(PRICING.load(full)) == FAMILIES[seed % 2]
    other = PRICING.load(reference("basic", 0, family="periodic_shifts"))
    assert PRICING.describe(other)["family"] == "periodic_shifts"


def test_generated_lines_are_lazy_fresh_balanced_and_repeat() -> None:
    lines = list(itertools.islice(PRICING.generate({"products": 4}, 10**9, 5), 8))
    assert [line["family"] for line in lines] == [*FAMILIES] * 4
    assert len({line["id"] for line in lines}) == len({line["seed"] for line in lines}) == 8
    assert lines == list(PRICING.generate({"products": 4}, 8, 5))
    assert not {line["seed"] for line in lines} & {line["seed"] for line in PRICING.generate({"products": 4}, 8, 6)}
    for line in lines:
        assert PRICING.describe(PRICING.load(line)) == line
        assert (line["products"], line["generator"]) == (4, "native")
    one = list(PRICING.generate({"family": "periodic_shifts"}, 3, 5))
    assert [line["family"] for line in one] == ["periodic_shifts"] * 3


@pytest.mark.parametrize("generator", ["reference", "native"])
def test_a_market_in_which_next_to_nothing_can_be_earned_is_replaced_by_the_next_seed_s(generator: str) -> None:
    asked = {"products": 1, "cost_high": 10.0, "generator": generator}
    found, left = [], iter(PRICING.generate(asked, 12, 0))
    while True:
        try:
            found.append(next(left))
        except StopIteration as end:
            weak = end.value
            break
    assert len(found) == 12
    assert len({line["id"] for line in found} | set(weak)) == 12 + len(weak) > 12
    assert all(line["optimum"]["profit"] >= 1 for line in found)
    if generator == "reference":
        assert sorted([line["seed"] for line in found] + [int(name[5:]) for name in weak]) == list(
            range(12 + len(weak))
        )
    with pytest.raises(UsageError, match="the best prices earn"):
        list(PRICING.generate({"products": 1, "quality_low": -900.0, "quality_high": -900.0}, 2, 0))


def test_the_reference_s_instances_can_be_generated_by_seed() -> None:
    lines = list(PRICING.generate({"products": 1, "generator": "reference"}, 12, 0))
    assert [(line["id"], line["seed"]) for line in lines] == [(f"seed-{seed}", seed) for seed in range(12)]
    assert lines[0]["optimum"]["profit"] == pytest.approx(41.66085783799682, rel=1e-14)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"n": 3}, "n: pricing has no such parameter"), ({"generator": "explicit"}, "written, not generated")],
)
def test_parameters_that_generate_nothing_are_refused_at_once(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PRICING.generate(parameters, 1, 0)


def test_every_parameter_has_a_default_that_it_accepts() -> None:
    line = {name: parameter.default for name, parameter in PRICING.parameters.items()}
    loaded = PRICING.load({"id": "d", "environment": "pricing", **line})
    assert (loaded.products, loaded.periods, loaded.counted, loaded.queries, loaded.hint) == (1, 100, 50, 40, True)


def test_a_market_of_the_largest_size_can_be_played() -> None:
    play = Play({**SMALL, "products": 2000, "groups": 500, "periods": 2})
    action = play.submit({f"Product_{i}": 20 for i in range(1, 2001)})["action"]
    assert len(action["profits"]) == 2000
