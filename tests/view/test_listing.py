import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from evalkit.report.views import open_views
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult
from evalkit.view import listing as module
from evalkit.view.listing import ListingQuery, around, listing, read_wanted
from evalkit.view.overview import run_address
from evalkit.view.reading import Reading
from evalkit.view.render import PageLink, episode_address, episode_at, place_of, titled
from evalkit.view.run_cache import RunCache
from tests.view.conftest import ask


@pytest.mark.exhaustive(but=8)
@pytest.mark.parametrize(
    "wanted",
    [
        ListingQuery(),
        ListingQuery(agent="noisy"),
        ListingQuery(agent="hostile", suite="costbench/basic"),
        ListingQuery(ending="answered"),
        ListingQuery(ending="remaining"),
        ListingQuery(instance="seed-0"),
        ListingQuery(instance="'; drop view episodes; --"),
        ListingQuery(least=100.0),
        ListingQuery(least=-50.0, most=99.5, order="score"),
        *(ListingQuery(order=order) for order in module.ORDERS),
    ],
)
def test_a_page_is_what_its_query_gives(run: Path, reading: Reading, wanted: ListingQuery) -> None:
    page = listing(reading.report.cells, wanted, str(run), "/run/shown")
    given = open_views(run).sql(page.grid.query).to_pylist()
    shown = list(csv.DictReader(io.StringIO(unquote(page.grid.csv.partition(",")[2]))))
    assert len(shown) == len(page.grid.rows) == len(given)
    if page.paging.found <= module.PER_PAGE:
        assert sorted(row["episode"] for row in shown) == sorted(row["episode"] for row in given)
    if wanted.order:
        key = wanted.order.removeprefix("-")
        expected = [row[key] or ("remaining" if key == "ending" else row[key]) for row in given]
        assert [
            row[key] if isinstance(one, str) else float(row[key]) for row, one in zip(shown, expected, strict=True)
        ] == expected


def test_pages_hold_each_episode_once(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_PAGE", 10)
    cells, seen = reading.report.cells, list[str]()
    page = listing(cells, ListingQuery(), str(run), "/run/shown")
    while True:
        assert page.paging.last - page.paging.first + 1 == len(page.grid.rows) <= 10
        seen += [row.cells[0].href for row in page.grid.rows]
        if not page.paging.after:
            break
        number = int(page.paging.after.rpartition("page=")[2])
        page = listing(cells, ListingQuery(page=number), str(run), "/run/shown")
    assert len(seen) == len(set(seen)) == page.paging.found == reading.report.ended
    assert listing(cells, ListingQuery(page=10**6), str(run), "/run/shown").paging.last == page.paging.found


def test_an_address_keeps_what_was_asked_for(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_PAGE", 2)
    asked = {"agent": "oracle", "least": "99", "order": "-cost", "page": "1"}
    page = listing(reading.report.cells, read_wanted(asked), str(run), "/run/shown")
    assert page.paging.after == "/run/shown/episodes?agent=oracle&least=99.0&order=-cost&page=2"


def test_every_head_leads_to_its_order_and_says_which_one_is_shown(run: Path, reading: Reading) -> None:
    first, second = ask(
        RunCache([run]), "/run/shown/episodes?suite=costbench%2Fbasic&order=-score", "/run/shown/episodes"
    )
    heads = re.findall(r'<th scope="col"[^>]*>(?:<a class="sort" href="([^"]*)">)?([^<]*)', first.text)
    assert [title for _, title in heads] == [column.title for column in module.COLUMNS]
    for (href, _), column in zip(heads, module.COLUMNS, strict=True):
        assert "suite=costbench%2Fbasic" in href
        assert f"order={column.key}" in href or f"order=-{column.key}" in href
    assert re.findall(r'aria-sort="([a-z]+)"', first.text) == ["descending"]
    assert "aria-sort" not in second.text


def test_a_link_names_its_episode_and_remembers_the_list(run: Path, reading: Reading) -> None:
    wanted = ListingQuery(agent="noisy", suite="costbench/basic", order="-cost")
    page = listing(reading.report.cells, wanted, str(run), "/run/shown")
    cell = page.grid.rows[0].cells[0]
    assert cell.text.startswith("noisy on ")
    assert cell.href.startswith("/run/shown/episode/noisy:costbench/basic:")
    assert cell.href.endswith("?agent=noisy&suite=costbench%2Fbasic&order=-cost")
    everything = listing(reading.report.cells, ListingQuery(), str(run), "/run/shown")
    assert all(row.cells[0].href.endswith("?in=all") for row in everything.grid.rows)


def followed(cells: Sequence[Cell], link: PageLink | None) -> EpisodeResult | None:
    if link is None:
        return None
    return episode_at(cells, unquote(link.href.partition("?")[0].partition("/episode/")[2]))


@pytest.mark.parametrize("query", [{"agent": "noisy", "order": "-cost"}, {"in": "all"}, {}])
def test_an_episode_leads_to_its_neighbours_in_the_list_that_led_to_it(
    run: Path, reading: Reading, query: dict[str, str]
) -> None:
    cells = reading.report.cells
    cell = next(cell for cell in cells if (cell.agent, cell.suite.name) == ("noisy", "costbench/basic"))
    first = place = cell.episodes[0]
    while before := followed(cells, around(cells, place, "/run/shown", query).before):
        first = place = before
    order, after = [place_of(first)], followed(cells, around(cells, first, "/run/shown", query).after)
    while after:
        order.append(place_of(after))
        found = around(cells, after, "/run/shown", query)
        assert found.where.startswith(f"{len(order):,} of ")
        after = followed(cells, found.after)
    wanted = read_wanted(query) if query else ListingQuery(agent="noisy", suite="costbench/basic")
    page = listing(cells, wanted, str(run), "/run/shown")
    assert len(order) == page.paging.found
    shown = [unquote(row.cells[0].href.partition("?")[0].partition("/episode/")[2]) for row in page.grid.rows]
    assert order[: len(shown)] == shown


def test_an_episode_is_found_by_its_place_and_by_its_id(run: Path, reading: Reading) -> None:
    episode = reading.report.cells[-1].episodes[0]
    prefix = run_address("shown")
    _, by_place, by_id, period = ask(
        RunCache([run]),
        f"{prefix}/episodes",  # what lies around an episode is known when the run has been read
        episode_address(prefix, episode),
        f"{prefix}/episode/{episode.id}",
        f"{episode_address(prefix, episode)}/period/0",
    )
    assert (by_place.status, by_id.status, period.status) == (200, 200, 200)
    assert by_place.text == by_id.text
    assert f"<h1>{titled(episode)}" in by_place.text
