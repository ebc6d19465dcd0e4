"""From a run directory's files to what `report` and `show` say."""

from pathlib import Path

import pytest

from evalkit.envs import table
from evalkit.errors import RunError
from evalkit.frozen.manifests import write_manifest
from evalkit.money import PicoUsd
from evalkit.report.report import report
from evalkit.results.show import show
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.reader import scan
from tests.support.guessing_game import guess
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search
from tests.support.run_directories import write_tails

MANIFEST = a_manifest([an_agent("a")], [a_suite("s", [4, 5, 6])], 1)
FIRST = rows(MANIFEST, "a", "s", "i0", 0, [guess(1), guess(1), guess(2)])
AGAIN = rows(MANIFEST, "a", "s", "i0", 0, search(4), take=1)
OTHERS = [row for i in (1, 2) for row in rows(MANIFEST, "a", "s", f"i{i}", 0, search(4 + i))]
LEDGER = [LedgerRecord(kind="charge", session="x", amount=PicoUsd(10**9), agent="a")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    return write_tails(tmp_path, [FIRST, OTHERS, AGAIN], LEDGER)


def test_one_episode_is_read_as_among_all(run: Path) -> None:
    columns = ("episode", "step", "take", "facts", "ending", "cost")
    everything = scan(run, columns).to_pylist()
    for episode in {row["episode"] for row in everything}:
        assert scan(run, columns, episode).to_pylist() == [row for row in everything if row["episode"] == episode]
    assert scan(run, columns, "nothing").num_rows == 0


def test_a_report_counts_the_latest_take_and_pays_for_all(run: Path) -> None:
    found = report(run)
    assert (found.ended, found.planned) == (3, 3)
    (scores,) = found.table("scores").rows
    assert (scores["score"], scores["solved"], scores["episodes"]) == (100.0, 100.0, 3)
    money = found.table("money")
    assert money.rows[0]["cost_pico_usd"] == (3 + 6 + 3) * 720_000_000
    assert money.rows[0]["requests"] == 9
    assert money.rows[0]["charged_pico_usd"] == 10**9
    assert any("played again" in note for note in money.notes)


@pytest.mark.parametrize("wanted", ["a:s:i0:0", AGAIN[0].episode, AGAIN[0].episode[:10]])
def test_an_episode_is_shown_in_its_latest_take(run: Path, wanted: str) -> None:
    found = show(run, wanted)
    assert found.header["episode"] == AGAIN[0].episode
    assert (found.header["ending"], found.header["length"]) == ("stable", "3 steps in 2 periods")
    assert [part.title for part in found.parts if part.kind == "call"] == [
        "agent calls guess",
        "agent calls hint",
        "agent calls guess",
    ]
    assert not [part for part in found.parts if part.kind == "warning"]


def test_one_period_of_it_is_shown_alone(run: Path) -> None:
    parts = show(run, "a:s:i0:0", period=1).parts
    assert [part.text for part in parts if part.kind == "call"] == ["{}", '{\n  "value": 4\n}']


def test_a_directory_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        report(tmp_path)
    with pytest.raises(RunError, match="no run directory"):
        show(tmp_path, "a")
