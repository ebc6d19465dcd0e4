"""What a report keeps in `derived/`: folded once, right after every change of the log, and never needed."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit.envs import table
from evalkit.frozen.manifests import write_manifest
from evalkit.report.report import Report, report
from evalkit.results import derived
from evalkit.results.episodes import Referee, Spot
from evalkit.results.verify import verify
from evalkit.store.files.record import StepRecord
from tests.support.guessing_game import guess, hint
from tests.support.guessing_runs import ENVIRONMENTS, a_manifest, a_suite, an_agent, rows, search
from tests.support.run_directories import write_tails

MANIFEST = a_manifest([an_agent("a")], [a_suite("s", [4, 5, 6])], 2)
FIRST = rows(MANIFEST, "a", "s", "i0", 0, [guess(1), guess(1), guess(2)])
OTHERS = [row for i in (1, 2) for row in rows(MANIFEST, "a", "s", f"i{i}", 0, search(4 + i))]
BEGUN = rows(MANIFEST, "a", "s", "i0", 1, [guess(7), hint()])


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the episodes that were folded, in order."""
    seen: list[str] = []
    plain = Referee.fold

    def fold(self: Referee, spot: Spot, logged: Sequence[str]) -> object:
        seen.append(spot.id)
        return plain(self, spot, logged)

    monkeypatch.setattr(Referee, "fold", fold)
    return seen


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", ENVIRONMENTS)
    write_manifest(tmp_path, MANIFEST)
    return write_tails(tmp_path, [FIRST, OTHERS, BEGUN])


def values(found: Report) -> object:
    return found.to_json()["tables"]


def test_the_second_report_folds_nothing_and_says_the_same(run: Path, folded: list[str]) -> None:
    first = report(run)
    assert len(folded) == 3
    again = report(run)
    assert len(folded) == 3
    assert (values(again), again.cells) == (values(first), first.cells)


def test_only_episodes_with_new_rows_are_folded(run: Path, folded: list[str]) -> None:
    report(run)
    folded.clear()
    ended = rows(MANIFEST, "a", "s", "i0", 1, [guess(7), hint(), guess(4)])
    write_tails(run, [ended[len(BEGUN) :]])
    assert report(run).ended == 4
    assert folded == [ended[0].episode]
    folded.clear()
    assert report(run).ended == 4
    assert folded == []


def test_a_later_take_is_folded_anew(run: Path, folded: list[str]) -> None:
    before = report(run).table("scores").rows[0]["score"]
    folded.clear()
    write_tails(run, [rows(MANIFEST, "a", "s", "i0", 0, search(4), take=1)])
    assert report(run).table("scores").rows[0]["score"] > before
    assert folded == [FIRST[0].episode]


def test_rows_that_a_repair_gave_up_and_others_replaced_are_folded_anew(run: Path, folded: list[str]) -> None:
    """As many rows under the same take, but not the same."""
    report(run)
    folded.clear()
    again = rows(MANIFEST, "a", "s", "i0", 0, [guess(1), guess(1), guess(5)])
    shutil.rmtree(run / "log")
    write_tails(run, [again, OTHERS, BEGUN])
    report(run)
    assert folded == [again[0].episode]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("harm", ["deleted", "flipped", "cut", "other version", "text"])
def test_what_cannot_be_used_is_made_again(
    run: Path, folded: list[str], harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(run)
    folded.clear()
    path = run / derived.FOLDER / derived.FILE
    data = path.read_bytes()
    match harm:
        case "deleted":
            path.unlink()
        case "flipped":
            path.write_bytes(data[:60] + bytes([data[60] ^ 255]) + data[61:])
        case "cut":
            path.write_bytes(data[:-20])
        case "text":
            path.write_bytes(b"PAR1 no")
        case _:
            monkeypatch.setattr(derived, "FORMAT", 99)
    assert values(report(run)) == values(first)
    assert len(folded) == 3
    report(run)
    assert len(folded) == 3


def test_other_code_folds_anew(run: Path, folded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    report(run)
    folded.clear()
    monkeypatch.setattr(table.ENVIRONMENTS, "built_in", {"guessing": replace(ENVIRONMENTS["guessing"], version=2)})
    report(run)
    assert len(folded) == 3


def test_where_nothing_can_be_written_a_report_is_made_all_the_same(run: Path, folded: list[str]) -> None:
    (run / derived.FOLDER).write_text("in the way")
    first = report(run)
    assert values(report(run)) == values(first)
    assert len(folded) == 6


def test_verify_does_not_look_at_it(run: Path) -> None:
    report(run)
    (run / derived.FOLDER / derived.FILE).write_bytes(b"nonsense")
    assert verify(run) == []


def test_facts_come_in_step_order_whatever_order_they_were_written_in(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_manifest(other, MANIFEST)
    log: list[StepRecord] = [*FIRST, *OTHERS, *BEGUN]
    write_tails(other, [log[::-1][:4], log[::-1][4:]])
    assert values(report(other)) == values(report(run))
