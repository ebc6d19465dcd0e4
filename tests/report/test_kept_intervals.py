"""Intervals that a report keeps in `derived/`: drawn once, again after every change, and never needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalkit.envs import table
from evalkit.report import kept_intervals
from evalkit.report.report import report
from evalkit.results.derived import FOLDER
from evalkit.stats import intervals
from evalkit.stats.bootstrap import Interval
from evalkit.store.manifests import write_manifest
from tests.support.guessing_game import guess
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows
from tests.support.run_directories import write_tails

SECRETS = [1 + place % 7 for place in range(intervals.ENOUGH_TO_RESAMPLE + 1)]
MANIFEST = a_manifest([an_agent("a")], [a_suite("s", SECRETS)])
LOG = [rows(MANIFEST, "a", "s", f"i{i}", 0, [guess(8), guess(9), guess(i % 5)]) for i in range(len(SECRETS))]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    monkeypatch.setattr(kept_intervals, "LEAST_INSTANCES", 3)
    write_manifest(tmp_path, MANIFEST)
    return tmp_path


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The places of the draws, in order."""
    places: list[Sequence[str]] = []
    plain = intervals.bootstrap_t

    def bootstrap_t(groups: Sequence[Any], place: Sequence[str]) -> Interval | None:
        places.append(place)
        return plain(groups, place)

    monkeypatch.setattr(intervals, "bootstrap_t", bootstrap_t)
    return places


def tables(run: Path) -> object:
    return report(run).to_json()["tables"]


def test_the_second_report_draws_nothing_and_says_the_same(run: Path, drawn: list[Sequence[str]]) -> None:
    write_tails(run, LOG)
    first = tables(run)
    assert drawn == [("s", "a")]
    assert tables(run) == first
    assert drawn == [("s", "a")]


def test_only_complete_cells_are_kept(run: Path, drawn: list[Sequence[str]]) -> None:
    write_tails(run, LOG[:-1])
    report(run)
    assert not (run / FOLDER / kept_intervals.FILE).exists()
    write_tails(run, LOG[-1:])
    drawn.clear()
    report(run)
    assert len(drawn) == 1
    assert (run / FOLDER / kept_intervals.FILE).exists()


def test_other_scores_are_drawn_anew(run: Path, drawn: list[Sequence[str]]) -> None:
    write_tails(run, LOG)
    before = tables(run)
    write_tails(run, [rows(MANIFEST, "a", "s", "i0", 0, [guess(8), guess(9), guess(1)], take=1)])
    assert tables(run) != before
    assert len(drawn) == 2


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"x": [1]}'])
def test_a_damaged_file_is_ignored_and_replaced(run: Path, drawn: list[Sequence[str]], damage: bytes) -> None:
    write_tails(run, LOG)
    first = tables(run)
    file = run / FOLDER / kept_intervals.FILE
    whole = file.read_bytes()
    file.write_bytes(damage)
    assert tables(run) == first
    assert len(drawn) == 2
    assert file.read_bytes() == whole


@pytest.mark.exhaustive
def test_other_code_draws_anew(run: Path, drawn: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    write_tails(run, LOG)
    report(run)
    monkeypatch.setattr(kept_intervals, "__version__", "another")
    report(run)
    assert len(drawn) == 2
    assert len(orjson.loads((run / FOLDER / kept_intervals.FILE).read_bytes())) == 1
