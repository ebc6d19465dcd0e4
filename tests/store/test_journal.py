import os
import shutil
import subprocess
from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError, FencedError, StorageError
from evalkit.store import disk
from evalkit.store.files import journal
from evalkit.store.files.chain import check_chain
from evalkit.store.files.journal import (
    head_of,
    heads_of,
    is_written_here,
    new_writer,
    newest_claims,
    open_journal,
    seal,
)
from evalkit.store.files.layout import journal_object, journals
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import WRITER, digest_of, read_claim
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger
from tests.support.run_directories import a_charge, a_step


def test_a_writers_name_says_where_and_when_and_comes_behind_the_others() -> None:
    first = new_writer()
    assert WRITER.fullmatch(first)
    later = "00000000-host-1-9999999999.000"
    assert new_writer([first, later]).endswith("-9999999999.001")


def test_each_object_names_the_one_before_by_its_bytes(tmp_path: Path) -> None:
    own = open_journal(tmp_path, new_writer())
    segments = [own.commit(steps_table([a_step("a", step)]), [a_charge(step)]) for step in range(3)]
    own.close()
    says = [read_claim(journal_object(tmp_path, own.writer, number)) for number in range(4)]
    assert [one["kind"] for one in says] == ["commit"] * 3 + ["close"]
    assert says[0]["before"] == ""
    for number, segment in enumerate(segments):
        assert says[number + 1]["before"] == digest_of(segment.path.read_bytes())
    assert len({one["nonce"] for one in says}) == 4
    assert (read_index(tmp_path).rows, len(read_ledger(tmp_path))) == (3, 3)


def test_a_journal_that_begins_seals_the_others_and_names_their_ends(tmp_path: Path) -> None:
    dead = open_journal(tmp_path, new_writer())
    dead.carried.totals = '{"workers":{"w":7}}'
    dead.carried.compacted = {"x": {"steps": ("steps/x", "d")}}
    dead.carried.repaired = {"steps/y": "e"}
    dead.commit(steps_table([a_step()]))
    ended = open_journal(tmp_path, new_writer([dead.writer]))
    ended.commit(None, [a_charge()])
    ended.close()
    own = open_journal(tmp_path, new_writer([dead.writer, ended.writer]))
    own.commit(None, [a_charge()])
    claims = newest_claims(tmp_path)
    assert [says["kind"] for says in claims.values()] == ["seal", "close", "commit"]
    sealed = claims[dead.writer]
    assert (sealed["by"], sealed["totals"]) == (ended.writer, '{"workers":{"w":7}}')
    assert sealed["compacted"] == '{"x":{"steps":["steps/x","d"]}}'
    assert sealed["repaired"] == '{"steps/y":"e"}'
    assert heads_of(claims[own.writer], "x") == {
        dead.writer: head_of(tmp_path, dead.writer),
        ended.writer: head_of(tmp_path, ended.writer),
    }
    for writer in (dead.writer, ended.writer):
        before = journals(tmp_path)
        seal(tmp_path, writer, by=own.writer)  # once is enough
        assert journals(tmp_path) == before


def test_a_folder_without_objects_is_sealed_as_well(tmp_path: Path) -> None:
    writer = new_writer()
    (tmp_path / "log" / writer).mkdir(parents=True)
    open_journal(tmp_path, new_writer([writer]))
    assert newest_claims(tmp_path)[writer]["kind"] == "seal"


def test_a_folder_that_appears_while_others_are_sealed_is_sealed_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a coordinator that is being sealed has shown its folder just now."""
    coordinator = open_journal(tmp_path, new_writer())
    worker = new_writer([coordinator.writer])
    own, real = new_writer([worker]), journal.seal

    def meanwhile(run: Path, writer: str, *, by: str) -> None:
        (tmp_path / "log" / worker).mkdir(exist_ok=True)
        real(run, writer, by=by)

    monkeypatch.setattr(journal, "seal", meanwhile)
    heads = open_journal(tmp_path, own).heads
    assert list(heads) == [coordinator.writer, worker]
    assert newest_claims(tmp_path)[worker]["kind"] == "seal"


def test_processes_of_this_machine_are_known_by_their_writers() -> None:
    def of(pid: int) -> str:
        begin, _, start = new_writer().rsplit("-", 2)
        return f"{begin}-{pid}-{start}"

    assert is_written_here(of(os.getppid()))
    assert not is_written_here(of(os.getpid())), "it is not another one"
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not is_written_here(of(gone.pid))
    assert not is_written_here(f"0123abcd-elsewhere-{os.getppid()}-1700000000.000")


def test_a_writer_that_has_written_nothing_yet_is_ended_too(tmp_path: Path) -> None:
    early = open_journal(tmp_path, new_writer())
    late = open_journal(tmp_path, new_writer([early.writer]))
    with pytest.raises(FencedError, match="taken this run over"):
        early.commit(steps_table([a_step("a", 0)]))
    late.commit(steps_table([a_step("a", 0)]))
    assert read_index(tmp_path).rows == 1
    assert not list(check_chain(tmp_path))


def test_a_writer_that_others_overtake_while_it_begins_does_not(tmp_path: Path) -> None:
    early = new_writer()
    late = open_journal(tmp_path, new_writer([early]))
    with pytest.raises(FencedError, match="has begun to write"):
        open_journal(tmp_path, early)
    assert [one.writer for one in journals(tmp_path)] == [late.writer]
    late.withdraw()
    assert journals(tmp_path) == []


def test_a_writer_that_was_ended_writes_nothing_more(tmp_path: Path) -> None:
    own = open_journal(tmp_path, new_writer())
    own.commit(steps_table([a_step("a", 0)]))
    open_journal(tmp_path, new_writer([own.writer]))
    for act in (lambda: own.commit(steps_table([a_step("a", 1)])), own.close):
        with pytest.raises(FencedError, match="taken this run over") as caught:
            act()
        assert isinstance(caught.value, StorageError)
    assert read_index(tmp_path).rows == 1
    assert [one.numbers for one in journals(tmp_path)] == [(0, 1), ()]


def test_ones_own_object_is_known_again_when_its_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, real = open_journal(tmp_path, new_writer()), disk.create_durably

    def twice(path: Path, data: memoryview) -> None:
        real(path, data)
        real(path, data)

    monkeypatch.setattr(disk, "create_durably", twice)
    own.commit(steps_table([a_step("a", 0)]))
    own.commit(steps_table([a_step("a", 1)]))
    assert read_index(tmp_path).rows == 2


def test_a_seal_that_comes_second_is_tried_at_the_next_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, real = open_journal(tmp_path, new_writer()), disk.create_durably
    own.commit(steps_table([a_step("a", 0)]))
    tries: list[Path] = []

    def beaten(path: Path, data: memoryview) -> None:
        tries.append(path)
        if len(tries) == 1:
            monkeypatch.setattr(disk, "create_durably", real)
            own.commit(steps_table([a_step("a", 1)]))
            monkeypatch.setattr(disk, "create_durably", beaten)
        real(path, data)

    monkeypatch.setattr(disk, "create_durably", beaten)
    seal(tmp_path, own.writer, by="other")
    assert [path.name for path in tries] == ["000000001.parquet", "000000001.parquet", "000000002.parquet"][::2]
    monkeypatch.setattr(disk, "create_durably", real)
    assert newest_claims(tmp_path)[own.writer]["kind"] == "seal"
    assert check_chain(tmp_path) == []
    assert read_index(tmp_path).rows == 2


def test_a_newest_object_that_is_damaged_stops_whoever_would_seal(tmp_path: Path) -> None:
    own = open_journal(tmp_path, new_writer())
    path = own.commit(steps_table([a_step()])).path
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptLogError, match=r"000000000\.parquet is damaged"):
        open_journal(tmp_path, new_writer([own.writer]))


def test_what_is_no_writers_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the name of a writer"):
        journal.open_journal(tmp_path, "host:1:2")
    assert not list(tmp_path.iterdir())
    shutil.rmtree(tmp_path)
