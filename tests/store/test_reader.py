import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.errors import CorruptLogError
from evalkit.store.files import layout, segment
from evalkit.store.files.journal import Appender
from evalkit.store.files.layout import compacted, lay_out
from evalkit.store.files.record import ASK, CUT
from evalkit.store.files.schema import STEPS, UNASKED, ledger_table, steps_table
from evalkit.store.files.segment import NO_MONEY, encode_compacted
from evalkit.store.reading import looking, reader
from evalkit.store.reading.effect import rows_in_effect
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import (
    ReplayRow,
    ask_rows,
    asks_made,
    cuts,
    facts_of,
    read_ledger,
    replay_rows,
    scan,
    scan_all,
    superseded,
)
from tests.support.handmade_logs import append, begin, compact, discard
from tests.support.log_contents import LOGS, new_log
from tests.support.log_rows import a_charge, a_step, rounds
from tests.support.work import counting, modules_reached


def test_a_run_without_a_log_is_empty(tmp_path: Path) -> None:
    index = read_index(tmp_path)
    assert (dict(index.episodes), index.rows, index.ledger) == ({}, 0, ())
    assert index.totals["cost"] == 0
    assert read_ledger(tmp_path) == []
    assert replay_rows(tmp_path, {"a"}) == {}
    assert scan(tmp_path, ["reply", "step"]).num_rows == 0


Write = Callable[..., Path]
"""One of LOGS."""


@pytest.mark.parametrize("write", LOGS)
def test_the_index_says_what_is_held_spent_and_owed(tmp_path: Path, write: Write) -> None:
    rows = rounds(["a", "b"], 3)
    rows.append([a_step("a", 3, ending="stable"), a_step("c", 3, agent="other", take=1)])
    rows[0].append(a_step("c", 0, agent="other"))
    rows[1].append(a_step("c", 1, agent="other"))
    rows[2].append(a_step("c", 2, agent="other"))
    index = read_index(write(tmp_path / "run", rows))
    a, b, c = (index.episodes[name] for name in "abc")
    assert (a.steps, a.take, a.ending, a.cost) == (4, 0, "stable", 1000 + 1001 + 1002 + 1003)
    assert (b.steps, b.take, b.ending, b.cost) == (3, 0, "", 1000 + 1001 + 1002)
    assert (c.steps, c.take, c.requests, c.agent, c.replicate) == (4, 1, 4, "other", 0)
    assert index.rows == 11
    assert index.cost_by_agent == {"knuth": 2 * 3003 + 1003, "other": 4006}
    assert index.cost_by_worker == {rows[0][0].worker: 11015}
    assert index.totals == {
        "cost": 11015,
        "tokens_in": 100 * 11 + 9 + 6,
        "tokens_out": 110,
        "tokens_cached_read": 33,
        "tokens_cached_write": 22,
        "tokens_reasoning": 11,
    }


@pytest.mark.parametrize("write", LOGS)
def test_a_retry_supersedes_from_its_first_step_on_but_was_paid_for(tmp_path: Path, write: Write) -> None:
    old = [a_step("a", step, ending="refusal" if step == 3 else "") for step in range(4)]
    new = [a_step("a", step, take=1, reply=b'{"new":1}') for step in (2, 3, 4)]
    run = write(tmp_path / "run", [old, new])
    held = read_index(run).episodes["a"]
    assert (held.steps, held.take, held.ending) == (5, 1, "")
    assert held.cost == sum(row.cost for row in old + new)
    assert [(row.step, row.take) for row in replay_rows(run, {"a"})["a"]] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]
    assert scan(run, ["take"]).column("take").to_pylist() == [0, 0, 1, 1, 1]
    assert superseded(run).to_pylist() == [{"episode": "a", "take": 0, "step": step} for step in (2, 3)]


@pytest.mark.parametrize("write", LOGS)
def test_rows_to_replay_are_those_that_were_logged(tmp_path: Path, write: Write) -> None:
    commits = rounds(["a", "b", "c"], 3)
    commits.append([a_step("b", 3, reply=None, ending="content_filter")])
    run = write(tmp_path / "run", commits)
    found = replay_rows(run, {"b", "c", "unknown"})
    assert set(found) == {"b", "c"}
    wanted = [row for rows in commits for row in rows if row.episode == "b"]
    names = [field.name for field in fields(ReplayRow)]
    assert found["b"] == [ReplayRow(**{name: getattr(row, name) for name in names}) for row in wanted]


@pytest.mark.parametrize("write", LOGS)
def test_a_table_has_the_columns_asked_for_in_the_order_of_episodes_and_steps(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", [rows[::-1] for rows in rounds(["c", "a", "b"], 2)])
    table = scan(run, STEPS.names)
    assert table.schema.names == STEPS.names
    assert table.column("episode").to_pylist() == ["a", "a", "b", "b", "c", "c"]
    assert table.column("step").to_pylist() == [0, 1] * 3
    assert table.column("request_digest").to_pylist() == [b"q%015d" % step for step in (0, 1)] * 3
    assert scan(run, ["facts"]).schema.names == ["facts"]
    assert {name: set(table.column(name).to_pylist()) for name in UNASKED} == {n: {v} for n, v in UNASKED.items()}


@pytest.mark.parametrize("steps", [(), ("b",)])
def test_an_ask_before_its_episode_s_first_step_is_no_row_of_a_table(tmp_path: Path, steps: tuple[str, ...]) -> None:
    rows = [replace(a_step("a", 0), row_kind=ASK, ask_key="draft"), *(a_step(name, 0) for name in steps)]
    table = scan(new_log(tmp_path / "run", [rows]), ["episode", "cost"])
    assert table.to_pydict() == {"episode": list(steps), "cost": [1000 for _ in steps]}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 4)), unique=True, max_size=30))
def test_rows_in_effect_are_those_of_the_definition(rows: list[tuple[int, int, int]]) -> None:
    first: dict[tuple[int, int], int] = {}
    for episode, take, step in rows:
        first[episode, take] = min(step, first.get((episode, take), step))

    def superseded(episode: int, take: int, step: int) -> bool:
        return any(one == episode and later > take and step >= at for (one, later), at in first.items())

    live = sorted((row for row in rows if not superseded(*row)), key=lambda row: (row[0], row[2]))
    of_episode, of_take, of_step = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    effect = rows_in_effect(of_episode, of_take, of_step, 3)
    assert [rows[number] for number in effect.order] == live
    for number in range(3):
        mine = [row[2] for row in live if row[0] == number]
        gap = next((place for place, at in enumerate(mine) if at != place), None)
        found = [step for one, step, what in effect.gaps if one == number and what == "missing"]
        assert found == ([] if gap is None else [gap])


@pytest.mark.parametrize("write", LOGS)
def test_a_cut_makes_void_what_follows_it_and_is_no_step(tmp_path: Path, write: Write) -> None:
    """Steps and asks of lower takes from there on, though they were paid for; what is played on counts."""
    steps = [a_step("a", step, ending="done" if step == 4 else "") for step in (0, 1, 3, 4)]
    asks = [replace(a_step("a", step, turn=turn), row_kind=ASK, ask_n=turn) for step in (1, 3) for turn in (0, 1)]
    cut = a_step("a", 2, take=1, cost=0, tokens_in=0, row_kind=CUT, attempts="")
    run = write(tmp_path / "run", [[*steps, *asks, a_step("b", 0)], [cut]])
    held = read_index(run).episodes["a"]
    assert (held.steps, held.take, held.ending, held.requests) == (2, 1, "", 8)
    assert held.cost == sum(row.cost for row in (*steps, *asks))
    assert scan(run, ["episode", "step"]).to_pydict() == {"episode": ["a", "a", "b"], "step": [0, 1, 0]}
    assert [row.step for row in replay_rows(run, {"a"})["a"]] == [0, 1]
    assert [(row.step, row.turn) for row in ask_rows(run, {"a"})["a"]] == [(1, 0), (1, 1)]
    assert [row["step"] for row in asks_made(run, {"a": None})["a"]] == [1, 1]
    assert scan_all(run, STEPS.names).num_rows == 9
    assert superseded(run).to_pylist() == [{"episode": "a", "take": 0, "step": step} for step in (3, 4)]
    assert cuts(run).to_pylist() == [{"episode": "a", "take": 1, "step": 2}]
    assert facts_of(run, {"a"}) == {"a": [row.facts for row in steps[:2]]}
    write(run, [[a_step("a", step, take=2, ending="done" if step == 3 else "") for step in (2, 3)]])
    held = read_index(run).episodes["a"]
    assert (held.steps, held.take, held.ending) == (4, 2, "done")
    assert scan(run, ["take"], "a").column("take").to_pylist() == [0, 0, 2, 2]


@pytest.mark.parametrize("write", LOGS)
def test_an_episode_that_is_cut_at_its_first_step_has_none(tmp_path: Path, write: Write) -> None:
    run = write(tmp_path / "run", [[a_step("a", 1)], [a_step("a", 0, take=1, cost=0, row_kind=CUT)]])
    held = read_index(run).episodes["a"]
    assert (held.steps, held.take, held.ending, held.ended) == (0, 1, "", False)
    assert (scan(run, ["step"]).num_rows, list(replay_rows(run, {"a"}).get("a", ()))) == (0, [])
    assert "a" in read_index(run).remaining()


def test_an_episode_without_a_step_is_refused(tmp_path: Path) -> None:
    run = new_log(tmp_path / "run", [[a_step("a", 0)], [a_step("a", 2)]])
    with pytest.raises(CorruptLogError, match=r"episode a lacks its step 1.*verify"):
        read_index(run)
    run = new_log(tmp_path / "other", [[a_step("a", 0)], [a_step("a", 0)]])
    with pytest.raises(CorruptLogError, match="episode a has twice step 0"):
        scan(run, ["reply"])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("remove", "000000001.parquet is missing"),
        ("tear", "000000001.parquet is damaged"),
        ("empty", "000000001.parquet is damaged"),
        ("swap", "000000001.parquet is object 2 of .*: it was renamed or swapped"),
        ("flip", "000000001.parquet is damaged .*"),
        ("foreign", "mine.parquet is not an object"),
        ("ledger", "000000001.parquet is not an object of a journal"),
        ("recent", "000000005.parquet is missing"),
    ],
)
def test_a_damaged_log_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str, words: str
) -> None:
    monkeypatch.setattr(looking, "PAUSE_S", 0)
    run = new_log(tmp_path / "run", rounds(["a"], 6))
    (folder,) = (run / "log").iterdir()
    one, two = folder / "000000001.parquet", folder / "000000002.parquet"
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
        (folder / "mine.parquet").write_bytes(data)
    elif harm == "ledger":
        one.write_bytes(
            encode_compacted(compacted(run, "ledger", folder.name, 1, 1), ledger_table([a_charge()]), NO_MONEY)
        )
    else:
        compact(reopened(folder, 6), 0, 5)
        discard(reopened(folder, 6), 0, 5)
    with pytest.raises(CorruptLogError, match=rf"log/{folder.name}/{words}.*evalkit verify.*--repair"):
        scan(run, ["reply"])


def reopened(folder: Path, number: int) -> Appender:
    """A journal as its writer would go on with it."""
    return Appender(run=folder.parent.parent, writer=folder.name, number=number)


@pytest.mark.parametrize("read", [lambda run: scan(run, ["step"]).num_rows, lambda run: read_index(run).rows])
def test_a_file_that_compaction_moves_meanwhile_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], int]
) -> None:
    journal = begin(tmp_path)
    append(journal, *rounds(["a"], 3))
    looks: list[object] = []
    plain = lay_out

    def first_see_then_lose(where: Path, kind: segment.Kind) -> layout.Layout:
        found = plain(where, kind)
        looks.append(kind)
        if len(looks) == 1:
            compact(journal, 0, 2)
            journal.commit(None)
            discard(journal, 0, 2)  # these were just listed
        return found

    monkeypatch.setattr(looking, "lay_out", first_see_then_lose)
    assert read(tmp_path) == 3
    assert len(looks) > 1


@pytest.mark.parametrize("write", LOGS)
def test_reading_leaves_no_segment_open(tmp_path: Path, write: Write) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files are listed in /proc")
    run = write(tmp_path / "run", rounds(["a"], 5))
    read_index(run)
    table = scan(run, ["reply"])
    links = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert table.num_rows == 5
    assert [link for link in links if link.startswith(str(run.resolve()))] == []


def test_only_compacted_files_that_hold_an_episode_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begin(tmp_path)
    for number, name in enumerate("abc"):
        rows = rounds([name], 2)
        append(journal, rows[0] + rows[1])
        compact(journal, number, number)
    seen = []

    def read(one: segment.Segment, columns: Sequence[str], *more: Any) -> Any:
        seen.append((one.first, "reply" in columns))
        return segment.read_segment(one, columns, *more)

    monkeypatch.setattr(reader, "read_segment", read)
    assert set(replay_rows(tmp_path, {"b"})) == {"b"}
    assert [number for number, whole in seen if whole] == [1]


def test_an_index_over_many_rows_leaves_the_rows_to_c(tmp_path: Path) -> None:
    """What is done for each row is done over whole columns: else it would take many times as long as reading them."""
    few, many = (write_blocks(tmp_path / str(steps), steps) for steps in (2, 64))
    reached = modules_reached(lambda: read_index(few))
    before, after = (turns(read_index, run, reached) for run in (few, many))
    index = read_index(many)
    assert (index.rows, len(index.episodes)) == (64 * 200, 200)
    assert before > 200
    assert after < before + 3 * index.rows  # a comprehension or two over a column of ids


def turns(work: Callable[[Path], object], run: Path, modules: set[str]) -> int:
    """Calls and turns of loops."""
    with counting() as counted:
        for module in modules:
            counted.look_into(module)
        work(run)
    return counted.turns


def write_blocks(run: Path, steps: int) -> Path:
    """A run of 10 files with 20 episodes each."""
    journal = begin(run)
    for number in range(10):
        journal.commit(steps_table([a_step(f"{number}-{name}", step) for step in range(steps) for name in range(20)]))
    return run
