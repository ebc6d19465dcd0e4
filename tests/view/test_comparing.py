"""What is compared when nothing is chosen, several runs at once, and the list of runs from which they are chosen."""

import html
import re
import shutil
from pathlib import Path

import pytest

from evalkit.errors import UsageError
from evalkit.report.tables import Column, Table
from evalkit.view.comparing import ComparedAgents, comparing, read_compared
from evalkit.view.grid import RANGE_WIDTH, grid
from evalkit.view.home import home
from evalkit.view.reading import Reading
from evalkit.view.run_cache import RunCache
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go
from tests.view.browser import chromium, tab
from tests.view.conftest import ask
from tests.view.test_episode_browser import served

OTHER = """
[[agents]]
policy = "replanner"
[[suites]]
name = "costbench/basic"
instances = ["dining-0004"]
"""


@pytest.fixture(scope="module")
def runs(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Newest first: one that has nothing in common with the others, then two that are alike."""
    folder = tmp_path_factory.mktemp("several")
    go(resolved(folder, OTHER, "other"), folder / "other")
    shutil.copytree(run, folder / "again")
    return {"other": folder / "other", "again": folder / "again", "shown": run}


def test_two_different_things_are_compared_by_default(runs: dict[str, Path], reading: Reading) -> None:
    assert read_compared({}, runs) == ComparedAgents(first="shown", second="again")
    assert read_compared({"first": ["other"]}, runs) == ComparedAgents(first="other", second="other")
    assert read_compared({"first": ["again"]}, runs).runs == ("shown", "again")
    assert read_compared({"run": ["shown", "other"]}, runs) == ComparedAgents(first="shown", second="other")
    alone = read_compared({}, {"shown": runs["shown"]})
    page = comparing(alone, [[reading]], ["shown"])
    assert page.text == ""
    assert page.asked.first_agent != page.asked.second_agent
    scores = {row["agent"]: row["score"] for row in reading.report.table("scores").rows if row["suite"].startswith("s")}
    assert {page.asked.first_agent, page.asked.second_agent} == set(sorted(scores, key=lambda name: -scores[name])[:2])


@pytest.mark.exhaustive
def test_several_runs_have_a_column_each_and_only_two_are_paired(runs: dict[str, Path]) -> None:
    three, two, none = ask(
        RunCache(list(runs.values())),
        "/compare?run=shown&run=again&run=other",
        "/compare?run=shown&run=again",
        "/compare?run=shown&run=nothing",
    )
    heads = [html.unescape(head) for head in re.findall(r'class="sort">([^<]*)<', three.text)]
    assert heads == [
        "Suite",
        "Agent",
        *(word for name in ("shown", "again", "other") for word in (name, "95 % interval")),
    ]
    assert "p Holm" not in three.text
    assert 'id="runs"' in two.text
    assert "p Holm" in two.text
    assert none.status == 400
    assert "There is no run" in none.text
    with pytest.raises(UsageError, match="at most"):
        read_compared({"run": [f"r{i}" for i in range(13)]}, {f"r{i}": Path() for i in range(13)})


def test_each_measure_has_a_scale_of_its_own() -> None:
    columns = (
        Column(key="measure", title="Measure"),
        Column(key="difference", title="B - A", kind="score"),
        Column(key="interval", title="95 % interval", kind="interval"),
    )
    rows = (
        {"measure": "a", "difference": 1.0, "interval": (-2.0, 4.0)},
        {"measure": "b", "difference": 100.0, "interval": (-200.0, 400.0)},
        {"measure": "b", "difference": 0.0, "interval": (-20.0, 20.0)},
    )
    drawn = grid(Table(name="t", title="T", columns=columns, rows=rows, packs=()), "run", apart="measure")
    first, second, third = (row.cells[2].range for row in drawn.rows)
    assert first
    assert second
    assert third
    assert (first.low, first.high, first.point) == (second.low, second.high, second.point)
    assert first.zero == third.point == RANGE_WIDTH / 2


def test_runs_say_name_state_and_scores_first(runs: dict[str, Path]) -> None:
    assert [head.title for head in home(RunCache(list(runs.values()))).grid.heads][:3] == ["Run", "State", "Scores"]


@pytest.mark.exhaustive
def test_runs_are_chosen_on_a_telephone_and_compared(run: Path) -> None:
    with chromium() as browser, served(run, run) as url, tab(browser, url, width=400) as opened:
        page = opened.page
        page.locator("td[data-label=Scores]:has-text('oracle')").nth(1).wait_for()
        for box in page.locator("input[name=run]").all():
            box.check()
        assert opened.overflow() <= 0
        page.get_by_role("button", name="Compare the chosen runs").click()
        page.wait_for_url("**/compare?run=shown&run=shown-2")
        page.locator("#compare").wait_for()
        assert opened.overflow() <= 0
        opened.clean()


@pytest.mark.exhaustive
def test_the_first_table_is_not_wider_than_its_page(run: Path) -> None:
    with (
        chromium() as browser,
        served(run) as url,
        tab(browser, f"{url}/compare?first_agent=oracle&second_agent=noisy", width=1400) as opened,
    ):
        first = opened.page.locator(".scroll:has(> table)").first
        first.wait_for()
        assert opened.overflow() <= 0
        assert first.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        opened.clean()


@pytest.mark.exhaustive
def test_a_telephone_shows_by_how_much_the_best_is_ahead_before_all_else(run: Path) -> None:
    with chromium() as browser, served(run) as url, tab(browser, f"{url}/compare", width=390) as opened:
        page = opened.page
        page.locator("#compare").wait_for()
        assert page.locator("select[name=second_agent]").input_value() == "oracle"
        assert "mean over suites B - A" in page.locator("main").inner_text()
        card = page.locator("#compare tbody tr").first
        difference, first, measure = (
            card.locator(f'td[data-label="{label}"]').bounding_box() for label in ("B - A", "A", "Measure")
        )
        assert difference is not None
        assert first is not None
        assert measure is not None
        assert 0 <= difference["x"] < difference["x"] + difference["width"] <= 390
        assert measure["y"] <= difference["y"] < first["y"]
        assert difference["y"] < 844  # of a telephone's first screen
        assert opened.overflow() == 0
        opened.clean()
