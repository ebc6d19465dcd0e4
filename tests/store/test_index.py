"""The index of a log, whatever its rows lie in: the same numbers."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.errors import CorruptLogError
from evalkit.store.files import segment
from evalkit.store.files.chain import digest_of_file
from evalkit.store.files.layout import lay_out
from evalkit.store.files.record import StepRecord
from evalkit.store.files.schema import ENDS, STEPS
from evalkit.store.reading import looking
from evalkit.store.reading.index import RunIndex, read_index
from evalkit.store.reading.reader import scan_all
from evalkit.store.reading.sums import read_totals, totals_of
from evalkit.store.reading.totals import Totals
from evalkit.store.reading.unmetered import Unmetered
from tests.support.examples import examples
from tests.support.handmade_logs import append, begin, compact, discard
from tests.support.log_contents import ends_of, state_of
from tests.support.log_rows import a_charge, a_step, rounds

TOKENS = ("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "tokens_reasoning")


FIELDS = (*(name for name in ENDS.names if name not in ("episode", "facts", *TOKENS)), "tokens")


def held(index: RunIndex) -> dict[str, dict[str, Any]]:
    """All that an index says of episodes."""
    return {name: {field: getattr(one, field) for field in FIELDS} for name, one in index.episodes.items()}


def by_definition(rows: list[StepRecord]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in dict.fromkeys(row.episode for row in rows):
        state = state_of([row for row in rows if row.episode == name])
        found[name] = {**state, "tokens": tuple(state[token] for token in TOKENS)}
        found[name] = {field: found[name][field] for field in FIELDS}
    return found


ZERO, ONE, TWO = (f"0000000{number}-host-1-170000{number}000.000" for number in range(3))


def lives() -> list[list[list[StepRecord]]]:
    """Commits of three lives of a run: `a` ends at once, `b` goes on through all, `c` is retried, `d` comes last."""
    one = rounds(["a", "b", "c"], 3)
    one.append([a_step("a", 3, ending="stable"), a_step("c", 3, ending="refusal")])
    two = [[a_step("b", 3)], [a_step("c", 2, take=1)], [a_step("b", 4)]]
    three = [
        [a_step("c", 3, take=1), a_step("d", 0, agent="other")],
        [a_step("c", 4, take=1, ending="done"), a_step("b", 5, ending="done")],
    ]
    return [one, two, three]


def flat(commits: list[list[StepRecord]]) -> list[StepRecord]:
    return [row for rows in commits for row in rows]


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize("packed", [0, 1, 2, 3])
def test_the_index_is_the_same_whatever_the_rows_lie_in(tmp_path: Path, packed: int) -> None:
    one, two, three = lives()
    append(begin(tmp_path, ZERO), *one, money=[a_charge(2)])
    journal = begin(tmp_path, ONE)
    append(journal, *two, money=[a_charge(3)])
    earlier = flat(one)
    if packed:
        compact(journal, 0, len(two) - 1, ends_of(flat(two), earlier))
        compact(journal, 0, len(one), ends_of(earlier), writer=ZERO)
        journal.commit(None)
        discard(journal, 0, len(two) - 1)
    earlier += flat(two)
    journal = begin(tmp_path, TWO)
    append(journal, *three, money=[a_charge(5)])
    if packed > 1:
        compact(journal, 0, 0, ends_of(three[0], earlier))
    if packed > 2:
        compact(journal, 1, 1, ends_of(three[1], [*earlier, *three[0]]))
        discard(journal, 0, 0)
    rows = flat(one + two + three)
    index = read_index(tmp_path)
    assert held(index) == by_definition(rows)
    assert index.owed({"refusal", "stable"}) == {"a"} | index.owed()
    assert index.owed() == {name for name, one in held(index).items() if not one["ending"]}
    assert index.rows == len(rows)
    assert index.totals == {name: sum(getattr(row, name) for row in rows) for name in ("cost", *TOKENS)}
    agents, workers = {row.agent for row in rows}, {row.worker for row in rows}
    assert len(workers) == 3
    assert index.cost_by_agent == {one: sum(row.cost for row in rows if row.agent == one) for one in agents}
    assert index.cost_by_worker == {one: sum(row.cost for row in rows if row.worker == one) for one in workers}
    assert [row.amount for row in index.ledger] == [2, 3, 5]
    assert index.unmetered == Unmetered()
    assert_same(read_totals(tmp_path), totals_of(scan_all(tmp_path, STEPS.names), index.ledger))


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_any_rows_cut_anywhere_give_the_state_by_definition(tmp_path_factory: Any, data: Any) -> None:
    rows: list[StepRecord] = []
    steps, takes = {"a": 0, "b": 0}, {"a": 0, "b": 0}
    for _ in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(["a", "b"]))
        if steps[name] and data.draw(st.integers(0, 3)) == 0:
            steps[name], takes[name] = data.draw(st.integers(0, steps[name])), takes[name] + 1
        ending = data.draw(st.sampled_from(["", "", "done"]))
        rows.append(a_step(name, steps[name], take=takes[name], ending=ending))
        steps[name] += 1
    run = tmp_path_factory.mktemp("run")
    ends, packed = sorted(data.draw(st.integers(0, len(rows))) for _ in range(2))
    sessions = [mine for mine in (rows[:ends], rows[ends:]) if mine]
    for writer, mine in zip((ZERO, ONE), sessions, strict=False):
        journal = begin(run, writer)
        append(journal, *([row] for row in mine))
    if rows[ends:] and packed > ends:
        if ends:  # a writer compacts what those before it left
            compact(journal, 0, ends - 1, ends_of(rows[:ends]), writer=ZERO)
        compact(journal, 0, packed - ends - 1, ends_of(rows[ends:packed], rows[:ends]))
    assert held(read_index(run)) == by_definition(rows)
    if not any(goes_on_behind_an_end(mine) for mine in sessions):
        assert_same(read_totals(run), totals_of(scan_all(run, STEPS.names)))


def goes_on_behind_an_end(rows: list[StepRecord]) -> bool:
    """A session plays nothing on that it has ended."""
    return any(row.ending and later.episode == row.episode for at, row in enumerate(rows) for later in rows[at + 1 :])


def assert_same(one: Totals, other: Totals) -> None:
    """Cells that count nothing are no cells; when requests were sent is known to the pause."""
    for totals in (one, other):
        for cell in totals.cells.values():
            cell.endings = {word: count for word, count in cell.endings.items() if count}
            cell.ended_squares = round(cell.ended_squares, 3)
    assert one == other


def test_a_step_that_is_missing_where_rows_are_read_is_refused(tmp_path: Path) -> None:
    rows = [a_step("a", step) for step in (0, 1, 3)]
    journal = begin(tmp_path)
    append(journal, *([row] for row in rows))
    compact(journal, 0, 1, ends_of(rows[:2]))
    with pytest.raises(CorruptLogError, match="episode a lacks its step 2"):
        read_index(tmp_path)


def test_objects_after_the_listing_are_of_another_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = begin(tmp_path)
    append(appender, [a_step("a", 0)], money=[a_charge(1)])
    looks: list[object] = []
    plain = lay_out

    def then_write(run: Path, kind: segment.Kind) -> Any:
        layout = plain(run, kind)
        if not looks:
            appender.commit(None, [a_charge(2)])
        looks.append(kind)
        return layout

    monkeypatch.setattr(looking, "lay_out", then_write)
    index = read_index(tmp_path)
    assert (index.rows, [row.amount for row in index.ledger]) == (1, [1])
    assert [row.amount for row in read_index(tmp_path).ledger] == [1, 2]


def test_a_lost_end_of_a_journal_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PAUSE_S", 0)
    rows = [a_step("a", step) for step in range(3)]
    journal = begin(tmp_path)
    append(journal, *([row] for row in rows))
    compact(journal, 0, 2, ends_of(rows))
    discard(journal, 2, 2)
    with pytest.raises(CorruptLogError, match=r"log/.*/000000002.parquet is missing"):
        read_index(tmp_path)


def test_a_reader_that_is_overtaken_goes_on_while_each_look_lacks_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "PAUSE_S", 0)
    tries: list[int] = []

    def overtaken(times: int) -> int:
        tries.append(len(tries))
        if len(tries) <= times:
            raise FileNotFoundError(2, "no such file", f"{len(tries):09d}.parquet")
        return 7

    assert looking.patiently(tmp_path, lambda: overtaken(looking.LOOKS + 10)) == 7
    tries.clear()
    with pytest.raises(CorruptLogError, match="keeps changing while it is read"):
        looking.patiently(tmp_path, lambda: overtaken(looking.CHANGES))
    assert len(tries) == looking.CHANGES


def test_a_file_that_is_moved_as_it_is_opened_is_gone_and_no_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log" / "w" / "000000000.parquet"
    monkeypatch.setattr(Path, "exists", lambda _: True)  # as it was a moment ago
    with (
        pytest.raises(FileNotFoundError),
        segment.open_file(segment.Segment(kind="steps", path=path, first=0, last=0, writer="w")),
    ):
        pass
    with pytest.raises(FileNotFoundError):
        digest_of_file(path)
