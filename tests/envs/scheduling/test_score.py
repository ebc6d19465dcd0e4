from typing import Any

import pytest

from evalkit.envs.environment import Facts
from evalkit.envs.scheduling.scheduling import SCHEDULING
from tests.support.period_episodes import replying
from tests.support.scheduling_episodes import SMALL, Play, matched

LINE = {**SMALL, "n": 10, "digest": "x", "expected": [2128, 90]}


def acted(period: int, blocking: int, repeat: bool = False) -> Facts:
    action = {"blocking": blocking, "shown": [], "repeat": repeat}
    return {"period": period, "turn": 0, "calls": [], "action": action, "period_end": "accepted"}


def passed(period: int, how: str = "no_action") -> Facts:
    return {"period": period, "turn": 39, "calls": [], "period_end": how}


def test_the_last_accepted_assignment_counts() -> None:
    facts: list[Facts] = [
        acted(0, 20),
        {"period": 1, "turn": 0, "calls": []},
        acted(1, 5),
        acted(2, 20, repeat=True),
        passed(3),
        acted(4, 10),
    ]
    score = SCHEDULING.score(SCHEDULING.load(LINE), facts)
    expected = 2128 / 90
    assert score.value == pytest.approx(1 - 10 / expected)
    assert not score.solved
    assert score.metrics == {
        "periods": 5,
        "no_action_periods": 1,
        "restarts": 0,
        "assignments": 4,
        "queries": 6,
        "first_score": pytest.approx(1 - 20 / expected),
        "best_score": pytest.approx(1 - 5 / expected),
        "best_so_far_rate": 2 / 4,
        "exploration_rate": 3 / 4,
    }


def test_an_early_end_is_scored_as_if_nothing_followed() -> None:
    instance = SCHEDULING.load(LINE)
    short = [acted(0, 20), acted(1, 12)]
    longer = [*short, *(passed(period) for period in range(2, 7))]
    assert SCHEDULING.score(instance, short).value == SCHEDULING.score(instance, longer).value


def test_worse_than_random_is_below_0_and_random_is_0() -> None:
    instance = SCHEDULING.load({**LINE, "expected": [900, 90]})
    assert SCHEDULING.score(instance, [acted(0, 10)]).value == 0.0
    assert SCHEDULING.score(instance, [acted(0, 15)]).value == -0.5


@pytest.mark.parametrize("facts", [[], [passed(0), passed(1)], [passed(0, "restart")]])
def test_no_accepted_assignment_scores_0(facts: list[Facts]) -> None:
    score = SCHEDULING.score(SCHEDULING.load(LINE), facts)
    assert (score.value, score.solved) == (0.0, False)
    assert score.metrics["assignments"] == 0
    assert "best_score" not in score.metrics
    assert score.metrics["restarts"] == sum(one["period_end"] == "restart" for one in facts)


def test_a_stable_assignment_scores_1_whenever_it_was_found() -> None:
    score = SCHEDULING.score(SCHEDULING.load(LINE), [acted(0, 3), passed(1), acted(2, 0)])
    assert (score.value, score.solved, score.metrics["stable_period"]) == (1.0, True, 2)


# W1 wants T1, T1 wants W2, W2 wants T2, T2 wants W1: both matchings are stable, so E = 0.
CIRCLE: dict[str, Any] = {
    "id": "circle",
    "generator": "explicit",
    "n": 2,
    "worker_prefs": {"W1": ["T1", "T2"], "W2": ["T2", "T1"]},
    "task_prefs": {"T1": ["W2", "W1"], "T2": ["W1", "W2"]},
}


def test_where_every_matching_is_stable_any_scores_1_and_none_0() -> None:
    play = Play(CIRCLE)
    assert SCHEDULING.describe(play.instance)["expected"] == [0, 2]
    assert SCHEDULING.score(play.instance, []).value == 0.0
    assert play.submit(matched(2, 1))["ended"] == "stable"
    assert SCHEDULING.score(play.instance, play.facts).value == 1.0


def test_metrics_of_a_played_episode_follow_from_its_facts() -> None:
    play = Play({**SMALL, "periods": 4, "queries": 2})
    for tasks in ((1, 2, 3, 4, 5), (2, 1, 3, 4, 5), (1, 2, 3, 4, 5)):
        play.submit(matched(*tasks))
    play.say(replying())
    play.say(replying())
    assert play.state.ended == "complete"
    metrics = SCHEDULING.score(play.instance, play.facts).metrics
    assert {name: metrics[name] for name in ("periods", "no_action_periods", "assignments", "queries")} == {
        "periods": 4,
        "no_action_periods": 1,
        "assignments": 3,
        "queries": 5,
    }
    assert metrics["exploration_rate"] == 2 / 3
