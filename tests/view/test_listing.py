from pathlib import Path

import pytest

from evalkit.report.views import open_views
from evalkit.view import listing as module
from evalkit.view.listing import ListingQuery, listing, read_wanted
from evalkit.view.reading import Reading


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
        ListingQuery(order="-steps"),
    ],
)
def test_a_page_is_what_its_query_gives(run: Path, reading: Reading, wanted: ListingQuery) -> None:
    page = listing(reading.report.cells, wanted, str(run), "/run/shown")
    given = open_views(run).sql(page.grid.query).to_pylist()
    shown = [row.cells[0].text for row in page.grid.rows]
    assert len(shown) == len(given)
    if page.found <= module.PER_PAGE:
        assert sorted(shown) == sorted(row["episode"][:10] for row in given)
    if wanted.order:
        key = wanted.order.removeprefix("-")
        place = [head.title.lower() for head in page.grid.heads].index(key)
        numbers = [float(row.cells[place].sort or "nan") for row in page.grid.rows]
        assert numbers == [row[key] for row in given]


def test_pages_hold_each_episode_once(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_PAGE", 10)
    cells, seen = reading.report.cells, list[str]()
    page = listing(cells, ListingQuery(), str(run), "/run/shown")
    while True:
        assert page.last - page.first + 1 == len(page.grid.rows) <= 10
        seen += [row.cells[0].href for row in page.grid.rows]
        if not page.after:
            break
        number = int(page.after.rpartition("page=")[2])
        page = listing(cells, ListingQuery(page=number), str(run), "/run/shown")
    assert len(seen) == len(set(seen)) == page.found == reading.report.ended
    assert listing(cells, ListingQuery(page=10**6), str(run), "/run/shown").last == page.found


def test_an_address_keeps_what_was_asked_for(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_PAGE", 2)
    asked = {"agent": "oracle", "least": "99", "order": "-cost", "page": "1"}
    page = listing(reading.report.cells, read_wanted(asked), str(run), "/run/shown")
    assert page.after == "/run/shown/episodes?agent=oracle&least=99.0&order=-cost&page=2"
