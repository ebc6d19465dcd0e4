from pathlib import Path

from evalkit.store.files.layout import compacted
from evalkit.store.files.segment import Kind
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger
from evalkit.store.writing.adopt import adopt
from evalkit.store.writing.compact import discard
from tests.support.format2_logs import append, begin, compact
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
    adopted = adopt(run, lambda names: {})
    going = [*adopted.covered, *adopted.unnamed]
    assert sorted(one.first for one in going) == [0, 1, 3]
    discard(going)
    assert (read_index(run).rows, read_ledger(run)) == (before, money) != (0, [])
