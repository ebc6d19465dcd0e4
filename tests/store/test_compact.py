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
from evalkit.store.files.chain import check_chain
from evalkit.store.files.journal import head_of, heads_of
from evalkit.store.files.layout import compacted, journals
from evalkit.store.files.segment import KINDS, read_claim
from evalkit.store.reading.index import read_index
from evalkit.store.writing import adopt as compactor
from evalkit.store.writing.writer import open_store
from tests.support.patience import PATIENCE_S
from tests.support.run_directories import a_step, rounds, write_run
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

    def refuse(path: Path, data: memoryview) -> object:
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


def test_objects_go_once_a_later_one_names_what_holds_their_rows_and_a_while_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under virtual time: two commits that are compacted, a long silence, a commit that names the files, the grace."""
    monkeypatch.setattr(compactor, "BATCH_TAILS", 2)
    run = tmp_path / "run"

    def numbers() -> tuple[int, ...]:
        return journals(run)[0].numbers

    async def go() -> None:
        with open_store(run, session="s", inline=True) as store:
            for step in range(2):
                store.append(a_step("a", step))
                await store.durable()
            await asyncio.sleep(3600.0)
            assert len(list((run / "steps").iterdir())) == 1
            assert numbers() == (0, 1)  # nothing names the file: nobody but its name says what it holds
            store.append(a_step("a", 2))
            await store.durable()
            assert "compacted" in read_claim(journals(run)[0].object(run, 2))
            await asyncio.sleep(compactor.GRACE_S - 0.5)
            assert numbers() == (0, 1, 2)
            await asyncio.sleep(1.0)
            assert numbers() == (2,)
        assert numbers() == (3,)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(go())
    assert read_index(run).rows == 3
    assert check_chain(run) == []


def test_the_file_that_holds_the_first_object_repeats_what_that_said_of_other_journals(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds(["a"], 2))
    write_run(run, rounds(["a"], 2, first=2))
    first, second = (one.writer for one in journals(run))
    file = compacted(run, "steps", second, 0, 1)
    assert heads_of(read_claim(file), file.name) == {first: head_of(run, first)}
