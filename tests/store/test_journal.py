import os
import shutil
import subprocess
from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError, FencedError, StorageError
from evalkit.store import disk
from evalkit.store.files import journal
from evalkit.store.files.journal import (
    Appender,
    has_ended,
    is_written_here,
    new_writer,
    newest_claim,
    open_journal,
    seal,
)
from evalkit.store.files.layout import journal_object, journals
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import WRITER, SessionMoney, read_claim, session_money
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger
from evalkit.store.recovery.check import check_log
from tests.support.handmade_logs import numbers
from tests.support.run_directories import a_charge, a_step


def test_a_writers_name_says_where_and_when_and_comes_behind_the_others() -> None:
    first = new_writer()
    assert WRITER.fullmatch(first)
    later = "00000000-host-1-9999999999.000"
    assert new_writer([first, later]).endswith("-9999999999.001")


def kind_of_end(own: Appender | str, run: Path) -> str:
    says = newest_claim(run, own if isinstance(own, str) else own.writer)
    assert says is not None
    return says["kind"]


def test_objects_are_numbered_and_say_what_their_session_has_come_to(tmp_path: Path) -> None:
    own = open_journal(tmp_path, new_writer())
    for step in range(3):
        own.commit(steps_table([a_step("a", step)]), [a_charge(step)], SessionMoney(spent=step, leased=9))
    own.close(SessionMoney(spent=7, leased=9))
    says = [read_claim(journal_object(tmp_path, own.writer, number)) for number in range(4)]
    assert [(one["kind"], one["number"]) for one in says] == [("commit", str(n)) for n in range(3)] + [("close", "3")]
    assert [session_money(one) for one in says] == [SessionMoney(spent=spent, leased=9) for spent in (0, 1, 2, 7)]
    assert len({one["nonce"] for one in says}) == 4
    assert (read_index(tmp_path).rows, len(read_ledger(tmp_path))) == (3, 3)


def test_a_journal_that_begins_seals_the_others_and_repeats_what_they_had_spent(tmp_path: Path) -> None:
    dead = open_journal(tmp_path, new_writer())
    dead.commit(steps_table([a_step()]), (), SessionMoney(spent=7, leased=8))
    ended = open_journal(tmp_path, new_writer([dead.writer]))
    ended.commit(None, [a_charge()])
    ended.close()
    own = open_journal(tmp_path, new_writer([dead.writer, ended.writer]))
    own.commit(None, [a_charge()])
    assert [kind_of_end(one, tmp_path) for one in (dead, ended, own)] == ["seal", "close", "commit"]
    sealed = newest_claim(tmp_path, dead.writer)
    assert sealed is not None
    assert (sealed["by"], session_money(sealed)) == (ended.writer, SessionMoney(spent=7, leased=8))
    assert [has_ended(tmp_path, one.writer) for one in (dead, ended, own)] == [True, True, False]
    for writer in (dead.writer, ended.writer):
        before = journals(tmp_path)
        seal(tmp_path, writer, by=own.writer)  # once is enough
        assert journals(tmp_path) == before


def test_a_folder_without_objects_is_sealed_as_well(tmp_path: Path) -> None:
    writer = new_writer()
    (tmp_path / "log" / writer).mkdir(parents=True)
    open_journal(tmp_path, new_writer([writer]))
    assert kind_of_end(writer, tmp_path) == "seal"


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
    open_journal(tmp_path, own)
    assert [kind_of_end(one, tmp_path) for one in (coordinator, worker)] == ["seal", "seal"]


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
    assert check_log(tmp_path) == []


def test_a_writer_that_others_overtake_while_it_begins_does_not(tmp_path: Path) -> None:
    early = new_writer()
    late = open_journal(tmp_path, new_writer([early]))
    with pytest.raises(FencedError, match="has begun to write"):
        open_journal(tmp_path, early)
    assert list(journals(tmp_path)) == [late.writer]
    late.withdraw()
    assert journals(tmp_path) == {}


def test_a_writer_that_was_ended_writes_nothing_more(tmp_path: Path) -> None:
    own = open_journal(tmp_path, new_writer())
    own.commit(steps_table([a_step("a", 0)]))
    open_journal(tmp_path, new_writer([own.writer]))
    for act in (lambda: own.commit(steps_table([a_step("a", 1)])), own.close):
        with pytest.raises(FencedError, match="taken this run over") as caught:
            act()
        assert isinstance(caught.value, StorageError)
    assert read_index(tmp_path).rows == 1
    assert numbers(tmp_path) == [(0, 1), ()]


def test_ones_own_object_is_known_again_when_its_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, real = open_journal(tmp_path, new_writer()), disk.create_durably

    def twice(path: Path, data: bytes) -> None:
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

    def beaten(path: Path, data: bytes) -> None:
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
    assert kind_of_end(own, tmp_path) == "seal"
    assert check_log(tmp_path) == []
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
