"""The index of a log against a fold of its rows, one after another, in plain Python."""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.errors import CorruptLogError
from evalkit.store.files import segment
from evalkit.store.files.layout import lay_out
from evalkit.store.files.record import ASK, CUT, UNSCORED, StepRecord
from evalkit.store.reading import looking, totals
from evalkit.store.reading.index import RunIndex, read_index
from evalkit.store.reading.totals import CellTotals, joined, rate
from evalkit.store.reading.unmetered import UnmeteredReplies
from tests.support.handmade_logs import append, begin, compact, discard
from tests.support.log_contents import FIELDS, TOKENS, in_effect, state_of
from tests.support.log_rows import a_charge, a_step, rounds


def held(index: RunIndex) -> dict[str, dict[str, Any]]:
    """All that an index says of episodes."""
    return {name: {field: getattr(one, field) for field in FIELDS} for name, one in index.episodes.items()}


def by_episode(rows: Sequence[StepRecord]) -> dict[str, list[StepRecord]]:
    """Without asks, which have steps and takes of their own; an episode may have no other rows."""
    return {
        name: [row for row in rows if row.episode == name and row.row_kind != ASK]
        for name in dict.fromkeys(row.episode for row in rows)
    }


def by_definition(rows: Sequence[StepRecord]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, own in by_episode(rows).items():
        asks = [row for row in rows if row.episode == name and row.row_kind == ASK]
        state = state_of(own or asks)
        if not own:
            state |= {"take": 0, "steps": 0, "ending": ""}
        elif asks:
            state["requests"] += len(asks)
            state["cost"] += sum(row.cost for row in asks)
        found[name] = state
    return found


@st.composite
def logs(draw: st.DrawFn) -> list[StepRecord]:
    """Rows as runs write them: episodes that go on, end, are retried, are cut by a repair, ask for more."""
    rows: list[StepRecord] = []
    at, takes, plays = Counter[str](), Counter[str](), {"a": "knuth", "b": "knuth", "c": "code"}
    for number in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from("abc"))
        told = {
            "agent": plays[name],
            "suite": "basic" if name == "a" else "scheduling/long",
            "replicate": ord(name) - ord("a"),
            "cost": draw(st.integers(0, 9)),
            "started_at": draw(st.sampled_from([0.0, 100.0, 150.0, 400.0])),
            "attempts": draw(st.sampled_from(["ok", "timeout,ok", "rate_limit,unmetered", "doubtful"])),
        }
        what = draw(st.sampled_from(["step"] * 4 + ["retry", "cut", "ask"]))
        if what == "ask":
            rows.append(a_step(name, at[name], take=takes[name], turn=number, **told, row_kind=ASK, ask_key="draft"))
            continue
        if what in ("retry", "cut"):
            at[name] = draw(st.integers(0, at[name]))
            takes[name] += 1
        if what == "cut":
            nothing = {**told, **dict.fromkeys(("cost", *TOKENS), 0), "attempts": ""}
            rows.append(a_step(name, at[name], take=takes[name], **nothing, row_kind=CUT))
            takes[name] += 1  # who plays on is told by the highest take, but need not know of the cut
            continue
        ending = draw(st.sampled_from(["", "", "done", "refused"]))
        rows.append(a_step(name, at[name], take=takes[name], ending=ending, **told))
        at[name] += 1
    return rows


@given(st.data())
def test_whatever_the_rows_lie_in_the_index_says_what_a_fold_of_them_says(tmp_path_factory: Any, data: Any) -> None:
    """Rows of three writers, in objects and compacted files, in any order."""
    rows = data.draw(logs())
    run = tmp_path_factory.mktemp("run")
    dealt = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    money = []
    for turn in range(3):
        own = [row for row, writer in zip(rows, dealt, strict=True) if writer == turn]
        own = data.draw(st.permutations(own))
        journal = begin(run)
        charge = a_charge(turn, session=journal.writer)
        append(journal, own[:2], *([row] for row in own[2:]), money=[charge])
        money.append(charge)
        if (upto := data.draw(st.integers(-1, journal.number - 1))) >= 0:
            compact(journal, 0, upto)
            discard(journal, 0, data.draw(st.integers(-1, min(upto, journal.number - 2))))
    index = read_index(run)
    assert held(index) == by_definition(rows)
    assert index.remaining({"done"}) == set(index.episodes)
    assert index.remaining() == {name for name, one in held(index).items() if one["ending"] in ("", *UNSCORED)}
    assert sorted(index.ledger, key=lambda row: row.amount) == money
    assert_sums(index, rows)
    assert_cells(index, rows)


def assert_sums(index: RunIndex, rows: Sequence[StepRecord]) -> None:
    paid = [row for row in rows if row.row_kind != CUT]
    assert index.rows == len(paid)
    assert index.totals == {name: sum(getattr(row, name) for row in paid) for name in ("cost", *TOKENS)}
    for name, sums in (("agent", index.cost_by_agent), ("worker", index.cost_by_worker)):
        wanted = Counter[str]()
        for row in paid:
            wanted[getattr(row, name)] += row.cost
        assert Counter(sums) == wanted
    for word, found in (
        ("unmetered", (index.unmetered.replies, index.unmetered.cost)),
        ("doubtful", (index.unmetered.doubtful, index.unmetered.doubtful_cost)),
    ):
        of_word = [row.cost for row in paid if row.attempts.endswith(word)]
        assert found == (len(of_word), sum(of_word))
    books = index.books()
    assert sum(account.settled for account in books.values()) == sum(row.cost for row in paid)
    assert sum(account.charged for account in books.values()) == 0 + 1 + 2


def assert_cells(index: RunIndex, rows: Sequence[StepRecord]) -> None:
    """A loop over the rows of each agent and suite."""
    assert set(index.cells) == {(row.agent, row.suite) for row in rows}
    for place, cell in index.cells.items():
        own = [row for row in rows if (row.agent, row.suite) == place]
        paid = [row for row in own if row.row_kind != CUT]
        states = by_definition(own)
        ended = [one for one in states.values() if one["ending"] and one["ending"] not in UNSCORED]
        assert (cell.rows, cell.cost, cell.begun) == (len(paid), sum(row.cost for row in paid), len(states))
        assert cell.steps == sum(len(in_effect(rows)) for rows in by_episode(own).values())
        assert Counter(cell.endings) == Counter(one["ending"] for one in states.values() if one["ending"])
        assert (cell.ended, cell.ended_cost) == (len(ended), sum(one["cost"] for one in ended))
        assert (cell.ended_squares, cell.ended_steps) == (
            sum(one["cost"] ** 2 for one in ended),
            sum(one["steps"] for one in ended),
        )
        going = [one for one in states.values() if one not in ended]
        assert sum(number for number, _, _ in cell.going.values()) == len(going)
        assert sum(cost for _, _, cost in cell.going.values()) == sum(one["cost"] for one in going)
        times = sorted(row.started_at for row in paid)
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert sum(last - first for first, last in cell.spells) == sum(gap for gap in gaps if gap < totals.PAUSE_S)


def test_a_step_that_is_missing_is_refused(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    append(journal, *([a_step("a", step)] for step in (0, 1, 3)))
    compact(journal, 0, 1)
    with pytest.raises(CorruptLogError, match="episode a lacks its step 2"):
        read_index(tmp_path)


def test_a_run_without_replies_has_nothing_unmetered(tmp_path: Path) -> None:
    assert read_index(tmp_path).unmetered == UnmeteredReplies()


def test_spells_of_two_cells_that_send_at_once_count_once() -> None:
    one, two = (CellTotals(agent=name, suite="s", rows=100, spells=[(0.0, 99.0)]) for name in "ab")
    assert rate([one, two]) == pytest.approx(199 / 99)
    assert joined([(0.0, 1.0), (500.0, 501.0), (1.0, 380.5)]) == [(0.0, 501.0)]


@pytest.mark.parametrize("rows", [0, 1])
def test_an_agent_as_code_that_has_asked_for_nothing_has_no_rate(rows: int) -> None:
    """Its steps were sent at some time, but are no requests. Divided by a rate of 0, `status` had failed."""
    assert rate([CellTotals(agent="a", suite="s", rows=rows, spells=[(0.0, 2.0)])]) is None


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
    journal = begin(tmp_path)
    append(journal, *rounds(["a"], 3))
    compact(journal, 0, 2)
    discard(journal, 0, 2)
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
