import asyncio
import threading
import time
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

from evalkit.errors import StorageError
from evalkit.store import disk
from evalkit.store.files.layout import journal_object, journals, lay_out
from evalkit.store.files.segment import KINDS, Kind
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger
from evalkit.store.recovery.check import check_log
from evalkit.store.writing import compact as compactor
from evalkit.store.writing.compact import adopt
from evalkit.store.writing.writer import Store, open_store
from tests.support.handmade_logs import append, begin, compact, contents, discard, numbers
from tests.support.patience import PATIENCE_S
from tests.support.run_directories import a_charge, a_step, rounds, write_run
from tests.support.virtual_clock import VirtualLoop

LOOKS = 4
"""Of each reader, that found more than the one before."""
AHEAD = 40
"""Commits during one look: a slow reader would otherwise find more files with each look, and never be done."""


def read_in_a_loop(run: Path, stop: threading.Event, seen: dict[str, list[int]], flaws: list[str]) -> None:
    try:
        while not stop.is_set():
            look(run / "steps", run, seen, flaws)
    except Exception as error:
        flaws.append(repr(error))
        raise


def look(steps: Path, run: Path, seen: dict[str, list[int]], flaws: list[str]) -> None:
    if not any(steps.glob("*.parquet")):
        time.sleep(0.01)
    else:
        with duckdb.connect() as connection:
            query = f"select count(*), count(distinct (episode, step)) from '{steps}/*.parquet'"
            total, distinct = connection.execute(query).fetchall()[0]
        frame = pd.read_parquet(steps, columns=["episode", "step"])
        for name, rows, unique in (
            ("duckdb", total, distinct),
            ("pandas", len(frame), len(frame.drop_duplicates())),
            ("evalkit", read_index(run).rows, -1),
        ):
            seen[name].append(rows)
            if unique not in (-1, rows):
                flaws.append(f"{name}: {rows} rows, {unique} of them distinct")


def test_readers_never_see_a_row_twice_and_never_see_fewer_than_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "LEAST_S", 0.05)
    monkeypatch.setattr(compactor, "MOST_S", 0.05)
    monkeypatch.setattr(compactor, "GRACE_S", 0.1)
    run = tmp_path / "run"
    seen: dict[str, list[int]] = {"duckdb": [], "pandas": [], "evalkit": []}
    flaws: list[str] = []
    written = 0

    async def go() -> None:
        nonlocal written
        with open_store(run, session="s") as store:
            end = time.monotonic() + PATIENCE_S
            looks = since = 0
            while len(list((run / "steps").iterdir())) <= 5 or any(len(set(rows)) < LOOKS for rows in seen.values()):
                assert time.monotonic() < end, seen
                assert flaws == []
                if looks != len(seen["evalkit"]):
                    looks, since = len(seen["evalkit"]), written
                if any((run / "steps").iterdir()) and written - since >= AHEAD:
                    await asyncio.sleep(0.01)
                    continue
                for number in range(20):
                    store.append(a_step(f"e{number}", written))
                written += 1
                await store.durable()

    stop = threading.Event()
    reading = threading.Thread(target=read_in_a_loop, args=(run, stop, seen, flaws))
    reading.start()
    try:
        asyncio.run(go())
    finally:
        stop.set()
        reading.join()
    assert flaws == []
    assert len(list((run / "steps").iterdir())) > 5
    for name, rows in seen.items():
        assert len(set(rows)) >= LOOKS, name
        assert rows == sorted(rows), name
    assert read_index(run).rows == 20 * written
    assert len(list((run / "log").glob("*/*.parquet"))) == 1
    for kind in KINDS:
        assert len(list((run / kind).iterdir())) == len(list((run / "steps").iterdir()))


def test_a_compacted_file_reads_as_json_with_units_and_statistics(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a", "b"], 3))
    with duckdb.connect() as connection:
        query = (
            f"select facts->>'$.calls[0].outcome', reply->>'$.text' from '{run}/steps/*.parquet' order by episode, step"
        )
        assert connection.execute(query).fetchall()[0] == ("ok", "answer 0 of a")
    (path,) = (run / "steps").iterdir()
    assert pq.read_schema(path).field("cost").metadata == {b"unit": b"1e-12 USD"}
    assert pq.read_metadata(path).row_group(0).column(7).statistics.max == 2
    assert pd.read_parquet(path)["reply"][0].startswith('{"calls"')


def test_a_compaction_that_fails_stops_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    real = disk.write

    def refuse(path: Path, data: bytes) -> object:
        if path.parent.name == "steps":
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(disk, "write", refuse)
    with pytest.raises(StorageError, match="steps"):
        write_run(run, rounds(["a"], 2))
    assert read_index(run).rows == 2
    monkeypatch.undo()
    write_run(run, rounds(["a"], 1, first=2))
    assert read_index(run).rows == 3
    assert len(list((run / "steps").iterdir())) == 2  # one of each session


def test_objects_go_when_a_while_has_passed_but_the_newest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under virtual time: two commits that are compacted, a long silence, two more."""
    monkeypatch.setattr(compactor, "BATCH_TAILS", 2)
    run = tmp_path / "run"

    def left() -> tuple[int, ...]:
        return numbers(run)[0]

    async def commit(store: Store, *steps: int) -> None:
        for step in steps:
            store.append(a_step("a", step))
            await store.durable()

    async def go() -> None:
        with open_store(run, session="s", inline=True) as store:
            await commit(store, 0, 1)
            assert len(list((run / "steps").iterdir())) == 1
            assert left() == (0, 1)  # somebody may have just listed them
            await asyncio.sleep(compactor.GRACE_S + 0.5)
            assert left() == (1,)
            await asyncio.sleep(3600.0)
            assert left() == (1,)  # else nothing but names of compacted files would tell how far the journal went
            await commit(store, 2, 3)
            await asyncio.sleep(compactor.GRACE_S - 0.5)
            assert left() == (1, 2, 3)
            await asyncio.sleep(1.0)
            assert left() == (3,)
        assert left() == (4,)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(go())
    assert read_index(run).rows == 4
    assert check_log(run) == []


def held(run: Path) -> tuple[int, list[int]]:
    return read_index(run).rows, [row.amount for row in read_ledger(run)]


STATES: list[tuple[list[tuple[int, int, tuple[Kind, ...]]], list[int]]] = [
    ([], []),
    ([(0, 1, KINDS)], []),
    ([(0, 1, KINDS)], [0]),
    ([(0, 1, KINDS), (2, 3, ("steps",))], [0, 1]),
    ([(0, 1, KINDS), (2, 3, ("ledger",))], [0, 1]),
    ([(0, 3, ("steps",))], []),
    ([(0, 3, KINDS)], [1, 2]),
    ([(0, 1, ("ledger",)), (0, 1, ("steps",)), (2, 2, KINDS)], [1]),
    ([(0, 1, ("steps",)), (2, 3, ("steps",)), (0, 3, ("ledger",))], []),
]
"""What a writer of five commits had compacted when it died, and which objects it had deleted."""


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("ended", ["close", "seal"])
@pytest.mark.parametrize("state", range(len(STATES)))
def test_what_a_dead_writer_left_is_compacted_whatever_it_had_come_to(tmp_path: Path, state: int, ended: str) -> None:
    files, gone = STATES[state]
    dead = begin(tmp_path)
    append(dead, *rounds(["a", "b"], 4), money=[a_charge(3)])
    append(dead, [a_step("a", 4)], money=[a_charge(5)])
    for first, last, kinds in files:
        compact(dead, first, last, kinds)
    for number in gone:
        discard(dead, number, number)
    if ended == "close":
        dead.close()
    before = held(tmp_path)
    assert before == (9, [3, 5])
    own = begin(tmp_path)
    for _ in range(2):  # the second finds nothing to do
        adopt(tmp_path, [dead.writer])
        assert numbers(tmp_path) == [(5,), ()]
        for kind in KINDS:
            layout = lay_out(tmp_path, kind)
            assert (layout.covered, layout.flaws) == ([], [])
            assert [one.first for one in layout.segments if one.is_object] == [5]
    own.withdraw()
    assert held(tmp_path) == before
    assert check_log(tmp_path) == []


def test_what_lies_before_a_compacted_file_is_compacted_too(tmp_path: Path) -> None:
    """As a repair leaves it whose files of one kind are gone, and some objects came back when power was lost."""
    dead = begin(tmp_path)
    append(dead, *rounds(["a"], 4), money=[a_charge(3)])
    compact(dead, 2, 3, ["steps"])
    compact(dead, 0, 3, ["ledger"])
    discard(dead, 2, 3)
    dead.close()
    before = held(tmp_path)
    adopt(tmp_path, [dead.writer])
    assert numbers(tmp_path) == [(4,)]
    assert all([one.first for one in lay_out(tmp_path, kind).segments if one.is_object] == [4] for kind in KINDS)
    assert held(tmp_path) == before
    assert check_log(tmp_path) == []


def test_adopting_dies_with_some_objects_deleted_and_is_done_again(tmp_path: Path) -> None:
    dead = begin(tmp_path)
    append(dead, *rounds(["a"], 4))
    begin(tmp_path).withdraw()
    compact(dead, 0, 3)
    discard(dead, 1, 2)
    adopt(tmp_path, [dead.writer])
    assert (numbers(tmp_path)[0], held(tmp_path)) == ((4,), (4, []))


def test_a_journal_that_has_begun_meanwhile_is_left_to_its_writer(tmp_path: Path) -> None:
    """A process that was suspended while it opened the log may find the journal of one that has taken the run over."""
    begin(tmp_path)
    alive = begin(tmp_path)
    append(alive, *rounds(["a"], 3))
    compact(alive, 0, 0)
    before = contents(tmp_path)
    adopt(tmp_path, [writer for writer in journals(tmp_path) if writer != alive.writer])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("dead", [2, 6])
def test_objects_are_compacted_once_however_many_writers_have_died(tmp_path: Path, dead: int) -> None:
    for number in range(dead):
        append(begin(tmp_path), [a_step(f"e{number}", 0)], [a_step(f"e{number}", 1)])
    write_run(tmp_path, [])
    assert len(list((tmp_path / "steps").iterdir())) == dead
    assert [len(own) for own in numbers(tmp_path)] == [1] * dead
    assert journal_object(tmp_path, next(iter(journals(tmp_path))), 2).path.exists()
