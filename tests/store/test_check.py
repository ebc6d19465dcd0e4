"""What is changed or missing in a log is found and named."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evalkit.errors import CorruptLogError
from evalkit.store.files.damage import first_flaw
from evalkit.store.files.layout import lay_out
from evalkit.store.files.record import ASK, CUT
from evalkit.store.files.schema import steps_table
from evalkit.store.recovery.check import Flaw, KnownRows, check_log
from evalkit.store.writing.opening import take_over
from tests.support.damaged_logs import ALL, Write, flip, rewrite, swap
from tests.support.log_rows import a_charge, a_step, rounds
from tests.support.run_directories import write_run, write_tails

EPISODES = ["a", "b"]


@pytest.mark.parametrize("write", ALL)
def test_a_whole_log_has_no_flaw(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", [*rounds(EPISODES, 4), [a_step("a", 4, reply=None, ending="refusal")]])
    write(run, [[a_step("a", 4, take=1), a_step("a", 5, take=1)]])
    write(run, [[a_step("b", 2, take=1, row_kind=CUT)], [a_step("b", 2, take=2)]], [a_charge()])
    assert (check_log(run), first_flaw(run)) == ([], "")


def test_a_damaged_file_is_named_and_the_steps_that_are_missing_without_it(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 4))
    segment, later = lay_out(run, "steps").segments[1:3]
    flip(segment.path, b"answer 1 of a")
    file, *gaps = check_log(run)
    assert (file.segment, file.episode) == (segment.name, "")
    assert "its pages are not those that were written" in file.problem
    assert first_flaw(run) == f"{segment.name} {file.problem}"
    earlier = lay_out(run, "steps").segments[0]
    where = f"{earlier.name} to {later.name}"
    missing = [Flaw(segment=where, problem="the step is missing", episode=name, step=1) for name in EPISODES]
    assert gaps == missing


@pytest.mark.parametrize(
    ("change", "problem", "step"),
    [
        (lambda table: table.slice(0, 1), "the step is missing", ("b", 1)),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "the step is there twice", ("a", 1)),
    ],
)
def test_rows_that_are_lost_or_doubled_under_valid_digests_are_named(
    tmp_path: Path, change: Any, problem: str, step: tuple[str, int]
) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 3))
    rewrite(run, 1, change)
    (flaw,) = check_log(run)
    assert (flaw.problem, (flaw.episode, flaw.step)) == (problem, step)
    names = [one.name for one in lay_out(run, "steps").segments]
    assert flaw.segment.split(" to ")[0] == names[0]
    assert flaw.segment.split(" to ")[-1] in names[1:]


def test_two_swapped_files_are_named_with_what_they_hold(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 4))
    one, two = (lay_out(run, "steps").segments[number] for number in (1, 3))
    swap(one.path, two.path)
    found = {flaw.segment: flaw.problem for flaw in check_log(run) if not flaw.episode}
    assert {name: words.partition(" of ")[0] for name, words in found.items()} == {
        one.name: "is object 3",
        two.name: "is object 1",
    }


def test_swapped_files_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(EPISODES, 4))
    one, two = (lay_out(run, "steps").segments[number] for number in (1, 3))
    swap(one.path, two.path)
    before = sorted(run.rglob("*"))
    with pytest.raises(CorruptLogError, match=r"is object 3 of .*: it was renamed or swapped"):
        take_over(run, "s")
    assert sorted(run.rglob("*")) == before


def test_damaged_money_and_foreign_files_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 2), [a_charge(reason="because of a timeout")])
    (money,) = (run / "ledger").iterdir()
    flip(money, b"because of")
    (run / "steps" / "notes.parquet").write_bytes(b"")
    assert {flaw.segment for flaw in check_log(run)} == {f"ledger/{money.name}", "steps/notes.parquet"}


ASKED = [
    *(("ask", 0, 0), ("ask", 0, 1), ("step", 0, 2)),
    *(("ask", 1, 0), ("ask", 1, 1), ("step", 1, 2)),
    *(("ask", 2, 0), ("ask", 2, 1)),
]
"""Kind, step, and an ask's turn, or how many asks the step has."""


def lost_of(rows: list[tuple[str, int, int]]) -> dict[str, int]:
    """By episode, the first lost step."""
    log = KnownRows()
    for kind, step, number in rows:
        row = a_step("a", step, row_kind=kind, **({"turn": number} if kind == ASK else {"ask_n": number}))
        log.add("file", steps_table([row]))
    return {episode: one.step for episode, one in log.lost().items()}


@pytest.mark.parametrize(("gone", "step"), [(None, None), (0, 0), (1, 0), (3, 1), (4, 1), (6, 2), (7, None), (2, 0)])
def test_a_request_that_led_to_a_step_is_missed_like_a_step(gone: int | None, step: int | None) -> None:
    rows = [row for number, row in enumerate(ASKED) if number != gone]
    assert lost_of(rows) == ({} if step is None else {"a": step})


def test_a_later_try_that_has_lost_its_beginning_is_no_end_of_an_earlier_one() -> None:
    earlier = [a_step("a", step) for step in range(2)]
    later = [a_step("a", step, take=1, base_take=1) for step in range(3)]
    log = KnownRows()
    log.add("file", steps_table([*earlier, *later[1:]]))
    assert {name: (one.step, one.take, one.base_take) for name, one in log.lost().items()} == {"a": (0, 1, 1)}
    whole = KnownRows()
    whole.add("file", steps_table([*earlier, *later]))
    assert whole.lost() == {}
