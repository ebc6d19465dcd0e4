import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from evalkit.store.files.layout import lay_out
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import ENDS, conform, steps_table
from evalkit.store.files.segment import read_segment
from evalkit.store.reading import ends
from evalkit.store.reading.ends import SUMS, UNKNOWN, Standing, ends_table, fold, read_standings, settle
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan
from tests.support.run_directories import a_step, rounds, write_run, write_tails


def nothing_read(_: object) -> Mapping[str, Sequence[bytes]]:
    raise AssertionError("nothing is to be read back")


def check_ends(run: Path) -> None:
    """Of each episode the last row of `ends/` says what reading all its rows gives, once all is compacted."""
    files = lay_out(run, "ends").segments
    rows = {row["episode"]: row for file in files if not file.is_object for row in read_segment(file).to_pylist()}
    facts: dict[str, list[object]] = {}
    for name, text in zip(*scan(run, ("episode", "facts")).to_pydict().values(), strict=True):
        facts.setdefault(name, []).append(json.loads(text))
    held = read_index(run).episodes
    assert rows.keys() == held.keys()
    for name, one in held.items():
        row = rows[name]
        assert (row["steps"], row["take"], row["ending"]) == (one.steps, one.take, one.ending)
        assert (row["requests"], row["cost"]) == (one.requests, one.cost)
        assert tuple(row[token] for token in SUMS[:5]) == one.tokens
        if one.ending:
            assert json.loads(row["facts"]) == facts[name]
        else:
            assert row["facts"] is None


def history(seed: int) -> list[StepRecord]:
    """Rows of some episodes as they are written: in order, each episode in one take or in several."""
    dice = random.Random(seed)
    rows = []
    at = {f"e{number}": (0, 0) for number in range(5)}
    for _ in range(60):
        name = dice.choice(list(at))
        step, take = at[name]
        if step and dice.random() < 0.2:
            step, take = dice.randrange(step + 1), take + 1
        ending = "done" if dice.random() < 0.2 else ""
        facts = json.dumps({"step": step, "take": take, "é": "x" * dice.randrange(3)}, ensure_ascii=False).encode()
        rows.append(a_step(name, step, take=take, ending=ending, facts=facts))
        at[name] = (step + 1, take)
    return rows


@pytest.mark.exhaustive(but=10)
@pytest.mark.parametrize("seed", range(40))
def test_folding_in_parts_gives_what_reading_all_rows_gives(tmp_path: Path, seed: int) -> None:
    rows = history(seed)
    dice = random.Random(seed)
    cuts = sorted({0, len(rows), *(dice.randrange(len(rows)) for _ in range(4))})
    standings: dict[str, Standing] = {}
    for begin, end in pairwise(cuts):
        touched = fold(standings, steps_table(rows[begin:end]))
        assert sorted(touched) == sorted({row.episode for row in rows[begin:end]})
    run = write_run(tmp_path / "run", [rows])
    for name, one in read_index(run).episodes.items():
        found = standings[name]
        assert (found.steps, found.take, found.ending) == (one.steps, one.take, one.ending)
        assert (found.requests, tuple(found.sums)) == (one.requests, (*one.tokens, one.cost))
        facts = [row.facts for row in sorted(in_effect(rows, name), key=lambda row: row.step)]
        if found.facts is not None:
            assert b",".join(found.facts) == b",".join(facts)


def in_effect(rows: Sequence[StepRecord], name: str) -> list[StepRecord]:
    mine = [row for row in rows if row.episode == name]
    first: dict[int, int] = {}
    for row in mine:
        first[row.take] = min(first.get(row.take, row.step), row.step)
    return [row for row in mine if all(take <= row.take or row.step < step for take, step in first.items())]


def test_rows_out_of_order_are_said_to_be_unknown() -> None:
    for steps in ([(0, 1)], [(0, 0), (0, 2)], [(0, 0), (0, 0)], [(0, 0), (1, 0), (0, 1)], [(1, 0)]):
        standings: dict[str, Standing] = {}
        fold(standings, steps_table([a_step("a", step, take=take) for take, step in steps]))
        assert standings["a"].steps == UNKNOWN
        assert standings["a"].requests == len(steps)
        (row,) = ends_table(standings).to_pylist()
        assert (row["steps"], row["facts"]) == (UNKNOWN, None)


def test_facts_from_before_are_read_back_for_those_that_ended_in_one_go() -> None:
    before = {
        name: Standing(place=(), steps=2, requests=2, facts=None) for name in ("ended", "going", "anew", "further")
    }
    rows = [
        a_step("ended", 2, ending="done", facts=b"2"),
        a_step("going", 2, facts=b"2"),
        a_step("anew", 0, take=1, facts=b"new"),
        a_step("anew", 1, take=1, facts=b"new", ending="done"),
        a_step("further", 1, take=1, facts=b"1", ending="done"),
        a_step("fresh", 0, facts=b"0", ending="done"),
    ]
    asked: list[Sequence[str]] = []

    def recall(names: Sequence[str]) -> Mapping[str, Sequence[bytes]]:
        asked.append(sorted(names))
        return {"ended": [b"0", b"1", b"2"], "further": [b"0", b"1"]}

    standings: dict[str, Standing] = {}
    touched = fold(standings, steps_table(rows), before.get)
    table = settle(standings, touched, recall)  # type: ignore[arg-type]
    facts = dict(zip(table.column("episode").to_pylist(), table.column("facts").to_pylist(), strict=True))
    assert asked == [["ended", "further"]]
    assert facts == {"ended": "[0,1,2]", "going": None, "anew": "[new,new]", "further": "[0,1]", "fresh": "[0]"}
    assert list(standings) == ["going"]
    assert table.schema.equals(ENDS)


def test_only_episodes_in_flight_are_remembered() -> None:
    standings: dict[str, Standing] = {}
    for number in range(0, 100, 10):
        rows = [
            a_step(f"e{one}", step, ending="done" * (step == 2))
            for one in range(number, number + 10)
            for step in range(3)
        ]
        settle(standings, fold(standings, steps_table(rows)), nothing_read)
        assert standings == {}


def test_the_last_row_of_an_episode_holds() -> None:
    standings: dict[str, Standing] = {}
    tables = []
    for step in range(3):
        touched = fold(standings, steps_table([a_step("a", step)]))
        tables.append(settle(standings, touched, nothing_read))
    found = read_standings(pa.concat_tables(tables))
    assert found["a"] == ends.Standing(
        **{**{name: getattr(standings["a"], name) for name in Standing.__slots__}, "facts": None}
    )


def test_a_table_without_rows_changes_nothing() -> None:
    standings: dict[str, Standing] = {}
    assert fold(standings, conform(steps_table([]), steps_table([]).schema)) == []
    assert settle(standings, [], nothing_read).num_rows == 0


def test_episodes_over_several_sessions_and_crashes_have_their_ends(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, rounds(["a", "b", "c"], 3))
    check_ends(run)
    write_tails(run, [[a_step("a", 3), a_step("b", 3, ending="done")], [a_step("d", 0)]])
    write_run(run, [[a_step("a", 4, ending="done")]])
    check_ends(run)
    write_tails(run, [[a_step("b", 2, take=1)], [a_step("b", 3, take=1, ending="refused")]])
    write_tails(run, [[a_step("d", 1, ending="done")]])
    write_run(run, [])
    check_ends(run)
    write_run(run, [[a_step("b", 3, take=2, ending="done")]])
    check_ends(run)
