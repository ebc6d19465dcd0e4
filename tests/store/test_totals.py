import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalkit.errors import CorruptLogError
from evalkit.money import PicoUsd
from evalkit.store.files.journal import newest_claims
from evalkit.store.files.record import REFUSED, LedgerRecord, StepRecord
from evalkit.store.files.schema import steps_table
from evalkit.store.lock import hold_run
from evalkit.store.reading import totals
from evalkit.store.reading.accounts import accounts
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import scan, scan_all
from evalkit.store.reading.totals import CellTotals, Tally, Totals, joined, rate, together
from evalkit.store.writing.opening import take_over
from tests.support.run_directories import a_charge, a_step, write_run

ENDINGS = ("done", "refused")


class Game:
    """Sessions that play episodes, end some, play some of those again, and die at any commit."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = 1.7e9

    def session(self, run: Path, number: int, *, crash: bool) -> None:
        held = read_index(run).episodes
        playing = {name: (one.steps, one.take) for name, one in held.items() if not one.ending}
        for name, one in held.items():
            if one.ending == "refused":
                again = self.random.randrange(one.steps)
                playing[name] = (again, one.take + 1)
        playing |= {f"s{number}e{place}": (0, 0) for place in range(self.random.randrange(4))}
        commits = list(self._commits(playing, f"w{number}"))
        money = [
            LedgerRecord(kind="open", session=f"w{number}", amount=PicoUsd(0)),
            LedgerRecord(kind="lease", session=f"w{number}", amount=PicoUsd(10_000)),
        ]
        for other in {row.session for row in read_index(run).ledger if row.kind == "open"}:
            money.append(a_charge(3, session=other, kind="crash"))
        if not crash:
            write_run(run, commits, money)
            return
        with hold_run(run):
            opened = take_over(run, "s")
            tally = Tally(opened.index.episodes)
            for rows in commits:
                for row in rows:
                    tally.step(row)
                for entry in money:
                    tally.money(entry)
                opened.journal.carried.totals = tally.text()
                opened.journal.commit(steps_table(rows), money)
                money = []

    def _commits(self, playing: dict[str, tuple[int, int]], worker: str) -> Iterator[list[StepRecord]]:
        for _ in range(self.random.randrange(1, 5)):
            rows = []
            for name in list(playing):
                if self.random.random() < 0.5:
                    continue
                step, take = playing[name]
                ending = self.random.choice(ENDINGS) if self.random.random() < 0.3 else ""
                self.clock += self.random.choice([0.1, 5.0, 300.0, -2.0])
                rows.append(
                    a_step(
                        name,
                        step,
                        take=take,
                        ending=ending,
                        worker=worker,
                        agent=f"a{sum(map(ord, name)) % 2}",
                        started_at=self.clock,
                        attempts=self.random.choice(["ok", "ok", "timeout,ok", "unmetered", "overload,unmetered"]),
                    )
                )
                if ending:
                    del playing[name]
                else:
                    playing[name] = (step + 1, take)
            yield rows


def told(run: Path) -> Totals:
    """What the newest objects say together."""
    return together(totals.read(says["totals"], writer) for writer, says in newest_claims(run).items())


@pytest.mark.exhaustive(but=4)
@pytest.mark.parametrize("seed", range(12))
def test_sums_over_all_writers_are_what_reading_every_row_gives(tmp_path: Path, seed: int) -> None:
    run, game = tmp_path / "run", Game(seed)
    for number in range(game.random.randrange(1, 6)):
        game.session(run, number, crash=game.random.random() < 0.5)
    index, found = read_index(run), told(run)
    assert sum(cell.rows for cell in found.cells.values()) == index.rows
    for name, value in index.totals.items():
        assert sum(getattr(cell, name) for cell in found.cells.values()) == value
    assert found.workers == dict(index.cost_by_worker)
    assert found.unmetered() == index.unmetered
    books = found.books()
    assert books == accounts(index.ledger, index.cost_by_worker)
    held = list(index.episodes.values())
    ended = [one for one in held if one.ended]
    assert sum(cell.ended for cell in found.cells.values()) == len(ended)
    assert sum(cell.refused for cell in found.cells.values()) == sum(one.ending == REFUSED for one in held)
    waiting = [sums for cell in found.cells.values() for sums in cell.going.values()]
    assert sum(count for count, *_ in waiting) == len(held) - len(ended)
    assert sum(cell.begun for cell in found.cells.values()) == len(held)
    assert sum(cell.steps for cell in found.cells.values()) == sum(one.steps for one in held)
    words = Counter[str]()
    for cell in found.cells.values():
        words.update(cell.endings)
    assert +words == Counter(one.ending for one in held if one.ending)
    assert all(count >= 0 for count in words.values())
    assert sum(cell.ended_cost for cell in found.cells.values()) == sum(one.cost for one in ended)
    assert sum(cell.ended_steps for cell in found.cells.values()) == sum(one.steps for one in ended)
    squares = sum(float(one.cost) ** 2 for one in ended)
    assert sum(cell.ended_squares for cell in found.cells.values()) == pytest.approx(squares)
    _check_cells(run, found)


def _check_cells(run: Path, found: Totals) -> None:
    rows = scan_all(run, ("agent", "suite", "cost", "started_at")).to_pylist()
    live = Counter(zip(*scan(run, ("agent", "suite")).to_pydict().values(), strict=True))
    for place, cell in found.cells.items():
        mine = [row for row in rows if (row["agent"], row["suite"]) == place]
        assert (cell.rows, cell.cost, cell.steps) == (len(mine), sum(row["cost"] for row in mine), live[place])
    times = sorted(row["started_at"] for row in rows)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    busy = [gap for gap in gaps if gap < totals.PAUSE_S]
    expected = len(busy) / sum(busy) if sum(busy) else None
    assert rate(found.cells.values()) == (expected if expected is None else pytest.approx(expected))


def test_only_cells_with_new_rows_are_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally({})
    for number in range(50):
        tally.step(a_step(f"e{number}", agent=f"a{number}"))
    tally.text()
    encoded: list[object] = []
    real = totals._encode
    monkeypatch.setattr(totals, "_encode", lambda value: (encoded.append(value), real(value))[1])
    tally.step(a_step("e7", 1, agent="a7"))
    assert len(totals.read(tally.text(), "x").cells) == 50
    assert [one.agent for one in encoded if isinstance(one, CellTotals)] == ["a7"]


def test_many_spells_of_sending_are_kept_as_sums() -> None:
    cell = CellTotals(agent="a", suite="s")
    for number in range(totals.SPELLS + 40):
        for second in (0.0, 10.0):
            cell.rows += 1
            cell.send(1e6 + 1000 * number + second)
    assert len(cell.spells) == totals.SPELLS
    assert rate([cell]) == pytest.approx(0.1)


def test_spells_of_two_cells_that_send_at_once_count_once() -> None:
    one, two = CellTotals(agent="a", suite="s"), CellTotals(agent="b", suite="s")
    for second in range(100):
        for cell in (one, two):
            cell.rows += 1
            cell.send(float(second))
    assert rate([one, two]) == pytest.approx(199 / 99)
    assert joined([(0.0, 1.0), (500.0, 501.0), (1.0, 380.5)]) == [(0.0, 501.0)]


@pytest.mark.parametrize("rows", [0, 1])
def test_an_agent_as_code_that_has_asked_for_nothing_has_no_rate(rows: int) -> None:
    """Its steps were sent at some time, but are no requests. Divided by a rate of 0, `status` had failed."""
    cell = CellTotals(agent="a", suite="s", rows=rows)
    for second in range(3):
        cell.send(float(second))
    assert rate([cell]) is None


@pytest.mark.parametrize("text", ["", "[]", '{"cells":[{}]}', '{"workers":{"a":"b"}}'])
def test_totals_that_are_damaged_are_named(text: str) -> None:
    with pytest.raises(CorruptLogError, match="log/w"):
        totals.read(text, "log/w")


def test_an_object_without_totals_counts_nothing() -> None:
    assert totals.read("{}", "log/w") + Totals() == Totals()
