"""Charts of pricing, procurement and scheduling: their numbers are the score's, and the oracle loses nothing."""

from dataclasses import replace
from itertools import pairwise
from math import fsum
from typing import Any

import pytest

from evalkit.envs.pricing.instance import optimum_of as best_of_prices
from evalkit.envs.procurement.instance import optimum_of
from evalkit.report.environments import scheduling as matrix_module
from evalkit.report.environments.pricing import priced, pricing_figures, pricing_lines
from evalkit.report.environments.procurement import best_of, planned, procurement_lines
from evalkit.report.environments.scheduling import assigned, scheduling_figures, scheduling_lines
from evalkit.results.moves import Move
from tests.support.chart_episodes import Played, line_of, played

SHORT = {"periods": 8}


def pricing(agent: str, suite: str = "medium", **more: Any) -> Played:
    return played("pricing", line_of(f"pricing/{suite}", **{**SHORT, **more}), agent)


def procurement(agent: str) -> Played:
    return played("procurement", line_of("procurement/basic", **SHORT), agent)


def scheduling(agent: str, **more: Any) -> Played:
    return played("scheduling", line_of("scheduling/basic", **{"periods": 30, **more}), agent)


def test_the_best_prices_lose_nothing() -> None:
    episode = pricing("oracle")
    found = priced(episode.target, episode.moves)
    rounding = 0.005 * episode.target.products + 1e-9
    assert len(found) == 8
    assert all(abs(one.lost) <= rounding and one.prices == pytest.approx(one.best) for one in found)
    assert abs(found[-1].regret) <= 8 * rounding


@pytest.mark.parametrize("agent", ["random", "fixed", "noisy", "oracle"])
def test_profits_add_up_to_the_score(agent: str) -> None:
    episode = pricing(agent)
    found = priced(episode.target, episode.moves)
    best = best_of_prices(episode.target).profit
    counted = [one for one in found if one.counted]
    assert fsum(one.profit for one in counted) / (len(counted) * best) == pytest.approx(episode.score.value)
    assert found[-1].regret == pytest.approx(len(found) * best - fsum(one.profit for one in found))
    assert pricing_lines(episode.target, episode.moves)[0].startswith(f"profit {found[0].profit:,.2f} of {best:,.2f}")


def test_who_prices_at_random_loses() -> None:
    found = priced((episode := pricing("random")).target, episode.moves)
    assert found[-1].regret > 0.3 * best_of_prices(episode.target).profit * len(found)


def test_periods_without_prices_lose_all_of_theirs() -> None:
    episode = played("pricing", line_of("pricing/basic", periods=9, queries=1), "fixed", most_steps=3)
    begun = priced(episode.target, episode.moves)
    assert [one.period for one in begun] == [0, 1, 2]
    (idle,) = {one.prices for one in priced(episode.target, ())} or {None}
    assert idle is None


def test_wild_prices_do_not_flatten_the_plot() -> None:
    episode = pricing("fixed", "basic")
    wild = [
        (move if "action" not in move.facts else with_price(move, 1e15 if move.period == 1 else 10.0))
        for move in episode.moves
    ]
    prices = pricing_figures(episode.target, "e", wild)[0]
    top = max(max(one.best) for one in priced(episode.target, wild))
    low, high = prices.spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low <= 0 < top <= high < 3 * top
    assert any("1 prices beyond the plot" in note for note in prices.notes)
    assert max(row["price"] for row in prices.table.rows) == 1e15


def with_price(move: Move, price: float) -> Move:
    action = {**move.facts["action"], "prices": [price] * len(move.facts["action"]["prices"])}
    return replace(move, facts={**move.facts, "action": action})


def test_the_optimal_plan_is_worth_everything() -> None:
    episode = procurement("oracle")
    found = planned(episode.target, episode.moves)
    assert [one.value for one in found] == [1.0] * 8
    best = best_of(found)
    assert best is not None
    assert (best.period, dict(best.plan)) == (0, dict(optimum_of(episode.target).plan))
    assert found[0].workers == pytest.approx(optimum_of(episode.target).workers)


@pytest.mark.parametrize("agent", ["random", "climber", "noisy"])
def test_plans_are_worth_what_the_score_says(agent: str) -> None:
    episode = procurement(agent)
    found = planned(episode.target, episode.moves)
    assert found[-1].best == pytest.approx(episode.score.value)
    assert sum(one.feasible for one in found) == episode.score.metrics["feasible_plans"]
    assert all(one.value == one.workers == 0 for one in found if not one.feasible)
    feasible = [one.value for one in found if one.feasible]
    assert (feasible[0], feasible[-1]) == pytest.approx(
        (episode.score.metrics["first_score"], episode.score.metrics["final_score"])
    )
    lines = procurement_lines(episode.target, episode.moves)
    assert list(lines) == [one.period for one in found]
    assert agent != "random" or found[-1].best < 1


@pytest.mark.parametrize("agent", ["random", "knuth", "noisy", "oracle"])
def test_assignments_are_as_stable_as_the_score_says(agent: str) -> None:
    episode = scheduling(agent)
    found = assigned(episode.target, episode.moves)
    metrics = episode.score.metrics
    assert len(found) == metrics["assignments"]
    assert found[-1].score == episode.score.value
    assert (found[0].score, max(one.score for one in found)) == (metrics["first_score"], metrics["best_score"])
    assert sum(one.record for one in found) / len(found) == metrics["best_so_far_rate"]
    assert sum(not one.repeat for one in found) / len(found) == metrics["exploration_rate"]
    assert all(sorted(one.matching) == list(range(episode.target.n)) for one in found)
    assert (found[-1].score == 1) is episode.score.solved


def test_a_matrix_shows_an_assignment_and_every_pair_that_blocks_it() -> None:
    episode = scheduling("knuth")
    found = assigned(episode.target, episode.moves)
    _, matrix = scheduling_figures(episode.target, "e", episode.moves)
    rows = matrix.spec["data"]["values"]
    for one in found:
        cells = [row["is"] for row in rows if row["period"] == one.period]
        assert cells.count("assigned") == episode.target.n
        assert len(cells) - episode.target.n == one.blocking
        assert cells.count("blocks, told to the agent") == len(one.told)
    best = min(found, key=lambda one: one.blocking)
    assert matrix.spec["params"][0]["value"] == best.period
    assert {row["period"] for row in matrix.table.rows} == {best.period}


def test_many_assignments_are_chosen_from_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_module, "MOST_MARKS", 60)
    episode = scheduling("random", periods=12)
    _, matrix = scheduling_figures(episode.target, "e", episode.moves)
    options = matrix.spec["params"][0]["bind"]["options"]
    assert 1 <= len(options) < 12
    assert any("can not be chosen" in note for note in matrix.notes)


def test_lines_say_what_came_of_periods() -> None:
    lines = scheduling_lines((episode := scheduling("knuth")).target, episode.moves)
    assert lines[max(lines)] == "stable, score 100.0, fewest so far"
    assert all(one < other for one, other in pairwise(lines))
