from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from evalkit.store.files import segment as files
from evalkit.store.files.layout import journals, lay_out
from evalkit.store.recovery.check import check_log
from evalkit.store.recovery.examine import Flaw
from tests.support.damaged_logs import ALL, Write, flip, replaced, rewrite
from tests.support.handmade_logs import contents
from tests.support.log_rows import a_charge, a_step, rounds
from tests.support.run_directories import write_run, write_tails

EPISODES = ["a", "b"]


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("write", ALL)
def test_a_whole_log_has_no_flaw(tmp_path: Path, write: Callable[..., Path]) -> None:
    rows = rounds(EPISODES, 4)
    rows.append([a_step("a", 4, reply=None, ending="refusal")])
    run = write(tmp_path / "run", rows)
    write(run, [[a_step("a", 4, take=1), a_step("a", 5, take=1)]])
    assert check_log(run) == []
    write(run, [], [a_charge()])
    assert check_log(run) == []
    write_run(run, [], [a_charge()])
    assert check_log(run) == []


def test_a_flipped_byte_of_a_reply_is_named_with_segment_episode_and_step(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 4))
    segment = lay_out(run, "steps").segments[2]
    flip(segment.path, b"answer 2 of a")
    (flaw,) = check_log(run)
    assert (flaw.segment, flaw.episode, flaw.step) == (segment.name, "a", 2)
    assert "column reply is damaged" in flaw.problem


def test_any_flipped_byte_of_a_compacted_file_is_noticed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(EPISODES, 4))
    (path,) = (run / "steps").iterdir()
    whole = path.read_bytes()
    for place in range(4, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert check_log(run), place


@pytest.mark.exhaustive(but=6)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("reply", '{"calls":[],"finish":"stop","text":"better"}'),
        ("facts", '{"calls":[]}'),
        ("reply", None),
        ("observation_digest", b"x" * 16),
        ("request_digest", b"x" * 16),
        ("step_digest", b"x" * 16),
    ],
)
@pytest.mark.parametrize("write", ALL)
def test_a_changed_value_under_a_valid_checksum_is_named(
    tmp_path: Path, column: str, value: object, write: Write
) -> None:
    run = write(tmp_path / "run", rounds(EPISODES, 4))
    last = len(lay_out(run, "steps").segments) == 4
    name = rewrite(run, 2, replaced(column, 1, value)) if last else rewrite(run, 0, replaced(column, 5, value))
    (flaw,) = check_log(run)
    assert (flaw.segment, flaw.episode, flaw.step) == (name, "b", 2)
    assert "does not agree with its digest" in flaw.problem


def test_a_removed_middle_row_is_named_with_the_segment_where_it_should_be(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 5))
    name = rewrite(run, 2, lambda table: table.slice(0, 1))
    assert rows_told(run) == [Flaw(segment=name, problem="the step is missing", episode="b", step=2)]
    compacted = write_run(tmp_path / "other", rounds(EPISODES, 5))
    name = rewrite(compacted, 0, lambda table: pa.concat_tables([table.slice(0, 3), table.slice(4)]))
    assert rows_told(compacted) == [Flaw(segment=name, problem="the step is missing", episode="b", step=1)]


def rows_told(run: Path) -> list[Flaw]:
    """Flaws of rows; those of files stand before them, and name the same file."""
    found = check_log(run)
    rows = [flaw for flaw in found if flaw.episode]
    assert {flaw.segment for flaw in found} == {flaw.segment for flaw in rows}
    assert all("records another digest" in flaw.problem for flaw in found if not flaw.episode)
    return rows


def test_a_row_that_is_there_twice_is_named(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 3))
    name = rewrite(run, 1, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    assert rows_told(run) == [Flaw(segment=name, problem="the step is there twice", episode="a", step=1)]


def test_two_swapped_segments_are_named_with_what_they_hold(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 4))
    one, two = (lay_out(run, "steps").segments[number].path for number in (1, 3))
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    found = [(flaw.segment, flaw.episode, flaw.step) for flaw in check_log(run)]
    assert found == [(path.relative_to(run).as_posix(), "a", step) for path, step in ((one, 3), (two, 1))]
    assert all("renamed or swapped" in flaw.problem for flaw in check_log(run))


def test_rows_that_metadata_counts_and_the_file_lacks_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    footer = files._footer
    monkeypatch.setattr(files, "_footer", lambda facts: footer({**facts, "rows": "3"}))
    run = write_tails(tmp_path / "run", rounds(EPISODES, 1))
    (flaw,) = check_log(run)
    assert flaw.problem == "should hold 3 rows but has 2"


def test_a_torn_file_and_the_gap_it_leaves_are_both_named(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 4))
    path = lay_out(run, "steps").segments[1].path
    path.write_bytes(path.read_bytes()[:200])
    file, *gaps = check_log(run)
    assert file.segment == path.relative_to(run).as_posix()
    assert "none of its rows can be read" in file.problem
    assert [(gap.segment, gap.episode, gap.step) for gap in gaps] == [(file.segment, "a", 1), (file.segment, "b", 1)]


def test_a_damaged_number_takes_its_rows_with_it_and_names_them(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", [[a_step("a", step, cost=0x4142434445464748) for step in range(3)]])
    flip(lay_out(run, "steps").segments[0].path, b"HGFEDCBA")
    (flaw,) = check_log(run)
    assert (flaw.episode, flaw.step) == ("a", 0)
    assert "column cost is damaged" in flaw.problem
    assert "3 rows" in flaw.problem


def test_damaged_money_and_foreign_files_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 2), [a_charge(reason="because of a timeout")])
    (money,) = (run / "ledger").iterdir()
    flip(money, b"because of")
    (run / "steps" / "notes.parquet").write_bytes(b"")
    assert {flaw.segment for flaw in check_log(run)} == {f"ledger/{money.name}", "steps/notes.parquet"}


@pytest.mark.parametrize("text", [b"because of", b"evalkit.before", b"parquet-cpp-arrow", b"nonce"])
def test_a_flip_in_the_footer_of_a_commit_is_named_once(tmp_path: Path, text: bytes) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3), [a_charge(reason="because of a timeout")])
    segment = lay_out(run, "steps").segments[0]
    flip(segment.path, text)
    (flaw,) = check_log(run)
    assert flaw.segment == segment.name


def test_a_compacted_file_that_is_gone_is_told_by_its_name_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(EPISODES, 4), [a_charge()])
    write_run(run, rounds(EPISODES, 2, first=4))
    newest = max(path for path in (run / "log" / journals(run)[-1].writer).iterdir()).relative_to(run).as_posix()
    for name, data in contents(run).items():
        (run / name).unlink()
        (flaw, *rest) = check_log(run)
        if name == newest:
            assert {one.problem for one in (flaw, *rest)} == {"is not named by any object: later objects are missing"}
        else:
            assert flaw.segment == name
            assert flaw.problem.startswith("is missing: ")
            assert {one.problem for one in rest} <= {"the step is missing"}
        (run / name).write_bytes(data)


def test_a_writer_that_died_before_its_first_object_leaves_a_run_whole(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 3), [a_charge()])
    (run / "log" / "0123abcd-host-1-1700000000.000").mkdir(parents=True)
    assert check_log(run) == []
