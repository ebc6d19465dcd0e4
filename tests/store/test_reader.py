import os
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.errors import CorruptLogError, RunError
from evalkit.store import reader, segment
from evalkit.store.effect import rows_in_effect
from evalkit.store.reader import ReplayRow, read_index, read_ledger, replay_rows, scan
from evalkit.store.schema import STEPS, ledger_table, steps_table
from evalkit.store.segment import encode_segment, lay_out
from tests.logs import a_charge, a_step, rounds, write_run, write_tails


def test_a_run_without_a_log_is_empty(tmp_path: Path) -> None:
    index = read_index(tmp_path)
    assert (dict(index.episodes), index.rows, index.ledger, index.next_steps) == ({}, 0, (), 0)
    assert index.totals["cost"] == 0
    assert read_ledger(tmp_path) == []
    assert replay_rows(tmp_path, {"a"}) == {}
    assert scan(tmp_path, ["reply", "step"]).num_rows == 0


@pytest.mark.parametrize("write", [write_run, write_tails])
def test_the_index_says_what_is_held_spent_and_owed(tmp_path: Path, write: object) -> None:
    rows = rounds(["a", "b"], 3)
    rows.append([a_step("a", 3, ending="stable", agent="other", worker="host:2")])
    run = write(tmp_path / "run", rows)  # type: ignore[operator]
    index = read_index(run)
    assert dict(index.episodes) == {
        "a": reader.HeldEpisode(steps=4, take=0, ending="stable", cost=1000 + 1001 + 1002 + 1003),
        "b": reader.HeldEpisode(steps=3, take=0, ending="", cost=1000 + 1001 + 1002),
    }
    assert index.rows == 7
    assert index.cost_by_agent == {"knuth": 2 * 3003, "other": 1003}
    assert index.cost_by_worker == {"host:1": 2 * 3003, "host:2": 1003}
    assert index.totals == {
        "cost": 7009,
        "tokens_in": 100 * 7 + 9,
        "tokens_out": 70,
        "tokens_cached_read": 21,
        "tokens_cached_write": 14,
        "tokens_reasoning": 7,
    }
    assert index.next_steps == 4


def test_a_retry_supersedes_from_its_first_step_on_but_was_paid_for(tmp_path: Path) -> None:
    old = [a_step("a", step, ending="refusal" if step == 3 else "") for step in range(4)]
    new = [a_step("a", step, take=1, reply=b'{"new":1}') for step in (2, 3, 4)]
    run = write_run(tmp_path / "run", [old, new])
    held = read_index(run).episodes["a"]
    assert (held.steps, held.take, held.ending) == (5, 1, "")
    assert held.cost == sum(row.cost for row in old + new)
    assert [(row.step, row.take) for row in replay_rows(run, {"a"})["a"]] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]
    assert scan(run, ["take"]).column("take").to_pylist() == [0, 0, 1, 1, 1]


def test_rows_to_replay_are_those_that_were_logged(tmp_path: Path) -> None:
    commits = rounds(["a", "b", "c"], 3)
    commits.append([a_step("b", 3, reply=None, ending="content_filter")])
    run = write_tails(tmp_path / "run", commits)
    found = replay_rows(run, {"b", "c", "unknown"})
    assert set(found) == {"b", "c"}
    wanted = [row for rows in commits for row in rows if row.episode == "b"]
    names = [field.name for field in fields(ReplayRow)]
    assert found["b"] == [ReplayRow(**{name: getattr(row, name) for name in names}) for row in wanted]


def test_a_table_has_the_columns_asked_for_in_the_order_of_episodes_and_steps(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", [rows[::-1] for rows in rounds(["c", "a", "b"], 2)])
    table = scan(run, STEPS.names)
    assert table.schema.names == STEPS.names
    assert table.column("episode").to_pylist() == ["a", "a", "b", "b", "c", "c"]
    assert table.column("step").to_pylist() == [0, 1] * 3
    assert table.column("request_digest").to_pylist() == [b"q%015d" % step for step in (0, 1)] * 3
    assert scan(run, ["facts"]).schema.names == ["facts"]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 4)), unique=True, max_size=30))
def test_rows_in_effect_are_those_of_the_definition(rows: list[tuple[int, int, int]]) -> None:
    first: dict[tuple[int, int], int] = {}
    for episode, take, step in rows:
        first[episode, take] = min(step, first.get((episode, take), step))

    def superseded(episode: int, take: int, step: int) -> bool:
        return any(one == episode and later > take and step >= at for (one, later), at in first.items())

    live = sorted((row for row in rows if not superseded(*row)), key=lambda row: (row[0], row[2]))
    episode, take, step = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    effect = rows_in_effect(episode, take, step, 3)
    assert [rows[number] for number in effect.order] == live
    for number in range(3):
        mine = [row[2] for row in live if row[0] == number]
        gap = next((place for place, at in enumerate(mine) if at != place), None)
        found = [step for one, step, what in effect.gaps if one == number and what == "missing"]
        assert found == ([] if gap is None else [gap])


def test_an_episode_without_a_step_is_refused(tmp_path: Path) -> None:
    run = write_tails(tmp_path / "run", [[a_step("a", 0)], [a_step("a", 2)]])
    with pytest.raises(CorruptLogError, match=r"episode a lacks its step 1.*verify"):
        read_index(run)
    run = write_tails(tmp_path / "other", [[a_step("a", 0)], [a_step("a", 0)]])
    with pytest.raises(CorruptLogError, match="episode a has twice step 0"):
        scan(run, ["reply"])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("remove", r"tail/000000001\.parquet is missing"),
        ("tear", r"tail/000000001\.parquet is damaged"),
        ("empty", r"tail/000000001\.parquet is damaged"),
        ("swap", r"tail/000000001\.parquet holds segments 2 to 2: it was renamed or swapped"),
        ("flip", r"tail/000000001\.parquet is damaged .*CRC"),
        ("foreign", r"tail/mine\.parquet is no segment"),
        ("ledger", r"tail/000000001\.parquet is no segment of steps"),
        ("recent", r"tail/000000005\.parquet is missing"),
    ],
)
def test_a_damaged_log_is_refused_by_name(tmp_path: Path, harm: str, words: str) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 6))
    one, two = run / "tail" / "000000001.parquet", run / "tail" / "000000002.parquet"
    data = one.read_bytes()
    if harm == "remove":
        one.unlink()
    elif harm == "tear":
        one.write_bytes(data[: len(data) // 2])
    elif harm == "empty":
        one.write_bytes(b"")
    elif harm == "swap":
        one.write_bytes(two.read_bytes())
        two.write_bytes(data)
    elif harm == "flip":
        place = data.index(b"answer 1")
        one.write_bytes(data[:place] + b"A" + data[place + 1 :])
    elif harm == "foreign":
        (run / "tail" / "mine.parquet").write_bytes(data)
    elif harm == "ledger":
        one.write_bytes(encode_segment(ledger_table([a_charge()]), "ledger", 1, 1, compacted=False))
    else:
        (run / segment.MARK).write_bytes(segment.encode_mark(steps=6, ledger=0))
        (run / "tail" / "000000005.parquet").unlink()
    with pytest.raises(CorruptLogError, match=rf"{words}.*evalkit verify.*--repair"):
        scan(run, ["reply"])


def test_a_log_of_a_newer_evalkit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(segment, "FORMAT", 2)
        run = write_tails(tmp_path / "run", [[a_step()]])
    with pytest.raises(RunError, match="log format 2"):
        read_index(run)


def test_a_file_that_compaction_moves_meanwhile_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_tails(tmp_path / "run", rounds(["a"], 3))
    looks = []

    def first_see_then_lose(where: Path, kind: segment.Kind) -> segment.Layout:
        layout = lay_out(where, kind)
        looks.append(kind)
        if len(looks) == 1:
            write_run(run, [])  # compacts and deletes the tails that were just listed
        return layout

    monkeypatch.setattr(reader, "lay_out", first_see_then_lose)
    assert scan(run, ["step"]).column("step").to_pylist() == [0, 1, 2]
    assert len(looks) == 2


def test_reading_leaves_no_segment_open(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files are listed in /proc")
    run = write_tails(tmp_path / "run", rounds(["a"], 5))
    read_index(run)
    table = scan(run, ["reply"])
    links = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert table.num_rows == 5
    assert [link for link in links if link.startswith(str(run.resolve()))] == []


def test_an_index_over_many_rows_costs_little_more_than_reading_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "steps").mkdir(parents=True)
    block = steps_table([a_step(f"e{number}", step) for step in range(8) for number in range(250)])
    for number in range(100):
        episode = [f"{number}-{name}" for name in block.column("episode").to_pylist()]
        table = block.set_column(0, STEPS.field("episode"), pa.array(episode))
        path = run / "steps" / segment.segment_name(number, number)
        path.write_bytes(encode_segment(table, "steps", number, number, compacted=True))

    def cpu(work: object) -> float:
        began = time.process_time()
        work()  # type: ignore[operator]
        return time.process_time() - began

    files = sorted((run / "steps").iterdir())
    whole = min(cpu(lambda: [pq.read_table(path, use_threads=False) for path in files]) for _ in range(3))
    index = read_index(run)
    assert (index.rows, len(index.episodes)) == (200_000, 25_000)
    assert min(cpu(lambda: read_index(run)) for _ in range(3)) < 8 * whole
