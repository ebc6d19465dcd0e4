from pathlib import Path

import pytest

from evalkit.report.views import open_views
from evalkit.view import listing as module
from evalkit.view.listing import Wanted, listing, read_wanted
from evalkit.view.reading import Reading


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(),
        Wanted(agent="noisy"),
        Wanted(agent="hostile", suite="costbench/basic"),
        Wanted(ending="answered"),
        Wanted(ending="owed"),
        Wanted(instance="seed-0"),
        Wanted(instance="'; drop view episodes; --"),
        Wanted(least=100.0),
        Wanted(least=-50.0, most=99.5, order="score"),
        Wanted(order="-steps"),
    ],
)
def test_a_page_is_what_its_query_gives(run: Path, reading: Reading, wanted: Wanted) -> None:
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
    page = listing(cells, Wanted(), str(run), "/run/shown")
    while True:
        assert page.last - page.first + 1 == len(page.grid.rows) <= 10
        seen += [row.cells[0].href for row in page.grid.rows]
        if not page.after:
            break
        number = int(page.after.rpartition("page=")[2])
        page = listing(cells, Wanted(page=number), str(run), "/run/shown")
    assert len(seen) == len(set(seen)) == page.found == reading.report.ended
    assert listing(cells, Wanted(page=10**6), str(run), "/run/shown").last == page.found


def test_an_address_keeps_what_was_asked_for(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_PAGE", 2)
    asked = {"agent": "oracle", "least": "99", "order": "-cost", "page": "1"}
    page = listing(reading.report.cells, read_wanted(asked), str(run), "/run/shown")
    assert page.after == "/run/shown/episodes?agent=oracle&least=99.0&order=-cost&page=2"
