from pathlib import Path
from unittest import mock

import pytest

from evalkit.store.files.layout import compacted, lay_out
from evalkit.store.files.segment import KINDS, Kind
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger
from evalkit.store.writing import adopt as adopting
from evalkit.store.writing.adopt import Adopted, adopt
from evalkit.store.writing.compact import discard
from tests.support.handmade_logs import append, begin, compact
from tests.support.run_directories import a_charge, a_step


def test_an_object_that_files_of_one_kind_lack_stays(tmp_path: Path) -> None:
    """A repair may leave compacted files of money with a hole between them: the object there still holds its rows."""
    run = tmp_path / "run"
    dead = begin(run)
    for number in range(4):
        append(dead, [a_step("a", number)], money=[a_charge(number)])
    for first, last in ((0, 1), (3, 3), (0, 3)):
        compact(dead, first, last)
    dealt: list[tuple[Kind, int, int]]
    dealt = [("steps", 0, 1), ("ends", 0, 1), ("steps", 3, 3), ("ends", 3, 3), ("ledger", 0, 3)]
    for kind, first, last in dealt:
        compacted(run, kind, dead.writer, first, last).path.unlink()
    dead.close()
    before, money = read_index(run).rows, read_ledger(run)
    adopted = adopt(run, lambda names: {}, {dead.writer})
    going = [*adopted.covered, *adopted.unnamed]
    assert sorted(one.first for one in going) == [0, 1, 3]
    discard(going)
    assert (read_index(run).rows, read_ledger(run)) == (before, money) != (0, [])


def test_a_journal_that_has_begun_meanwhile_is_left_to_its_writer(tmp_path: Path) -> None:
    """A process that was suspended while it opened the log may find the journal of one that has taken the run over."""
    run = tmp_path / "run"
    suspended = begin(run)
    alive = begin(run)
    for number in range(3):
        append(alive, [a_step("a", number)])
    compact(alive, 0, 0)
    before = {path.name for path in run.rglob("*.parquet")}
    adopted = adopt(run, lambda names: {}, suspended.heads)
    assert adopted == Adopted()
    assert {path.name for path in run.rglob("*.parquet")} == before
    compact(alive, 1, 2)
    assert sorted(path.stem.rsplit("-", 2)[1] for path in (run / "steps").iterdir()) == ["000000000", "000000001"]


@pytest.mark.parametrize("dead", [2, 6])
def test_files_are_listed_as_often_however_many_writers_have_died(tmp_path: Path, dead: int) -> None:
    run = tmp_path / "run"
    writers = []
    for number in range(dead):
        writer = begin(run)
        append(writer, [a_step(f"e{number}", 0)])
        compact(writer, 0, 0)
        writer.close()
        writers.append(writer.writer)
    with mock.patch.object(adopting, "lay_out", wraps=lay_out) as listed:
        adopted = adopt(run, lambda names: {}, writers)
    assert len(adopted.covered) == dead
    assert listed.call_count == len(KINDS)
