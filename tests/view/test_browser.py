"""The pages in a real browser, against a server in a process of its own."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.view.offline import write_page
from evalkit.view.reading import Reading
from tests.support.command_line import finish, interrupt, start
from tests.support.patience import PATIENCE_S
from tests.view.browser import chromium, tab, viewing

SWEEP = """
replicates = 20
width = 4
budget_usd = "50"
[[agents]]
name = "knuth"
provider = "simulated"
model = "knuth"
[[agents]]
name = "random"
provider = "simulated"
model = "random"
[[suites]]
name = "scheduling/basic"
vary = { periods = [3] }
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url(run: Path) -> Iterator[str]:
    with viewing(run.parent.parent) as address:
        yield address


def test_the_overview_opens_with_a_leaderboard_that_sorts(browser: Any, url: str) -> None:
    with tab(browser, url) as opened:
        page = opened.page
        page.get_by_role("link", name="shown").click()
        rows = page.locator("#leaderboard tbody tr")
        rows.first.wait_for()
        assert rows.locator("th").all_inner_texts() == ["oracle", "noisy", "hostile"]
        assert page.locator("#leaderboard svg.range").count() > 0
        page.locator("#leaderboard th", has_text="Agent").get_by_role("button").click()
        assert rows.locator("th").all_inner_texts() == ["hostile", "noisy", "oracle"]
        page.locator("#leaderboard .query summary").click()
        assert "from" in page.locator("#leaderboard .query pre").inner_text()
        opened.clean()


@pytest.mark.exhaustive
def test_a_table_sorts_and_filters_in_the_browser(browser: Any, url: str, reading: Reading) -> None:
    with tab(browser, f"{url}/run/shown/") as opened:
        page = opened.page
        page.get_by_role("link", name="Tables").click()
        page.wait_for_selector("#scores")
        assert page.locator("#scores tbody tr").count() == len(reading.report.table("scores").rows)
        column = page.locator("#scores tbody tr td:nth-child(4)")
        page.locator("#scores th", has_text="Score").get_by_role("button").click()
        shown = [float(text) for text in column.all_inner_texts() if text != "–"]
        assert shown == sorted(shown, reverse=True)
        page.locator("#scores input").fill("hostile costbench")
        assert page.locator("#scores tbody tr:visible").count() == 1
        assert page.locator("#scores .found").inner_text().startswith("1 of ")
        page.locator("#scores .query summary").click()
        assert "from" in page.locator("#scores .query pre").inner_text()
        opened.clean()


@pytest.mark.exhaustive
def test_a_part_of_a_table_is_filtered_by_the_server_while_words_are_written(browser: Any, url: str) -> None:
    from playwright.sync_api import expect

    with tab(browser, f"{url}/run/shown/table/scores?contains=hostile") as opened:
        page = opened.page
        rows = page.locator("#found tbody tr")
        expect(rows).to_have_count(4)  # the first to look at this run waits while it is read
        page.locator("input[name=contains]").fill("hostile costbench")
        expect(rows).to_have_count(1)
        page.wait_for_url("**/table/scores?contains=hostile+costbench")
        page.locator("input[name=contains]").fill("")
        expect(rows).to_have_count(12)
        page.locator("#found th", has_text="Score").first.click()
        opened.clean()


@pytest.mark.exhaustive
def test_every_figure_is_fetched_and_drawn_when_it_scrolls_near(browser: Any, url: str, reading: Reading) -> None:
    with tab(browser, f"{url}/run/shown/figures") as opened:
        page = opened.page
        page.locator("#figures figure").first.wait_for()
        for figure in reading.figures:
            here = page.locator(f"#figure-{figure.name}")
            # At once: a figure that is fetched takes the place of the element that stood for it.
            here.evaluate("element => element.scrollIntoView()")
            here.locator(".plot svg").first.wait_for()
        assert page.locator(".plot[data-drawn=yes]").count() == len(reading.figures)
        opened.clean()


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("environment", ["scheduling", "procurement", "pricing", "costbench"])
def test_a_trajectory_with_markup_in_it_is_text(browser: Any, url: str, reading: Reading, environment: str) -> None:
    cells = reading.report.cells
    episode = next(
        one for cell in cells for one in cell.episodes if (one.agent, one.environment) == ("hostile", environment)
    )
    with tab(browser, f"{url}/run/shown/episode/{episode.id}") as opened:
        page = opened.page
        page.locator("#conversation").wait_for()
        assert page.locator("#conversation img, #conversation script, #conversation i, #conversation b").count() == 0
        said = page.locator("#conversation .said").first.text_content()
        assert said is not None
        assert "<script>window.hacked = 1</script>" in said
        assert "\\u202egnp.exe" in said
        opened.clean()


@pytest.mark.exhaustive
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_a_telephone(browser: Any, url: str, reading: Reading, dark: bool) -> None:
    episode = reading.report.cells[0].episodes[0].id
    paths = [
        "/",
        "/run/shown/",
        "/run/shown/tables",
        "/run/shown/figures",
        "/run/shown/episodes",
        "/run/shown/live",
        f"/run/shown/episode/{episode}",
    ]
    paths += ["/compare?first_agent=oracle&second_agent=noisy"]
    with tab(browser, url, width=400, dark=dark) as opened:
        for path in paths:
            opened.page.goto(url + path)
            # A page that asks again while the run is read would break off the way to the next one.
            opened.page.wait_for_function("!document.querySelector('meta[http-equiv=refresh]')")
            assert opened.overflow() <= 0, path
            paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") == (not dark)
        opened.clean()


@pytest.mark.exhaustive
def test_all_is_reached_by_keyboard(browser: Any, url: str) -> None:
    with tab(browser, f"{url}/run/shown/episodes") as opened:
        page = opened.page
        page.locator("#found").wait_for()  # the page is asked for again until the run has been read
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.name || document.activeElement.className"))
            if page.evaluate("document.activeElement.matches('td a')"):
                break
        assert {"agent", "suite", "ending", "instance", "least", "most", "order", "sort"} <= reached
        page.keyboard.press("Enter")
        page.wait_for_url("**/episode/**")
        page.locator("#conversation").wait_for()
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.classList.contains('turn')")
        opened.clean()


@pytest.mark.exhaustive
def test_episodes_are_filtered_while_a_word_is_typed_and_sorted_by_any_head(browser: Any, url: str) -> None:
    with tab(browser, f"{url}/run/shown/episodes") as opened:
        page = opened.page
        places = page.evaluate("history.length")
        field = page.locator("input[name=instance]")
        field.press_sequentially("seed-3")
        page.wait_for_function("() => location.search === '?instance=seed-3'")
        page.wait_for_function("() => !document.querySelector('#found[aria-busy]')")
        assert set(page.locator("#found tbody td:nth-child(3)").all_inner_texts()) == {"seed-3"}
        assert page.evaluate("document.activeElement.name") == "instance"
        page.locator("select[name=agent]").select_option("noisy")
        page.wait_for_function("() => location.search.includes('agent=noisy')")
        page.wait_for_function("() => document.querySelectorAll('#found tbody tr').length === 1")
        assert page.evaluate("history.length") == places  # what is typed leaves no places to go back to
        page.goto(f"{url}/run/shown/episodes")
        for title, direction in (("Score", "descending"), ("Score", "ascending"), ("Instance", "ascending")):
            page.locator("#found th a", has_text=title).click()
            page.locator(f"#found th[aria-sort={direction}]", has_text=title).wait_for()
        opened.clean()


@pytest.mark.exhaustive
def test_a_telephone_reads_each_value_with_its_columns_name(browser: Any, url: str) -> None:
    with tab(browser, f"{url}/run/shown/episodes", width=400) as opened:
        page = opened.page
        row = page.locator("#found tbody tr").first
        row.wait_for()
        assert opened.overflow() <= 0
        labels = row.locator("td").evaluate_all(
            "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"
        )
        titles = page.locator("#found th").all_inner_texts()
        assert [label.strip('"') for label in labels[1:]] == titles[1:]
        opened.clean()


LABELLED = """() => {
  const cells = [...document.querySelectorAll("#live-lanes tr:first-child td")].slice(1, 3);
  return cells.map(cell => getComputedStyle(cell, "::before").content).join() === '"Progress","Ended"';
}"""
"""On a telephone each cell says its column's name."""


@pytest.mark.exhaustive
def test_a_running_sweep_is_seen_to_move(browser: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    (tmp_path / "providers").mkdir()
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("[[suites]]", f"{GONE}[[suites]]"))
    (tmp_path / "providers" / "simulated.toml").write_text(PROVIDER)
    (tmp_path / "providers" / "gone.toml").write_text(re.sub(r"\[simulate\]\n.*", NOWHERE, PROVIDER))
    process = start(tmp_path, "run", "sweep.toml", "--name", "going")
    try:
        until = time.monotonic() + PATIENCE_S
        while not (tmp_path / "runs" / "going" / "live.json").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        with viewing(tmp_path) as url, tab(browser, f"{url}/run/going/live", width=400) as opened:
            page = opened.page
            page.locator("#live-lanes tr").first.wait_for()
            assert page.locator("#live-lanes tr").count() == 3
            assert page.locator("#live-cells tr").count() == 3
            steps = page.locator("#live-facts dd").last
            expect(steps).not_to_have_text(steps.inner_text(), timeout=PATIENCE_S * 1000)
            expect(page.locator("#live-troubles")).to_contain_text("gone/m: nothing listens at http://127.0.0.1:9")
            page.wait_for_function(LABELLED)  # rows are put in anew at each look
            assert page.locator("#live-state").inner_text() == "running"
            assert "simulated/knuth" in page.locator("#live-lanes").inner_text()
            assert opened.overflow() <= 0
            page.goto(url)
            assert "running" in page.locator("tbody").inner_text()
            page.goto(f"{url}/run/going/live")
            page.locator("#live-lanes tr").first.wait_for()
            interrupt(process)
            said = finish(process)
            assert said.code == 130, said.err
            expect(page.locator("#live-state")).to_have_text("not running", timeout=PATIENCE_S * 1000)
            assert not (tmp_path / "runs" / "going" / "live.json").exists()
            opened.clean()
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


GONE = """[[agents]]
name = "gone"
provider = "gone"
model = "m"
"""
NOWHERE = 'url = "http://127.0.0.1:9/v1"\n'
"""The port of a service that no machine runs."""
PROVIDER = """
dialect = "openai_chat"
[simulate]
latency = "lognormal:60ms:0.3"
[usd_per_mtok]
input = "1"
output = "4"
source = "made up, 2026-11-21"
"""


DRAWN = """() => {
  document.querySelector("#figures figure")?.scrollIntoView();
  return document.querySelector(".plot svg") !== null;
}"""
"""Charts are drawn when they come near."""


def test_the_page_in_one_file_opens_offline_with_trajectories(browser: Any, run: Path, tmp_path: Path) -> None:
    size, held = write_page(run, tmp_path / "run.html")
    assert held >= 10
    assert size < 2_000_000
    with tab(browser, f"file://{tmp_path}/run.html") as opened:
        page = opened.page
        page.wait_for_function(DRAWN)  # tabs are put in while the page begins
        link = page.locator("#trajectories td a").first
        link.click()
        shown = page.locator("#trajectory")
        shown.locator("#conversation").wait_for()
        assert "<script>window.hacked = 1</script>" in shown.inner_text()
        assert shown.locator("img, script:not([type='application/json'])").count() == 0
        page.locator("#trajectories td a", has_text=re.compile("^[0-9a-f]{10}$")).nth(held - 1).click()
        shown.locator("#conversation").wait_for()
        assert opened.page.evaluate("performance.getEntriesByType('resource').length") == 0
        opened.clean()
