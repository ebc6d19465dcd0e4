"""Which files make up a log, by their names: order, what compaction covers, what is missing."""

import shutil
from pathlib import Path

import pytest

from evalkit.store.files.layout import compacted, journal_object, lay_out
from evalkit.store.files.segment import KINDS
from evalkit.store.recovery.check import check_log
from tests.support.handmade_logs import append, begin, compact, discard
from tests.support.log_rows import a_charge, rounds
from tests.support.run_directories import write_run, write_tails

ONE, TWO = "bbbbbbbb-host-1-100.000", "aaaaaaaa-host-1-200.000"


def test_writers_follow_each_other_as_they_began_and_their_files_by_number(tmp_path: Path) -> None:
    for writer in (ONE, TWO):
        journal = begin(tmp_path, writer)
        append(journal, *rounds([writer[0]], 4), money=[a_charge()])
        compact(journal, 0, 1)
        discard(journal, 0, 0)
        journal.close()
    for kind in KINDS:
        layout = lay_out(tmp_path, kind)
        order = [(one.writer, one.first, one.last, one.is_object) for one in layout.segments]
        own = [(0, 1, False), (2, 2, True), (3, 3, True), (4, 4, True)]
        assert order == [(writer, *file) for writer in (ONE, TWO) for file in own]
        assert [(one.writer, one.first) for one in layout.covered] == [(ONE, 1), (TWO, 1)]
        assert (layout.flaws, layout.stray, layout.gaps) == ([], [], [])


@pytest.mark.parametrize("write", [write_run, write_tails])
def test_each_missing_file_is_told_unless_it_is_the_newest_object_of_several(tmp_path: Path, write: object) -> None:
    assert callable(write)
    whole = write(tmp_path / "whole", rounds(["a", "b"], 3), [a_charge()])
    names = [path.relative_to(whole) for path in whole.rglob("*.parquet")]
    newest = max(name for name in names if name.parts[0] == "log")
    for name in names:
        run = Path(shutil.copytree(whole, tmp_path / "run"))
        (run / name).unlink()
        found = [flaw.problem for flaw in check_log(run)]
        assert ("is missing" in found) == (write is write_run or name != newest), name
        shutil.rmtree(run)


def test_a_journal_of_which_no_object_is_left_is_told(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    append(journal, *rounds(["a"], 3))
    compact(journal, 0, 2)
    discard(journal, 0, 2)
    for kind in KINDS:
        name = journal_object(tmp_path, journal.writer, 2).name
        assert lay_out(tmp_path, kind).flaws == [(name, "is missing")]
    shutil.rmtree(tmp_path / "log")
    assert [flaw.problem for flaw in check_log(tmp_path)] == ["is missing"]


def test_a_gap_is_told_with_its_first_and_last_number(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    append(journal, *rounds(["a"], 6))
    discard(journal, 1, 3)
    layout = lay_out(tmp_path, "steps")
    first, last = (journal_object(tmp_path, journal.writer, number).name for number in (1, 3))
    assert layout.flaws == [(f"{first} to {last}", "is missing")]
    assert layout.gaps == [(journal.writer, 1, 3)]


def test_files_that_share_numbers_in_part_are_told(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    append(journal, *rounds(["a"], 4))
    compact(journal, 0, 1)
    compact(journal, 1, 2)
    (flaw,) = lay_out(tmp_path, "ledger").flaws
    assert flaw == (
        compacted(tmp_path, "ledger", journal.writer, 1, 2).name,
        "contains numbers that another file contains too",
    )


def test_what_is_no_file_of_the_log_is_told_and_what_was_left_half_written_is_not(tmp_path: Path) -> None:
    run = write_run(tmp_path, rounds(["a"], 2))
    (journal,) = (run / "log").iterdir()
    for folder in (run / "steps", run / "log", journal):
        (folder / "notes.parquet").write_bytes(b"mine")
        (folder / ".half.parquet").write_bytes(b"")
        (folder / "notes.txt").write_text("mine")
    problems = {flaw.segment: flaw.problem for flaw in check_log(run)}
    assert problems == {
        "steps/notes.parquet": "is no segment of this run: move it elsewhere",
        "log/notes.parquet": "is not a journal of this run: move it elsewhere",
        "log/notes.txt": "is not a journal of this run: move it elsewhere",
        f"log/{journal.name}/notes.parquet": "is not an object of this journal: move it elsewhere",
    }


@pytest.mark.parametrize("name", ["steps", "ledger", "log"])
def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    assert [(flaw.segment, flaw.problem) for flaw in check_log(tmp_path)] == [
        (name, "is not a folder: move it elsewhere")
    ]


def test_a_writer_that_died_before_its_first_object_leaves_a_run_whole(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 3), [a_charge()])
    (run / "log" / "0123abcd-host-1-1700000000.000").mkdir(parents=True)
    assert check_log(run) == []
