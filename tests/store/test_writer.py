import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError, RunError, StorageError
from evalkit.store import compactor, disk, writer
from evalkit.store.index import read_index
from evalkit.store.reader import read_ledger, scan
from evalkit.store.writer import Store, open_store
from tests.clock import VirtualLoop
from tests.logs import a_charge, a_step, rounds, write_run, write_tails
from tests.patience import PATIENCE_S
from tests.store.test_disk import OPERATIONS, Shim, durable


def play(run: Path, body: Callable[[Store], Awaitable[None]]) -> None:
    async def go() -> None:
        with open_store(run, session="s") as store:
            await body(store)

    asyncio.run(go())


def tails(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "tail").iterdir())


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    commits = rounds(["b", "a"], 3)
    run = write_run(tmp_path / "run", commits, [a_charge(7)])
    table = scan(run, ["episode", "step", "reply", "cost"])
    assert list(zip(*table.to_pydict().values(), strict=True)) == [
        (row.episode, row.step, str(row.reply, "ascii"), row.cost)
        for row in sorted(chain(*commits), key=lambda row: (row.episode, row.step))
    ]
    assert read_ledger(run) == [a_charge(7)]
    assert tails(run) == []
    assert [path.name for path in (run / "steps").iterdir()] == ["000000000-000000002.parquet"]


@pytest.mark.parametrize("left_out", ["", *OPERATIONS])
def test_durable_returns_when_all_four_operations_are_done_money_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    run = tmp_path / "run"
    write_tails(run, [])
    shim = Shim(monkeypatch, without=left_out)
    seen: list[tuple[str, str]] = []

    async def body(store: Store) -> None:
        shim.done.clear()
        store.append(a_step())
        store.enter(a_charge())
        await store.durable()
        seen.extend(shim.done)

    with pytest.MonkeyPatch.context() as patch:
        # Only the commit is looked at; the rest would stumble over what was left out.
        patch.setattr(Store, "close", lambda self, quiet: None)
        play(run, body)
    steps, ledger = ("000000000.parquet", "tail"), ("000000000.parquet", "ledger")
    sound = durable(seen, *ledger) and durable(seen, *steps)
    assert sound is (left_out == "")
    if sound:
        assert seen.index(("sync_directory", "ledger")) < seen.index(("sync_directory", "tail"))


def test_many_waiters_share_few_commits(tmp_path: Path) -> None:
    run = tmp_path / "run"

    async def body(store: Store) -> None:
        store.pace(0.2)

        async def player(episode: str) -> None:
            for step in range(3):
                store.append(a_step(episode, step))
                await store.durable()

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(player(f"e{number}"))
        assert 3 <= len(tails(run)) <= 6

    play(run, body)
    index = read_index(run)
    assert index.rows == 600
    assert {held.steps for held in index.episodes.values()} == {3}


def test_durable_waits_for_a_commit_under_way_and_not_for_rows_to_come(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        await store.durable()  # nothing to wait for
        store.append(a_step())
        first = asyncio.create_task(store.durable())
        await asyncio.sleep(0)
        second = asyncio.create_task(store.durable())
        await asyncio.gather(first, second)
        assert len(tails(tmp_path / "run")) == 1

    play(tmp_path / "run", body)


def test_rows_nobody_waits_for_are_written_soon(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.append(a_step())
        async with asyncio.timeout(PATIENCE_S):
            while not tails(tmp_path / "run"):  # noqa: ASYNC110
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
    run = tmp_path / "run"

    async def go() -> None:
        with open_store(run, session="s") as store:
            for step in range(1500):
                store.append(a_step("a", step))
            store.enter(a_charge())
            await asyncio.sleep(3600)

    async def cancelled() -> None:
        task = asyncio.create_task(go())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    index = read_index(run)
    assert (index.rows, index.episodes["a"].steps, len(index.ledger)) == (1500, 1500, 1)
    assert tails(run) == []


def test_room_waits_while_the_disk_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_UNWRITTEN", 600)
    most = 0

    async def body(store: Store) -> None:
        nonlocal most
        for step in range(5000):
            store.append(a_step("a", step))
            most = max(most, store.unwritten)
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
        for call in (lambda: store.append(a_step("a", 1)), lambda: store.enter(a_charge())):
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


def test_a_later_session_goes_on_numbering_and_money_files_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(writer, "MANY_LEDGERS", 2)
    for session in range(6):
        write_run(run, [[a_step("a", session)]], [a_charge(session)])
    assert read_index(run).episodes["a"].steps == 6
    assert [row.amount for row in read_ledger(run)] == list(range(6))
    assert sorted(path.name for path in (run / "ledger").iterdir())[0] == "000000000-000000004.parquet"


def test_what_a_crash_leaves_is_tidied_and_lost_nothing(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a", "b"], 4))
    (run / "tail" / ".000000004.parquet.tmp").write_bytes(b"half")
    (run / "steps" / ".000000000-000000003.parquet.tmp").write_bytes(b"half")
    (run / ".run.json.tmp").write_bytes(b"half")
    assert read_index(run).rows == 8
    write_run(run, rounds(["a", "b"], 1, first=4))
    assert read_index(run).episodes["a"].steps == 5
    assert tails(run) == []
    assert not list(run.rglob(".*"))


def test_a_crash_between_compaction_and_deletion_shows_no_row_twice(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    saved = {path.name: path.read_bytes() for path in (run / "tail").iterdir()}
    write_run(run, rounds(["a"], 1, first=3))
    for name, data in saved.items():
        (run / "tail" / name).write_bytes(data)
    assert read_index(run).rows == 4
    write_run(run, [])
    assert tails(run) == []
    assert scan(run, ["step"]).column("step").to_pylist() == [0, 1, 2, 3]


def test_a_missing_segment_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    (run / "tail" / "000000001.parquet").unlink()
    before = sorted(path.name for path in run.rglob("*") if path.name != "lock")
    with pytest.raises(CorruptLogError, match=r"tail/000000001\.parquet is missing.*verify.*--repair"):
        write_run(run, [[a_step("b", 0)]])
    assert sorted(path.name for path in run.rglob("*") if path.name != "lock") == before


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(RunError, match=str(os.getpid())), open_store(tmp_path / "run", session="t"):
            pass

    play(tmp_path / "run", body)


def test_events_are_lines_that_keep_odd_values(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        store.event("pause", lane="p/m", seconds=1.5)
        store.event("odd", text="half \ud800", path=Path("x"), big=10**30)

    play(tmp_path / "run", body)
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(line["session"], line["kind"]) for line in lines] == [("s", "pause"), ("s", "odd")]
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
        return [(path.name, path.stat().st_size) for path in sorted((run / "steps").iterdir())]

    first, second = once(tmp_path / "a"), once(tmp_path / "b")
    assert first == second
    assert len(first) > 1  # compaction keeps to the loop's time as well
    assert read_index(tmp_path / "a").rows == 200


def test_batches_grow_with_the_run_and_keep_readers_within_a_minute() -> None:
    backlog = compactor.Backlog(0.0)
    tail = compactor.Tail(segment=None, table=None, bytes=10)  # type: ignore[arg-type]
    waits = []
    for now in (1.0, 100.0, 100_000.0):
        backlog.add(tail, now)
        due = backlog.due_at()
        assert due is not None
        waits.append(due - now)
        backlog.take(now)
    assert waits == [5.0, 12.5, 40.0]
    backlog.add(compactor.Tail(segment=None, table=None, bytes=compactor.BATCH_BYTES), 7.0)  # type: ignore[arg-type]
    assert backlog.due_at() == 7.0
