import math
from typing import Any

import pytest

from evalkit.envs.environment import Facts
from evalkit.envs.procurement.procurement import PROCUREMENT
from tests.envs.procurement.purchasing import SMALL

# The digest is not looked at where nothing is played; the budget is 20.00.
OPTIMUM = {"product": "1600", "workers": 40.0, "cost": 2000, "plan": {"one": 10}, "gap": 0.0, "proven": True}
MADE: dict[str, Any] = {
    **SMALL,
    "menu": [{"id": "one", "kind": "basic", "price": 2, "contents": [["A1", 4], ["B1", 2]]}],
}
INSTANCE = PROCUREMENT.load({**MADE, "optimum": OPTIMUM})


def acted(period: int, totals: tuple[int, ...], cost: int = 1000, **more: Any) -> Facts:
    action = {
        "feasible": True,
        "reasons": [],
        "cost": cost,
        "totals": list(totals),
        "product": str(math.prod(totals)),
        "plan": {},
        "repeat": False,
        "repeat_text": False,
    }
    return {"period": period, "turn": 0, "calls": [], "action": {**action, **more}, "period_end": "accepted"}


def passed(period: int, how: str = "no_action") -> Facts:
    return {"period": period, "turn": 39, "calls": [], "period_end": how}


def test_the_best_feasible_plan_counts() -> None:
    facts: list[Facts] = [
        acted(0, (10, 10), cost=1900),
        {"period": 1, "turn": 0, "calls": []},
        acted(1, (20, 20), cost=1899),
        acted(2, (90, 90), cost=2000, feasible=False),
        passed(3),
        acted(4, (5, 5), cost=2000, repeat=True, repeat_text=True),
        acted(5, (10, 10), repeat=True),
    ]
    score = PROCUREMENT.score(INSTANCE, facts)
    assert (score.value, score.solved) == (0.5, False)
    assert score.metrics == {
        "periods": 6,
        "no_action_periods": 1,
        "restarts": 0,
        "plans": 5,
        "feasible_plans": 4,
        "queries": 7,
        "exploration_rate": 3 / 5,
        "exploration_rate_text": 4 / 5,
        "budget_utilisation": 2 / 5,
        "reference_score": pytest.approx(0.5),
        "first_score": 0.25,
        "final_score": 0.25,
    }


def test_an_optimal_plan_of_other_totals_solves_by_the_product() -> None:
    score = PROCUREMENT.score(INSTANCE, [acted(0, (20, 80)), acted(1, (1, 1)), acted(2, (40, 40))])
    assert (score.value, score.solved, score.metrics["solved_period"]) == (1.0, True, 0)
    almost = PROCUREMENT.score(INSTANCE, [acted(0, (1599, 1))])
    assert not almost.solved
    assert 0.9996 < almost.value < 1.0


def test_a_plan_beyond_an_unproven_optimum_scores_above_1() -> None:
    instance = PROCUREMENT.load({**MADE, "optimum": {**OPTIMUM, "proven": False, "gap": 1.0}})
    score = PROCUREMENT.score(instance, [acted(0, (80, 80))])
    assert (score.value, score.solved) == (2.0, True)


@pytest.mark.parametrize(
    "facts",
    [[], [passed(0), passed(1)], [passed(0, "restart")], [acted(0, (9, 9), feasible=False), passed(1)]],
    ids=["nothing", "no actions", "restart", "infeasible"],
)
def test_no_feasible_plan_scores_0_and_has_no_score_by_the_reference(facts: list[Facts]) -> None:
    score = PROCUREMENT.score(INSTANCE, facts)
    assert (score.value, score.solved) == (0.0, False)
    assert score.metrics["feasible_plans"] == 0
    assert not score.metrics.keys() & {"reference_score", "first_score", "final_score", "solved_period"}
    assert ("exploration_rate" in score.metrics) == any("action" in one for one in facts)


def test_a_feasible_plan_that_supports_nobody_scores_0() -> None:
    score = PROCUREMENT.score(INSTANCE, [acted(0, (0, 50))])
    assert (score.value, score.solved) == (0.0, False)
    assert score.metrics["reference_score"] == 0.0


def test_an_early_end_is_scored_as_if_nothing_followed() -> None:
    short = [acted(0, (20, 20))]
    longer = [*short, *(passed(period) for period in range(1, 6))]
    assert PROCUREMENT.score(INSTANCE, short).value == PROCUREMENT.score(INSTANCE, longer).value == 0.5


def test_products_beyond_floats_are_compared_exactly() -> None:
    size = 90
    items = [[[f"A{c}", 1]] for c in range(size)]
    menu = [{"id": "one", "kind": "basic", "price": 1, "contents": [[f"A{c}", 1000] for c in range(size)]}]
    top = (10**9) ** size
    optimum = {**OPTIMUM, "product": str(top), "workers": 1e9, "cost": 10**8, "plan": {"one": 10**6}}
    instance = PROCUREMENT.load({**SMALL, "items": items, "menu": menu, "budget": 10**6, "optimum": optimum})

    def scored(total: int) -> Any:
        return PROCUREMENT.score(instance, [acted(0, (total,) * size)])

    assert scored(10**9).solved
    assert scored(10**9).value == 1.0
    assert not scored(10**9 - 1).solved
    assert scored(10**8).value == pytest.approx(0.1)
    assert scored(10).value == pytest.approx(1e-8)
    assert scored(1).metrics["reference_score"] == pytest.approx(1e-9)
