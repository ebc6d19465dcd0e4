"""The tables of docs/deciding.md are what their command makes: rows are tried again, with few studies."""

import re
from html import unescape
from itertools import pairwise

import numpy as np
import pytest

from bench.calibrations import deciding
from bench.calibrations.deciding_shapes import SHAPES, Shape, graded, yes_no_alike
from bench.calibrations.lanes import ENDS, SPEEDS, UNEQUAL, played
from docs.tools import deciding_picture
from evalkit.report.figures.draw import svg
from tests.vegalite import schema_flaw

PAGE = deciding.PAGE.read_text(encoding="utf-8")


def rows(name: str) -> dict[str, list[str]]:
    """The committed rows of a table by their first cell (the ranking's: by the first two)."""
    studies, cells = deciding.cells(PAGE, name)
    assert studies == deciding.STUDIES[name]
    keyed = 2 if name in {"ranking", "forecast"} else 1
    return {" ".join(row[:keyed]): row[keyed:] for row in cells}


def share(text: str) -> float:
    return float(text) / 100


def test_every_shape_has_its_rows_and_no_answer_is_wrong_too_often() -> None:
    pairs, eight = rows("pairs"), rows("eight")
    assert list(pairs) == list(eight) == [shape.name for shape in SHAPES]
    assert len(SHAPES) >= 12
    for alike, apart, *_ in pairs.values():
        # Three standard errors of so many studies.
        assert max(share(alike), share(apart)) <= 0.05 + 3 * (0.05 * 0.95 / deciding.STUDIES["pairs"]) ** 0.5
    for (wrong,) in eight.values():
        assert share(wrong) <= 0.05 + 3 * (0.05 * 0.95 / deciding.STUDIES["eight"]) ** 0.5


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_scores_have_the_means_and_the_range_that_they_should(shape: Shape) -> None:
    lead = np.array([0.0, 0.02, 0.05])
    scores = shape.draw(np.random.Generator(np.random.Philox(1)), 60, 600, lead)
    assert scores.min() >= 0
    assert scores.max() <= 1
    for agent in (1, 2):
        differences = (scores[:, agent] - scores[:, 0]).reshape(60, -1, shape.turn).mean(axis=2)
        error = differences.std() / np.sqrt(differences.size)
        assert abs(differences.mean() - lead[agent]) <= 4.5 * error + 1e-9


def test_the_ranking_has_scores_from_0_to_1() -> None:
    for strengths in deciding.STRENGTHS.values():
        lead = np.array(strengths) - np.mean(strengths)
        for draw in (graded, yes_no_alike):
            scores = draw(np.random.Generator(np.random.Philox(2)), 20, 400, lead)
            assert scores.min() >= 0
            assert scores.max() <= 1
            assert np.abs(scores.mean(axis=(0, 2)) - scores.mean() - lead).max() < 0.03


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[5], SHAPES[12]], ids=lambda shape: shape.name)
def test_a_quick_try_agrees_with_the_page(shape: Shape) -> None:
    mine, theirs = deciding.pair_row(shape, 60)[1:], rows("pairs")[shape.name]
    # Shares: 60 studies know them to 4.5 standard errors, and never to less than 4 studies of them.
    for got, shown in zip(mine[:3], theirs[:3], strict=True):
        p = (60 * share(shown) + 2) / 64
        assert abs(share(got) - share(shown)) <= 4.5 * (p * (1 - p) / 60) ** 0.5
    if "> 1,000" not in (mine[3], theirs[3]):
        assert float(mine[3].replace(",", "")) == pytest.approx(float(theirs[3].replace(",", "")), rel=0.25)


def test_stopping_costs_what_the_page_says() -> None:
    shown = rows("ranking")
    designs = deciding.rankings(graded, deciding.STRENGTHS[deciding.WIDE], 0.1306, 2)
    stopping, planned = designs["stopping"], designs["fixed, planned"]
    usd = {way: float(shown[f"graded; {deciding.WIDE} {way}"][2].replace(",", "")) for way in designs}
    assert float(stopping.usd.mean()) == pytest.approx(usd["stopping"], rel=0.2)
    assert float(planned.usd.mean()) == pytest.approx(usd["fixed, planned"], rel=0.01)
    assert usd["stopping"] < usd["fixed, in hindsight"] < usd["fixed, planned"]


def test_a_table_goes_below_its_own_mark() -> None:
    before = 'a\n\n[//]: # "deciding: x, 3 studies"\n\n| old |\n\nb\n'
    after = deciding.placed(before, "x", 9, "| new |\n")
    assert deciding.placed(before.replace("\n\nb", "\nb"), "x", 9, "| new |\n") == after
    assert after == before.replace("x, 3", "x, 9").replace("old", "new")
    with pytest.raises(ValueError, match="one place for the table y"):
        deciding.placed(before, "y", 9, "| new |\n")


def test_no_table_takes_the_next_paragraph_for_a_row() -> None:
    assert not re.search(r"^\|.*\n(?![|\n])", PAGE, re.MULTILINE)


def test_a_mean_at_a_stop_is_shown_beyond_the_truth_and_its_interval_below() -> None:
    studies, cells = deciding.cells(PAGE, "leaning")
    assert studies == deciding.STUDIES["leaning"]
    for _, apart, _, shown, interval, right in cells:
        low, high = map(float, interval.split(" to "))
        assert low < float(apart) < float(shown) < high
        assert float(right) >= 95
    shape = next(shape for shape in SHAPES if shape.name == cells[2][0])
    quick = deciding.leaning_row(shape, float(cells[2][1]) / 100, 60)
    assert float(quick[3]) == pytest.approx(float(cells[2][3]), rel=0.1)


def words_of(picture: str) -> list[str]:
    """What an SVG says of its marks and titles, in order; where these lie depends on the fonts of who drew it."""
    return [unescape(words) for words in re.findall(r'aria-label="([^"]*)"', picture)]


@pytest.mark.exhaustive
def test_the_picture_shows_the_table() -> None:
    drawn = deciding_picture.figure(PAGE)
    assert schema_flaw(drawn.spec) == ""
    committed = (deciding.PAGE.parent / "images" / "deciding.svg").read_text(encoding="utf-8")
    said = words_of(committed)
    assert said == words_of(svg(drawn)), "run: python -m docs.tools.pictures deciding"
    for name, (_, episodes, usd, _, wrongly) in rows("ranking").items():
        label = f"${usd}, {episodes} episodes"
        assert any(label in words and (wrongly == "0.00" or f"${wrongly} on wrong" in words) for words in said), name


def test_the_bars_are_as_long_as_the_dollars_are_many() -> None:
    drawn = svg(deciding_picture.figure(PAGE))
    bars = re.findall(r'aria-label="usd: (\d+); design: [^";]*"[^>]* d="M0,[\d.]+h([\d.]+)v', drawn)
    assert len(bars) == len(rows("ranking"))
    for (usd, length), (other_usd, other_length) in pairwise(bars):
        assert float(length) / float(other_length) == pytest.approx(int(usd) / int(other_usd), rel=1e-3)


def test_a_design_without_a_name_in_the_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="no name for the design guessed"):
        deciding_picture.figure(PAGE.replace("fixed, planned", "guessed"))


def figures(name: str) -> dict[tuple[str, ...], list[float]]:
    """The numbers of a table whose rows have two names or three."""
    cells = deciding.cells(PAGE, name)[1]
    named = {"lanes": 2, "hour": 3, "suite": 1, "once": 1, "sizes": 2, "bets": 1}[name]
    numbers = {tuple(row[:named]): [one.replace(",", "") for one in row[named:]] for row in cells}
    return {key: [float(one.removeprefix("> ")) for one in row] for key, row in numbers.items()}


def test_waiting_for_partners_spares_episodes_and_hardly_any_time() -> None:
    shown = figures("lanes")
    for name in SPEEDS:
        (episodes, time, answered), (paced, took, known) = (shown[name, ahead] for ahead in ("any", "32"))
        assert paced <= episodes
        assert took <= 1.04 * time
        assert known == answered == (75.0 if name in ENDS else 100.0)
    assert shown[UNEQUAL, "32"][0] < 0.55 * shown[UNEQUAL, "any"][0]
    # A few runs again: as many episodes as the page says.
    lead = deciding.APART * np.arange(8) - deciding.APART * 3.5
    draws = deciding.generator("test")
    known_at = np.full((8, 8), np.inf)
    scores = graded(draws, 3, 700, lead)
    begun = []
    for study in scores:
        for first, second in deciding.PAIRS:
            found = deciding.ended((study[second] - study[first])[None], alpha=deciding.ALPHA / 28)
            known_at[first, second] = known_at[second, first] = found.draws[0]
        begun.append(played(known_at, np.ones(8), draws, ahead=32, most=700).begun.sum())
    assert np.mean(begun) == pytest.approx(shown["equal", "32"][0], rel=0.15)


def test_an_agent_whose_partner_has_gone_stops_where_it_did() -> None:
    never = np.full((2, 2), np.inf)
    draws = deciding.generator("gone")
    for ahead, most in ((np.inf, 300), (32, 52)):
        run = played(never, np.array([1.0, 3.0]), draws, ahead=ahead, most=300, ends=20)
        assert 20 <= run.begun[0] <= most
        assert (run.begun[1], run.open) == (20, 1)


def test_what_both_agents_share_leaves_their_difference_and_what_one_has_stays() -> None:
    shown = figures("hour")
    both = "one effect of both that changes"
    assert all(shown[both, points, "32"][0] < 0.15 * shown[both, points, "any"][0] for points in ("2", "5"))
    assert shown["one effect a run, each agent its own", "1", "any"][0] > 35


def test_centred_draws_answer_sooner_where_agents_suit_different_instances_and_nowhere_later() -> None:
    for (name,), (wrong, centred, alike, half, apart, less) in figures("suite").items():
        assert max(wrong, centred) <= 5 + 3 * (0.05 * 0.95 / deciding.STUDIES["suite"]) ** 0.5 * 100
        assert half <= alike
        assert less <= apart * (0.72 if "90 points" in name else 1.0)


def test_answers_about_a_suite_played_once_are_seldom_wrong_before_its_end() -> None:
    most = 5 + 3 * (0.05 * 0.95 / deciding.STUDIES["once"]) ** 0.5 * 100
    shown = figures("once")
    assert len(shown) >= 12
    for (name,), (alike, apart, right, _, half, early) in shown.items():
        assert max(alike, apart) <= most
        assert right > 99
        assert half < 200
        assert early > 95
        if name == "yes or no at 94 %":
            quick = deciding.once_row(next(shape for shape in SHAPES if shape.name == name), 60)
            assert float(quick[5]) == pytest.approx(half, rel=0.15)
    for such, before, took, forecast, wrong in figures("sizes").values():
        assert such <= before
        assert forecast == pytest.approx(took, rel=0.1, abs=2)
        assert wrong <= most


def test_suites_are_moved_to_just_the_mean_that_is_hard() -> None:
    draws = deciding.generator("exactly")
    for values in (draws.normal(0.1, 0.4, (20, 50)).clip(-1, 1), draws.choice([-1.0, 0.0, 1.0], size=(20, 50))):
        for mean in (0.0, deciding.MARGIN):
            moved = deciding.exactly(values, mean, draws)
            assert moved.mean(axis=1) == pytest.approx(mean, abs=1e-9)
            assert np.abs(moved).max() <= 1


def test_bets_that_learn_gain_with_graded_scores_and_lose_with_answers() -> None:
    shown = {name: found[-2:] for (name,), found in figures("bets").items()}
    fixed, learnt = shown["graded, pairs vary by 13 points"]
    assert learnt < 0.9 * fixed
    fixed, learnt = shown["yes or no at 80 %"]
    assert learnt > 1.01 * fixed
