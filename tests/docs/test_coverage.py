"""The tables of docs/statistics-methods.md are what their command makes: each cell is tried again, with few studies."""

from typing import Any

import pytest

from docs.tools import coverage
from docs.tools.simulated import TABLES

QUICK = {"widths": 4, "looking": 30, "alike": 40}
"""Studies a cell where one takes long; 60 elsewhere."""

ERRORS = 4.5
"""Standard errors that a quick figure may be off. 5 % more for figures of few studies, whose spread is rough itself."""


@pytest.fixture(scope="module")
def page() -> dict[str, coverage.Committed]:
    return coverage.committed(coverage.PAGE.read_text(encoding="utf-8"))


def test_the_page_has_every_table_with_as_many_studies_as_its_command_makes(page: dict[str, Any]) -> None:
    assert {name: table.studies for name, table in page.items()} == {
        name: table.studies for name, table in TABLES.items()
    }
    for name, table in page.items():
        assert list(table.cells) == [(row, column) for row in TABLES[name].rows for column in TABLES[name].columns]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("name", TABLES)
def test_a_quick_try_agrees_with_the_table(name: str, page: dict[str, Any]) -> None:
    table, quick = page[name], QUICK.get(name, 60)
    for (row, column), shown in table.cells.items():
        figures = coverage.simulate(name, row, column, quick)
        text = TABLES[name].shown(figures)
        # The same figures, through the same form: what is compared is what a reader sees.
        got = coverage.numbers(text)
        assert len(got) == len(shown)
        for mine, theirs, error in zip(
            got, shown, coverage.errors(name, figures, shown, quick, table.studies), strict=True
        ):
            assert abs(mine - theirs) <= ERRORS * error + 0.051, (row, column, text, shown)


def test_a_cell_draws_the_same_whatever_was_drawn_before_it() -> None:
    one = coverage.simulate("exchangeable", "equal: 95 % gain 2 points, 5 % lose 38", "6 pairs", 20)
    coverage.simulate("exchangeable", "equal: 95 % gain 2 points, 5 % lose 38", "12 pairs", 5)
    assert coverage.simulate("exchangeable", "equal: 95 % gain 2 points, 5 % lose 38", "6 pairs", 20) == one


def test_a_table_goes_to_its_own_place_and_nowhere_else() -> None:
    before = (
        'a\n\n[//]: # "coverage: x, 3 studies"\n\n| old |\n|---|\n\nb\n\n[//]: # "coverage: y, 3 studies"\n\n| y |\n'
    )
    after = coverage.placed(before, "x", '[//]: # "coverage: x, 9 studies"\n\n| new |\n|---|\n')
    assert after == before.replace("x, 3", "x, 9").replace("old", "new")
    with pytest.raises(ValueError, match="0 places"):
        coverage.placed(before, "z", "")
