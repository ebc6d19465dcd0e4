"""The pages of a run that asks something: its answers with drawn intervals, also while it plays."""

from pathlib import Path

import pytest

from evalkit.engine import question
from evalkit.view.overview import overview
from evalkit.view.reading import read_run
from tests.support.question_runs import asking, many
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go
from tests.view.browser import chromium, tab, viewing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(question, "BETWEEN_LOOKS", 0.0)  # else it is over before it has looked twice
        assert go(asking(folder, many(folder / "many.jsonl")), folder / "runs" / "asked").reason == "decided"
    return folder


def test_the_overview_has_the_answers_and_is_no_partial_run(folder: Path) -> None:
    page = overview(read_run(folder / "runs" / "asked"), "asked")
    assert page.word == "decided"
    assert any(line.startswith("Every question is answered, so ") for line in page.warnings)
    assert page.answers is not None
    spans = [cell.range for row in page.answers.rows for cell in row.cells if cell.range is not None]
    assert len(spans) == 3
    for span in spans:
        assert span.equal is not None
        assert span.zero is not None
        # What counts as equal lies around 0, on one scale for all.
        assert span.equal[0] < span.zero < span.equal[1]
        assert span.zero - span.equal[0] == pytest.approx(span.equal[1] - span.zero, abs=0.02)
    assert len({span.equal for span in spans}) == 1


def test_a_run_without_a_question_has_no_such_part(tmp_path: Path) -> None:
    go(resolved(tmp_path), tmp_path / "run")
    assert overview(read_run(tmp_path / "run"), "run").answers is None


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (400, True)])
def test_the_pages_say_nothing_on_the_console(folder: Path, width: int, dark: bool) -> None:
    with (
        chromium() as browser,
        viewing(folder, "asked") as url,
        tab(browser, f"{url}/run/asked/", width=width, dark=dark) as opened,
    ):
        opened.page.wait_for_selector("#answers svg.range rect.equal")
        assert opened.page.locator("#answers tbody tr").count() == 3
        assert opened.overflow() <= 0
        opened.clean()
        opened.page.goto(f"{url}/run/asked/live")
        opened.page.locator("#live-note", has_text="UTC: decided").wait_for()
        assert opened.page.locator("#live-over").is_visible()
        opened.clean()
