import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalkit.envs.procurement.market import Deal, ProcurementMarket, is_feasible
from tests.conform.compare import procurement
from tests.conform.compare.documented import DOCUMENTED
from tests.conform.compare.goldens import GoldenVerdict
from tests.envs.procurement.test_market import SMALL


def rows(shared: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (shared / "goldens/econagentbench" / name).read_text().splitlines()]


def tally(verdicts: list[GoldenVerdict]) -> Counter[str]:
    assert {verdict.detail for verdict in verdicts if verdict.status == "documented"} <= DOCUMENTED.keys()
    return Counter(verdict.detail if verdict.status == "documented" else verdict.status for verdict in verdicts)


@pytest.mark.parametrize("name", ["procurement_instances.jsonl", "procurement_instances_n40k5.jsonl"])
def test_golden_instances_are_equal(shared: Path, name: str) -> None:
    cases = rows(shared, name)
    assert tally([procurement.instances(row, None) for row in cases]) == {"equal": len(cases)}


@pytest.mark.exhaustive
def test_golden_plans_are_equal_or_no_plans(shared: Path) -> None:
    cases = rows(shared, "procurement_plans.jsonl")
    odd = sum(row["name"].startswith(("negative", "fractional")) for row in cases)
    found = tally([procurement.plans(row, None) for row in cases])
    assert found.keys() == {"equal", "whole-quantities"}
    # Of plans that are odd by name some hold whole quantities after all, where a market has no deal of the kind.
    assert 0 < found["whole-quantities"] <= odd


def test_golden_replays_part_in_the_exploration_rate_alone(shared: Path) -> None:
    cases = [row for row in rows(shared, "score_replays.jsonl") if row["env"] == "procurement"]
    found = tally([procurement.replay(row, None) for row in cases])
    assert found == {"exploration-by-what-is-bought": 4}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cost": 1.0}, "by the reference's rule: cost"),
        ({"workers": 1.0}, "by the reference's rule: workers"),
        ({"feasible": False}, "by the reference's rule: feasible"),
        ({"budget": 1.0}, "budget: golden 1.0"),
        ({"plan": {"Offer_1": 2}}, "by the reference's rule"),
    ],
)
def test_a_changed_plan_is_noticed(shared: Path, change: dict[str, Any], words: str) -> None:
    row = rows(shared, "procurement_plans.jsonl")[0]
    verdict = procurement.plans({**row, **change}, None)
    assert verdict.status == "differing"
    assert words in verdict.detail


@pytest.mark.parametrize("change", [{"budget": 1.0}, {"menu_text": ""}, {"start_alloc": {}}, {"seed": 1}])
def test_a_changed_instance_is_noticed(shared: Path, change: dict[str, Any]) -> None:
    row = rows(shared, "procurement_instances.jsonl")[0]
    assert procurement.instances({**row, **change}, None).status == "differing"


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("per_period", 3, 0), 1.0, "per_period[3]"),
        (("per_period", 3, 1), 1.0, "per_period[3]"),
        (("per_period", 3, 2), False, "per_period[3].feasible"),
        (("notebook", "max_ratio"), 0.5, "max_ratio"),
        (("notebook", "exploration_rate"), 0.5, "exploration_rate"),
        (("notebook", "solved"), True, "solved"),
        (("notebook", "opt_utility"), 80.0, "opt_utility"),
    ],
)
def test_a_changed_replay_is_noticed(shared: Path, place: tuple[Any, ...], value: object, words: str) -> None:
    row = next(row for row in rows(shared, "score_replays.jsonl") if row["env"] == "procurement")
    inner: Any = row
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    verdict = procurement.replay(row, None)
    assert verdict.status == "differing"
    assert words in verdict.detail


def test_the_reference_takes_quantities_that_are_none() -> None:
    found = procurement.reference_judgement(SMALL, {"one": -1.0, "two": 0.5, "three": 0})
    assert (found["feasible"], found["cost"]) == (True, 6.0)
    assert set(found["workers"]) == {"complex"}


def test_a_plan_of_exactly_the_budget_may_be_too_dear_for_the_reference() -> None:
    deal = Deal(id="one", kind="basic", contents=((0, 1), (2, 1)), price=10)
    market = ProcurementMarket(categories=SMALL.categories, effectiveness=SMALL.effectiveness, deals=(deal,), budget=30)
    assert is_feasible(market, (3,))
    assert not procurement.reference_judgement(market, {"one": 3})["feasible"]
