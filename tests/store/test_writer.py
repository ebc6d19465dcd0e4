import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from io import FileIO
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evalkit.errors import CorruptLogError, FencedError, RunError, StorageError
from evalkit.money import PicoUsd
from evalkit.redact import KEYS
from evalkit.store import disk
from evalkit.store.files.damage import first_flaw
from evalkit.store.files.journal import new_writer, seal
from evalkit.store.files.layout import journals
from evalkit.store.files.record import LedgerRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.files.segment import KINDS, NO_MONEY, WRITER, Segment, read_claim
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger, scan
from evalkit.store.writing import compact as compacting
from evalkit.store.writing import writer
from evalkit.store.writing.compact import Tail, tail_of
from evalkit.store.writing.opening import end_journal, take_over
from evalkit.store.writing.pace import (
    AMPLE_ROWS,
    LATEST,
    LOOK_S,
    MOST_S,
    PART,
    PUT_LEAST_S,
    PUT_MOST_S,
    PUTS,
    SHARE,
    CommitPace,
)
from evalkit.store.writing.writer import Store, open_store
from tests.store.test_disk import Shim, durable
from tests.support.handmade_logs import contents, numbers
from tests.support.patience import PATIENCE_S
from tests.support.run_directories import a_charge, a_step, rounds, write_run, write_tails
from tests.support.virtual_clock import VirtualLoop, run_virtual


def play(run: Path, body: Callable[[Store], Awaitable[None]], session: str = "s") -> None:
    async def go() -> None:
        with open_store(run, session=session) as store:
            await body(store)

    asyncio.run(go())


def objects(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "log").glob("*/*.parquet"))


def ranges(run: Path, kind: str) -> list[str]:
    """The numbers that compacted files have in their names."""
    return sorted(path.stem[-19:] for path in (run / kind).iterdir())


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    commits = rounds(["b", "a"], 3)
    run = write_run(tmp_path / "run", commits, [a_charge(7)])
    table = scan(run, ["episode", "step", "reply", "cost"])
    assert list(zip(*table.to_pydict().values(), strict=True)) == [
        (row.episode, row.step, row.reply and row.reply.decode(), row.cost)
        for row in sorted(chain(*commits), key=lambda row: (row.episode, row.step))
    ]
    assert read_ledger(run) == [a_charge(7)]
    assert objects(run) == ["000000003.parquet"]
    assert [ranges(run, kind) for kind in KINDS] == [["000000000-000000002"]] * 2


@pytest.mark.parametrize("left_out", ["", "write", "sync_file", "link", "sync_directory"])
def test_durable_returns_when_one_file_with_steps_and_money_is_there_to_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    run, writer = tmp_path / "run", new_writer()
    write_tails(run, [])
    shim = Shim(monkeypatch, without=left_out)
    opened: list[tuple[str, str]] = []
    seen: list[tuple[str, str]] = []

    async def body(store: Store) -> None:
        opened.extend(shim.done)
        shim.done.clear()
        store.append(a_step())
        store.enter(a_charge())
        await store.durable()
        seen.extend(shim.done)

    with pytest.MonkeyPatch.context() as patch:
        # Only the commit is looked at; the rest would stumble over what was left out.
        patch.setattr(Store, "close", lambda self, quiet: None)
        play(run, body, writer)
    sound = durable(seen, "000000000.parquet", writer, new=True)
    assert sound is (left_out == "")
    if sound:
        assert opened[-1] == ("sync_directory", "log")
        assert [name for name, _ in seen].count("sync_file") == 1
        assert (read_index(run).rows, len(read_ledger(run))) == (1, 1)


def test_folders_that_a_killed_process_has_made_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    for name in ("manifest", "suites"):
        (run / name).mkdir(parents=True)  # and nobody has waited for the names
    shim = Shim(monkeypatch)

    async def body(store: Store) -> None:
        del store
        assert {tmp_path.name, "run", "manifest", "suites"} <= {name for what, name in shim.done if "directory" in what}

    play(run, body)
    assert journals(run) == {}  # nothing was written


def test_a_seal_that_a_dying_process_has_put_into_an_earlier_journal_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before its own first object: whoever comes next names that seal, and the folder was never waited for. So
    may it be with any other end: whoever wrote a later one may have begun before this one was written."""
    run = write_run(write_run(tmp_path / "run", rounds(["a"], 2)), rounds(["b"], 2))
    dead, sealing = "0aaaaaaa-host-1-99000000000.000", "0bbbbbbb-host-2-99000000001.000"
    for name in (dead, sealing):
        (run / "log" / name).mkdir()
    seal(run, dead, by=sealing)
    shim = Shim(monkeypatch)

    async def body(store: Store) -> None:
        del store
        synced = [name for what, name in shim.done if "directory" in what]
        assert {writer for writer, objects in journals(run).items() if objects} <= {*synced}

    play(run, body)


def test_many_waiters_share_few_commits(tmp_path: Path) -> None:
    run = tmp_path / "run"

    async def body() -> None:
        with open_store(run, session="s", inline=True) as store:
            store.pace(0.2)

            async def player(episode: str) -> None:
                for step in range(3):
                    store.append(a_step(episode, step))
                    await store.durable()

            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(player(f"e{number}"))
            assert len(objects(run)) == 3

    run_virtual(body())
    index = read_index(run)
    assert index.rows == 600
    assert {held.steps for held in index.episodes.values()} == {3}


def test_what_comes_while_a_commit_is_under_way_is_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast it comes: a slow disk gets few large commits."""
    run, syncing, let_go = tmp_path / "run", threading.Event(), threading.Event()
    sync = disk.sync_file

    def held(file: FileIO) -> None:
        syncing.set()
        let_go.wait(PATIENCE_S)
        sync(file)

    async def body(store: Store) -> None:
        monkeypatch.setattr(disk, "sync_file", held)
        store.append(a_step("first"))
        async with asyncio.TaskGroup() as group:
            group.create_task(store.durable())
            await asyncio.to_thread(syncing.wait, PATIENCE_S)
            for number in range(20):
                store.append(a_step(f"e{number}"))
                group.create_task(store.durable())
                await asyncio.sleep(LOOK_S)
            let_go.set()
        assert len(objects(run)) == 2

    play(run, body)


def test_a_lone_row_is_committed_after_one_look(tmp_path: Path) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        with open_store(tmp_path / "run", session="s", inline=True) as store:
            store.pace(1.0)
            for _ in range(3):
                began = loop.time()
                store.append(a_step())
                await store.durable()
                assert loop.time() - began < LOOK_S + 1e-6
                await asyncio.sleep(1.0)

    run_virtual(body())


def test_a_session_that_has_closed_its_books_can_still_wait_for_them(tmp_path: Path) -> None:
    run = tmp_path / "run"

    async def body(store: Store) -> None:
        store.enter(LedgerRecord(kind="close", session="s", amount=PicoUsd(0), at=0.0))
        await store.durable()
        assert [entry.kind for entry in read_ledger(run)] == ["close"]
        store.append(a_step())
        await store.durable()

    play(run, body)


@pytest.mark.parametrize(("gap_s", "commits"), [(0.001, 1), (0.004, 2)])
def test_replies_that_come_one_after_another_share_a_commit(tmp_path: Path, gap_s: float, commits: int) -> None:
    """Though they take longer than a row waits: what one commit has let go is answered like this."""
    run, rows = tmp_path / "run", 12

    async def body() -> None:
        with open_store(run, session="s", inline=True) as store:
            store.pace(0.05)

            async def player(number: int) -> None:
                await asyncio.sleep(number * gap_s)
                store.append(a_step(f"e{number}"))
                await store.durable()

            async with asyncio.TaskGroup() as group:
                for number in range(rows if commits == 1 else 4):
                    group.create_task(player(number))
            assert len(objects(run)) == commits

    run_virtual(body())


def test_rows_that_go_on_coming_are_committed_all_the_same(tmp_path: Path) -> None:
    """After half of the reply time, or when they are many."""
    run, written = tmp_path / "run", list[float]()

    async def body() -> None:
        loop = asyncio.get_running_loop()
        with open_store(run, session="s", inline=True) as store:
            store.pace(0.1)

            async def player(number: int) -> None:
                await asyncio.sleep(number * 0.001)
                store.append(a_step(f"e{number}"))
                await store.durable()
                written.append(loop.time() - number * 0.001)

            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(player(number))

    run_virtual(body())
    assert len(written) == 200
    assert max(written) <= 0.05 + LOOK_S + 1e-6


def test_commits_take_a_part_of_one_core_however_slow_the_disk_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: cpu[0])
    pace = CommitPace(bucket=False)
    assert pace.due(5.0) == 5.0  # nothing was committed before
    for number in range(LATEST):
        pace.begins(10.0 * number)
        for _ in ("the loop", "the writer"):
            with pace.working():
                cpu[0] += 0.0015
        pace.ends(10.0 * number + 1.0)
    last = 10.0 * (LATEST - 1)
    assert pace.due(last + 0.001) == pytest.approx(last + 0.003 / PART)
    assert pace.due(last + 1.0) == last + 1.0


def test_in_a_bucket_a_row_waits_by_what_a_commit_takes_whenever_the_last_one_was() -> None:
    pace = CommitPace(bucket=True)
    assert pace.due(5.0) == 5.0 + PUT_LEAST_S
    pace.begins(10.0)
    pace.ends(10.4)
    assert pace.due(100.0) == pytest.approx(100.0 + PUTS * 0.4)
    pace.reply_s = 15.0
    assert pace.due(100.0) == pytest.approx(100.0 + SHARE * 15.0)
    pace.reply_s = 60.0
    assert pace.due(100.0) == 100.0 + PUT_MOST_S


def test_a_pace_lets_groups_fill_within_bounds() -> None:
    pace = CommitPace(bucket=False)
    pace.reply_s = 0.05
    assert pace.fills(2, 0.02)
    assert not pace.fills(2, 0.03)
    assert not pace.fills(AMPLE_ROWS, 0.02)
    pace.reply_s = 60.0
    assert not pace.fills(2, MOST_S)


def test_durable_waits_for_a_commit_under_way_and_not_for_rows_to_come(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        await store.durable()  # nothing to wait for
        store.append(a_step())
        first = asyncio.create_task(store.durable())
        await asyncio.sleep(0)
        second = asyncio.create_task(store.durable())
        await asyncio.gather(first, second)
        assert len(objects(tmp_path / "run")) == 1

    play(tmp_path / "run", body)


def test_rows_nobody_waits_for_are_written_soon(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.append(a_step())
        async with asyncio.timeout(PATIENCE_S):
            while not objects(tmp_path / "run"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    play(tmp_path / "run", body)
    assert read_index(tmp_path / "run").rows == 1


def test_a_cancelled_waiter_leaves_the_others_and_the_rows_alone(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.pace(2.0)
        store.append(a_step("a"))
        waiters = [asyncio.create_task(store.durable()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        await asyncio.gather(*waiters[1:])
        assert waiters[0].cancelled()

    play(tmp_path / "run", body)
    assert read_index(tmp_path / "run").rows == 1


def test_leaving_after_a_cancellation_writes_everything(tmp_path: Path) -> None:
    run, entered = tmp_path / "run", asyncio.Event()

    async def go() -> None:
        with open_store(run, session="s") as store:
            for step in range(1500):
                store.append(a_step("a", step))
            store.enter(a_charge())
            entered.set()
            await asyncio.sleep(PATIENCE_S)

    async def cancelled() -> None:
        task = asyncio.create_task(go())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    index = read_index(run)
    assert (index.rows, index.episodes["a"].steps, len(index.ledger)) == (1500, 1500, 1)
    assert read_claim(next(iter(journals(run).values()))[-1])["kind"] == "close"
    assert len(objects(run)) == 1


def test_room_waits_while_the_disk_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_UNWRITTEN", 600)
    most = 0

    async def body(store: Store) -> None:
        nonlocal most
        for step in range(5000):
            store.append(a_step("a", step))
            most = max(most, store._unwritten)
            await store.room()

    play(tmp_path / "run", body)
    assert 600 < most <= 601
    assert read_index(tmp_path / "run").rows == 5000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_fails_every_waiter_and_what_was_durable_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run = tmp_path / "run"

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    async def body(store: Store) -> None:
        store.append(a_step("a", 0))
        await store.durable()
        monkeypatch.setattr(disk, "sync_file", refuse)
        store.append(a_step("a", 1))
        results = await asyncio.gather(*[store.durable() for _ in range(3)], return_exceptions=True)
        assert [type(one) for one in results] == [StorageError] * 3
        calls: list[Callable[[], object]] = [lambda: store.append(a_step("a", 1)), lambda: store.enter(a_charge())]
        for call in calls:
            with pytest.raises(StorageError, match=os.strerror(number)):
                call()
        with pytest.raises(StorageError):
            await store.durable()
        with pytest.raises(StorageError):
            await store.room()
        store.event("still", fine=True)

    with pytest.raises(StorageError, match="start the same command again"):
        play(run, body)
    monkeypatch.undo()
    assert read_index(run).episodes["a"].steps == 1
    write_run(run, [[a_step("a", 1)]])
    assert read_index(run).episodes["a"].steps == 2
    assert not list(run.rglob(".*"))


def test_a_failure_of_the_body_is_not_hidden_by_the_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    async def body(store: Store) -> None:
        store.append(a_step())
        monkeypatch.setattr(disk, "write", refuse)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(tmp_path / "run", body)


def test_every_session_has_a_journal_and_rows_are_in_the_order_of_sessions(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for session in range(6):
        write_run(run, [[a_step("a", session)]], [a_charge(session)])
    assert read_index(run).episodes["a"].steps == 6
    assert [row.amount for row in read_ledger(run)] == list(range(6))
    assert numbers(run) == [(1,)] * 6
    assert [len(ranges(run, kind)) for kind in KINDS] == [6] * 2
    assert first_flaw(run) == ""


def test_a_session_that_is_a_writers_name_names_the_journal_and_others_get_a_name_of_their_own(tmp_path: Path) -> None:
    run, name = tmp_path / "run", new_writer()

    async def body(store: Store) -> None:
        store.append(a_step())
        store.event("here")

    play(run, body, name)
    play(run, body, "reconcile:1")
    first, second = journals(run)
    assert first == name
    assert WRITER.fullmatch(second)
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [line["session"] for line in lines] == [name, "reconcile:1"]


def test_a_session_that_would_come_before_others_gets_a_later_name(tmp_path: Path) -> None:
    run, early = tmp_path / "run", new_writer().rpartition("-")[0] + "-1000.000"
    write_run(run, [[a_step("a", 0)]])

    async def body(store: Store) -> None:
        store.append(a_step("a", 1))

    play(run, body, early)
    assert early not in journals(run)
    assert scan(run, ["step"]).column("step").to_pylist() == [0, 1]


def test_a_session_that_does_nothing_leaves_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [])
    assert contents(run) == {}
    write_run(run, rounds(["a"], 2))
    before = contents(run)
    write_run(run, [])
    assert contents(run) == before


def test_what_a_crash_leaves_is_tidied_and_lost_nothing(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 4))
    dead = next(iter(journals(run)))
    (run / "log" / dead / ".000000004.parquet.17.tmp").write_bytes(b"half")
    (run / "steps" / f".{dead}-000000000-000000003.parquet.tmp").write_bytes(b"half")
    (run / ".live.json.tmp").write_bytes(b"half")
    assert read_index(run).rows == 8
    write_run(run, rounds(["a", "b"], 1, first=4))
    assert read_index(run).episodes["a"].steps == 5
    assert objects(run) == ["000000001.parquet", "000000004.parquet"]  # a close, a seal
    assert not list(run.rglob(".*"))
    assert first_flaw(run) == ""


def test_a_crash_between_compaction_and_deletion_shows_no_row_twice(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    saved = contents(run)
    write_run(run, rounds(["a"], 1, first=3))
    after = contents(run)
    for name, data in saved.items():
        assert not (run / name).exists()
        (run / name).write_bytes(data)
    assert read_index(run).rows == 4
    write_run(run, [])
    assert contents(run) == after
    assert scan(run, ["step"]).column("step").to_pylist() == [0, 1, 2, 3]


def test_a_missing_segment_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    (dead,) = journals(run)
    (run / "log" / dead / "000000001.parquet").unlink()
    before = sorted(path.name for path in run.rglob("*") if path.name != "lock")
    with pytest.raises(CorruptLogError, match=rf"log/{dead}/000000001\.parquet is missing.*verify.*--repair"):
        write_run(run, [[a_step("b", 0)]])
    assert sorted(path.name for path in run.rglob("*") if path.name != "lock") == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_compacted_file_of_any_kind_is_refused(tmp_path: Path, kind: str) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 3), [a_charge()])
    (path,) = (run / kind).iterdir()
    path.unlink()
    with pytest.raises(CorruptLogError, match="is missing"):
        write_run(run, [[a_step("b", 0)]])


def test_a_writer_whose_journal_another_has_ended_stops(tmp_path: Path) -> None:
    run, name = tmp_path / "run", new_writer()

    async def body(store: Store) -> None:
        store.append(a_step("a", 0))
        await store.durable()
        seal(run, name, by="another")
        sealed = contents(run)
        store.append(a_step("a", 1))
        with pytest.raises(FencedError, match="another"):
            await store.durable()
        with pytest.raises(FencedError):
            store.append(a_step("a", 2))
        with pytest.raises(FencedError):
            await store.room()
        assert contents(run) == sealed

    with pytest.raises(FencedError, match="Nothing more is sent"):
        play(run, body, name)
    assert read_index(run).rows == 1
    assert (run / "log" / name / "000000001.parquet").exists()


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(RunError, match=str(os.getpid())), open_store(tmp_path / "run", session="t"):
            pass

    play(tmp_path / "run", body)


def test_events_are_lines_that_keep_odd_values_and_no_keys(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.event("pause", lane="p/m", seconds=1.5)
        store.event("odd", text="half \ud800", path=Path("x"), big=10**30)
        KEYS.learn(key := "sk-planted-0123456789abcdefGHIJ")
        store.event("deferred", detail=f"Wrong key: {key[:20]}... or {key}")

    play(tmp_path / "run", body)
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(line["session"], line["kind"]) for line in lines] == [("s", "pause"), ("s", "odd"), ("s", "deferred")]
    assert lines[2]["detail"] == "Wrong key: ***... or ***"
    assert lines[0]["seconds"] == 1.5
    assert lines[1]["big"] == 10**30
    assert abs(lines[0]["time"] - (tmp_path / "run" / "events.jsonl").stat().st_mtime) < PATIENCE_S


def test_under_virtual_time_commits_happen_inline_and_repeat_exactly(tmp_path: Path) -> None:
    def once(run: Path) -> list[tuple[str, int]]:
        async def go() -> None:
            with open_store(run, session="s", inline=True) as store:

                async def player(number: int) -> None:
                    for step in range(40):
                        await asyncio.sleep(0.1 + number / 100)
                        store.append(a_step(f"e{number}", step))
                        await store.durable()

                async with asyncio.TaskGroup() as group:
                    for number in range(5):
                        group.create_task(player(number))

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(go())
        return [(path.stem[-19:], pq.read_metadata(path).num_rows) for path in sorted((run / "steps").iterdir())]

    first, second = once(tmp_path / "a"), once(tmp_path / "b")
    assert first == second
    assert len(first) > 1  # compaction keeps to the loop's time as well
    assert read_index(tmp_path / "a").rows == 200


def _tail(size: int) -> Tail:
    segment = Segment(kind="steps", path=Path("x"), first=0, last=0, writer="w")
    return Tail(segment=segment, table=None, entries=(), money=NO_MONEY, bytes=size)


def test_batches_grow_with_the_run_and_keep_readers_within_a_minute() -> None:
    backlog = compacting.Backlog(0.0)
    tail = _tail(10)
    waits = []
    for now in (1.0, 100.0, 100_000.0):
        backlog.add(tail, now)
        due = backlog.due_at()
        assert due is not None
        waits.append(due - now)
        backlog.take(now)
    assert waits == [5.0, 12.5, 40.0]
    backlog.add(_tail(compacting.BATCH_BYTES), 7.0)
    assert backlog.due_at() == 7.0


def test_a_writer_whose_journal_was_ended_compacts_nothing_of_it(tmp_path: Path) -> None:
    """It stood still, and wakes up where its next file is due: whoever has ended its journal has written that."""
    own, failed = take_over(tmp_path, new_writer()), list[BaseException]()
    tail = tail_of(own.journal.commit(steps_table([a_step("a", 0)])))
    end_journal(tmp_path, own.journal.writer, by=new_writer([own.journal.writer]))
    before = sorted((tmp_path / "steps").iterdir())
    assert before

    async def go() -> None:
        loop = asyncio.get_running_loop()
        compactor = compacting.Compactor(tmp_path, own.journal.writer, loop, lambda _: Future(), failed.append)
        compactor.add(tail)
        compactor.stop()
        with pytest.raises(FencedError, match="ended this one's journal"):
            compactor.finish()

    asyncio.run(go())
    assert sorted((tmp_path / "steps").iterdir()) == before
