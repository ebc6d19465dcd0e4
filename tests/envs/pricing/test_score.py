from typing import Any

import pytest

from evalkit.envs.environment import Facts
from evalkit.envs.pricing.optimum import solve
from evalkit.envs.pricing.pricing import PRICING
from tests.envs.pricing.playing import SMALL, Play, priced
from tests.support.period_episodes import replying

LINE: dict[str, Any] = {
    **SMALL,
    "products": 2,
    "periods": 20,
    "digest": "x",
    "optimum": {"profit": 40.0, "markup": 1.5},
}


def acted(period: int, *profits: float, repeat: bool = False) -> Facts:
    action = {"prices": [1.0, 1.0], "quantities": [0.0, 0.0], "profits": list(profits), "repeat": repeat}
    return {"period": period, "turn": 0, "calls": [], "action": action, "period_end": "accepted"}


def passed(period: int, how: str = "no_action") -> Facts:
    return {"period": period, "turn": 39, "calls": [], "period_end": how}


def test_the_last_half_counts_and_what_came_before_is_the_early_score() -> None:
    facts: list[Facts] = [
        acted(0, 10.0, 10.0),
        {"period": 1, "turn": 0, "calls": []},
        acted(1, 10.0, -5.0),
        passed(2),
        acted(9, 1.0, 1.0, repeat=True),
        acted(10, 20.0, 10.5),
        passed(11, "restart"),
        acted(12, 40.0, 0.0),
        acted(19, -3.5, 13.0),
    ]
    score = PRICING.score(PRICING.load(LINE), facts)
    assert score.value == (30.5 + 40 + 9.5) / (10 * 40)
    assert not score.solved
    assert score.metrics == {
        "periods": 7,
        "no_action_periods": 1,
        "restarts": 1,
        "actions": 6,
        "queries": 9,
        "early_score": 27 / 400,
        "adaptability": pytest.approx(80 / 400 - 27 / 400),
        "exploration_rate": 5 / 6,
    }


@pytest.mark.parametrize(
    ("change", "value", "early"),
    [
        ({"scored": 20}, 55 / 800, 55 / 400),
        ({"scored": 1}, 0.0, 55 / 400),
        ({"periods": 3}, 35 / 80, 55 / 120),
        ({"periods": 1}, 20 / 40, 20 / 40),
    ],
)
def test_which_periods_count_can_be_set_and_follows_from_their_number(
    change: dict[str, int], value: float, early: float
) -> None:
    instance = PRICING.load({**LINE, **change})
    facts = [acted(0, 10.0, 10.0), acted(1, 15.0, 5.0), acted(2, 15.0, 0.0)][: instance.periods]
    score = PRICING.score(instance, facts)
    assert score.value == pytest.approx(value)
    assert score.metrics["early_score"] == pytest.approx(early)


@pytest.mark.parametrize("facts", [[], [passed(0), passed(1)], [passed(0, "restart")]])
def test_no_prices_at_all_score_0(facts: list[Facts]) -> None:
    score = PRICING.score(PRICING.load(LINE), facts)
    assert (score.value, score.solved, score.metrics["actions"]) == (0.0, False, 0)
    assert "exploration_rate" not in score.metrics


def test_an_early_end_is_scored_as_if_nothing_followed() -> None:
    instance = PRICING.load(LINE)
    short = [acted(period, 20.0, 20.0) for period in range(12)]
    longer = [*short, *(passed(period) for period in range(12, 17))]
    assert PRICING.score(instance, short).value == PRICING.score(instance, longer).value == 0.2


def test_solved_is_as_near_to_the_best_as_rounding_tells() -> None:
    instance = PRICING.load(LINE)
    # Half a cent a product and period may be lost, or won, on the way to two decimals.
    for profits, solved in (((20.0, 20.0), True), ((20.0, 19.99), True), ((20.0, 19.98), False), ((20.01, 20.0), True)):
        score = PRICING.score(instance, [acted(period, *profits) for period in range(20)])
        assert score.solved is solved


def test_losses_are_below_0() -> None:
    facts = [acted(period, -100.0, 20.0) for period in range(20)]
    assert PRICING.score(PRICING.load(LINE), facts).value == -2.0


def test_a_played_episode_is_scored_by_what_was_shown() -> None:
    play = Play({**SMALL, "periods": 4, "queries": 1})
    first = play.submit(priced(8, 8, 8))["action"]
    play.say(replying())
    third, fourth = (play.submit(priced(8, 8, 8))["action"] for _ in range(2))
    score, best = PRICING.score(play.instance, play.facts), solve(play.state.world.market).profit
    assert score.value == pytest.approx(sum(third["profits"] + fourth["profits"]) / (2 * best))
    assert score.metrics["early_score"] == pytest.approx(
        sum(first["profits"] + third["profits"] + fourth["profits"]) / (4 * best)
    )
    assert score.metrics["exploration_rate"] == 1 / 3
    assert (score.metrics["periods"], score.metrics["no_action_periods"]) == (4, 1)
