"""Files of a log against the digests by which later ones name them: whatever becomes of one, it is told by its name."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from evalkit.store.files.chain import check_chain, follow
from evalkit.store.files.journal import Appender, carried_of, open_journal, seal
from evalkit.store.files.layout import compacted, newest_object
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import digest_of, read_claim
from tests.support.handmade_logs import append, begin, compact, contents, discard
from tests.support.log_rows import a_charge, a_step, rounds

A, B, C = (f"{letter * 8}-host-1-{start}.000" for letter, start in (("a", 100), ("b", 200), ("c", 300)))


def names_of(run: Path) -> set[str]:
    return {name for name, _ in check_chain(run)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three writers: one that closed, all compacted; one that died, compacted by the last in part; one that is at
    work, in part compacted."""
    run = tmp_path / "run"
    first = begin(run, A)
    append(first, *rounds(["a", "b"], 3), money=[a_charge(7)])
    compact(first, 0, 1)
    append(first, *rounds(["a"], 1, first=3))
    discard(first, 0, 1)
    compact(first, 2, 3)
    first.close()
    discard(first, 2, 3)
    second = begin(run, B)
    append(second, *rounds(["c"], 4), money=[a_charge(8)])
    compact(second, 0, 1)
    append(second, *rounds(["c"], 1, first=4))
    discard(second, 0, 1)
    third = begin(run, C)
    third.carried.compacted.update(second.carried.compacted)
    compact(third, 2, 4, writer=B)
    append(third, *rounds(["d"], 3))
    discard(third, 2, 4, writer=B)
    compact(third, 0, 1)
    append(third, *rounds(["d"], 3, first=3), money=[a_charge(9)])
    discard(third, 0, 0)
    return run


def newest(run: Path) -> str:
    return max(name for name in contents(run) if name.startswith(f"log/{C}"))


def test_a_whole_log_has_no_flaw(run: Path) -> None:
    assert check_chain(run) == []
    assert check_chain(run / "elsewhere") == []


@pytest.mark.exhaustive
def test_every_changed_byte_of_every_file_but_the_newest_is_told(run: Path) -> None:
    for name, data in contents(run).items():
        if name in (newest(run), f"log/{C}/000000001.parquet"):
            continue  # nobody names it; it waits for deletion
        for place in (0, 5, len(data) // 3, len(data) // 2, len(data) - 400, len(data) - 9, len(data) - 1):
            changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
            (run / name).write_bytes(changed)
            assert name in names_of(run), (name, place)
        (run / name).write_bytes(data)
    assert check_chain(run) == []


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize(
    "harm", [bytes, lambda data: bytes(len(data)), lambda data: data[:-300], lambda data: data * 2]
)
def test_a_file_that_is_emptied_zeroed_cut_or_doubled_is_told(run: Path, harm: Callable[[bytes], bytes]) -> None:
    last = newest(run)
    for name, data in contents(run).items():
        if name != f"log/{C}/000000001.parquet":
            (run / name).write_bytes(harm(data) if harm is not bytes else b"")
            # Of the newest, which nobody names, bytes in front tell by its pages alone.
            assert name in names_of(run) or (name == last and harm(b"x") == b"xx")
            (run / name).write_bytes(data)


def test_what_the_newest_object_says_cannot_be_changed_unnoticed(run: Path) -> None:
    name = newest(run)
    data = contents(run)[name]
    at = data.rindex(b"evalkit.totals")
    (run / name).write_bytes(data[:at] + data[at:].replace(b"{}", b"[]", 1))
    assert names_of(run) == {name}


def test_every_file_that_is_gone_is_told_but_the_newest(run: Path) -> None:
    last = newest(run)
    for name, data in contents(run).items():
        (run / name).unlink()
        if name in (f"log/{C}/000000001.parquet", last):
            assert check_chain(run) == []
        else:
            assert (name, "is missing") in [(one, what[:10]) for one, what in check_chain(run)], name
        (run / name).write_bytes(data)


def test_a_journal_that_is_gone_as_a_whole_is_told(run: Path) -> None:
    shutil.rmtree(run / "log" / A)
    for name in contents(run):
        if A in name:
            (run / name).unlink()
    assert f"log/{A}/000000004.parquet" in names_of(run)


def test_each_swap_of_two_files_is_told(run: Path) -> None:
    files = [name for name in contents(run) if name != f"log/{C}/000000001.parquet"]
    for one, two in pairwise(files):
        here, there = (run / one).read_bytes(), (run / two).read_bytes()
        (run / one).write_bytes(there)
        (run / two).write_bytes(here)
        assert names_of(run) >= {one, two}
        (run / one).write_bytes(here)
        (run / two).write_bytes(there)


def test_what_follows_the_end_of_a_journal_is_told(run: Path) -> None:
    late = Appender(run=run, writer=A, heads={}, number=5, before="0" * 64)
    late.commit(None)
    assert (f"log/{A}/000000005.parquet", f"follows the end of its journal, which steps/{C}-") in [
        (name, what[: what.index("000000000")]) for name, what in check_chain(run) if "000000000" in what
    ]
    (run / "log" / A / "000000005.parquet").unlink()
    open_journal(run, "dddddddd-host-1-400.000")
    assert check_chain(run) == []
    end = newest_object(run, C)
    assert end is not None
    before, carried = digest_of(end.path.read_bytes()), carried_of(read_claim(end), end.name)
    Appender(run=run, writer=C, heads={}, carried=carried, number=end.first + 1, before=before).commit(None)
    assert [(name, what[:23]) for name, what in check_chain(run)] == [(end.name, "ends its journal (seal)")]


def test_a_journal_that_the_newest_does_not_know_is_told(run: Path) -> None:
    Appender(run=run, writer="eeeeeeee-host-1-50.000", heads={}).commit(steps_table([a_step("e", 0)]))
    assert [name for name, _ in check_chain(run)] == ["log/eeeeeeee-host-1-50.000/000000000.parquet"]


def test_a_journal_that_was_ended_before_it_began_is_none_that_is_lacking(tmp_path: Path) -> None:
    run = tmp_path / "run"
    append(begin(run, B), *rounds(["a"], 3))
    (run / "log" / A).mkdir()  # by a process that was stopped under this name until B had begun
    journal = open_journal(run, C)
    assert (run / "log" / A / "000000000.parquet").exists()
    assert check_chain(run) == []  # also if it dies here
    journal.commit(steps_table([a_step("b", 0)]))
    assert check_chain(run) == []


def test_what_a_crash_leaves_is_no_flaw(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = begin(run, A)
    append(first, *rounds(["a"], 4))
    (run / "log" / A / ".000000004.parquet.1.tmp").write_bytes(b"half")
    assert check_chain(run) == []
    compact(first, 0, 3)  # and nothing names it yet
    assert check_chain(run) == []
    (run / "log" / A / "000000001.parquet").write_bytes(b"waits for its end")
    assert check_chain(run) == []
    (run / "log" / B).mkdir()  # another that died before its first object
    assert check_chain(run) == []
    seal(run, A, by=C)
    seal(run, B, by=C)
    assert check_chain(run) == []
    begin(run, C).commit(None)
    assert check_chain(run) == []


def test_compacted_files_tell_of_lost_objects_behind_them(run: Path) -> None:
    shutil.rmtree(run / "log" / C)
    told = dict(check_chain(run))
    assert told[f"steps/{C}-000000000-000000001.parquet"] == "is not named by any object: later objects are missing"


def test_a_digest_that_a_repair_names_is_right(run: Path) -> None:
    name = f"steps/{A}-000000000-000000001.parquet"
    (run / name).write_bytes(contents(run)[name].replace(b"lz4", b"lz5").replace(b"parquet-cpp", b"parquet-cpq"))
    assert names_of(run) == {name}
    mended = begin(run, "dddddddd-host-1-400.000")
    mended.carried.repaired[name] = digest_of((run / name).read_bytes())
    mended.close()
    assert names_of(run) == set()


def test_of_a_compacted_file_that_is_gone_only_itself_is_told(tmp_path: Path) -> None:
    """The file before it is named by nothing else; that does not mean that the end of the journal is lost."""
    run = tmp_path / "run"
    own = begin(run)
    append(own, *([a_step("a", step)] for step in range(4)))
    for first, last in ((0, 1), (2, 3)):
        compact(own, first, last)
    append(own, [a_step("a", 4)])
    discard(own, 0, 3)
    own.close()
    assert check_chain(run) == []
    gone = compacted(run, "steps", own.writer, 2, 3)
    gone.path.unlink()
    found = follow(run)
    assert [name for name, _ in found.flaws] == [gone.name]
    assert found.headless == set()
