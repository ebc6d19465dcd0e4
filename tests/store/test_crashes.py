"""A process that dies at any disk operation of a session: as it opens the log, commits, compacts, deletes, closes."""

import asyncio
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import EvalkitError
from evalkit.store import disk
from evalkit.store.files.layout import journals
from evalkit.store.files.record import StepRecord
from evalkit.store.files.segment import KINDS
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import read_ledger, scan, scan_all
from evalkit.store.recovery.check import check_log
from evalkit.store.writing import compact as compactor
from evalkit.store.writing.writer import Store, open_store
from tests.support.handmade_logs import contents, numbers
from tests.support.run_directories import a_charge, a_step, rounds, write_run, write_tails

OPERATIONS = ("write", "sync_file", "rename", "link", "sync_directory", "remove", "append_lines", "_forget")


class Died(BaseException):
    """The process is no more: nothing that it would have done happens."""


class Mortal:
    """A disk whose process dies at the operation of that number."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.left = last
        self.done: list[str] = []
        """The operations until then."""
        for name in OPERATIONS:
            patch.setattr(disk, name, self._counting(name, getattr(disk, name)))

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self.left <= 0:
                raise Died
            self.left -= 1
            self.done.append(name)
            return real(*args)

        return call


def a_past(run: Path) -> None:
    """What the session finds: an ended session, one that died, an episode that has ended and is played again."""
    write_run(run, [*rounds(["a", "b"], 2), [a_step("z", 0, ending="refused")]], [a_charge(1)])
    write_tails(run, [*rounds(["a", "b"], 1, first=2), [a_step("b", 3, ending="done")]], [a_charge(2)])


NEW = [
    [a_step("a", 3), a_step("z", 0, take=1)],
    [a_step("a", 4), a_step("z", 1, take=1), a_step("c", 0)],
    [a_step("a", 5, ending="done"), a_step("c", 1)],
    [a_step("z", 2, take=1, ending="done")],
    [a_step("c", 2, ending="done")],
]


def key(row: StepRecord) -> tuple[str, int, int]:
    return row.episode, row.take, row.step


def rows_of(run: Path) -> list[tuple[str, int, int]]:
    return sorted(zip(*scan_all(run, ("episode", "take", "step")).to_pydict().values(), strict=True))


async def play(run: Path, commits: Iterable[list[StepRecord]], told: list[tuple[str, int, int]]) -> None:
    """A session that says after each commit what is durable."""
    with open_store(run, session="s") as store:
        for rows in commits:
            for row in rows:
                store.append(row)
            store.enter(a_charge(5, reason=str(key(rows[0]))))
            await store.durable()
            told += map(key, rows)
            await _compacted(store)


async def _compacted(store: Store) -> None:
    """Let compaction and deletion have their turn in the middle of the session, too."""
    for _ in range(4):
        await asyncio.sleep(0.002)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction of two commits at a time, deletion at once."""
    monkeypatch.setattr(compactor, "BATCH_TAILS", 2)
    monkeypatch.setattr(compactor, "GRACE_S", 0.0)


def operations(run: Path, work: Callable[[], None]) -> int:
    """How many disk operations a session takes that does not die."""
    with pytest.MonkeyPatch.context() as patch:
        mortal = Mortal(patch, 10**6)
        work()
        return 10**6 - mortal.left


def lives(run: Path, last: int) -> tuple[bool, list[tuple[str, int, int]]]:
    """(whether the session came to its end, what it had said to be durable)."""
    told: list[tuple[str, int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        Mortal(patch, last)
        try:
            asyncio.run(play(run, NEW, told))
        except (Died, EvalkitError, RuntimeError):
            return False, told
    return True, told


PARTS, EVERY = 3, 2
"""Tests, and which operations: each second one, or the test would take half a minute."""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_session_may_die_at_any_disk_operation(tmp_path: Path, part: int) -> None:
    whole = tmp_path / "whole"
    a_past(whole)
    shutil.copytree(whole, tmp_path / "past")
    total = operations(whole, lambda: asyncio.run(play(whole, NEW, [])))
    expected, money = rows_of(whole), [(row.amount, row.reason) for row in read_ledger(whole)]
    assert total > 60
    deaths = 0
    for last in range(EVERY * part, total + 10, EVERY * PARTS):
        run = shutil.copytree(tmp_path / "past", tmp_path / f"run{last}")
        before = rows_of(run)
        ended, told = lives(run, last)
        deaths += not ended
        there = rows_of(run)
        assert len(set(there)) == len(there)
        assert set(before) | set(told) <= set(there) <= set(expected), last
        rest = [[row for row in rows if key(row) not in there] for rows in NEW]
        held = {row.reason for row in read_ledger(run)}
        asyncio.run(_go_on(run, [rows for rows in rest if rows], held))
        assert rows_of(run) == expected
        assert sorted((row.amount, row.reason) for row in read_ledger(run)) == sorted(money)
        assert scan(run, ("episode", "step", "facts")).equals(scan(whole, ("episode", "step", "facts")))
        assert check_log(run) == []
        _nothing_left(run)
    assert deaths > 10


async def _go_on(run: Path, commits: list[list[StepRecord]], held: set[str]) -> None:
    with open_store(run, session="s") as store:
        for rows in commits:
            for row in rows:
                store.append(row)
            await store.durable()
        for rows in NEW:
            if str(key(rows[0])) not in held:
                store.enter(a_charge(5, reason=str(key(rows[0]))))


def _nothing_left(run: Path) -> None:
    """Nothing but compacted files, of all kinds the same, and each journal's newest object."""
    assert not list(run.rglob(".*"))
    assert all(len(own) == 1 for own in numbers(run))
    names = [sorted(path.name for path in (run / kind).iterdir()) for kind in KINDS]
    assert names[0] == names[1]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("hasty")
def test_taking_over_may_die_at_any_disk_operation_again_and_again(tmp_path: Path) -> None:
    """Every next session dies one operation later, while it takes over what the others left."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    a_past(run)
    a_past(whole)
    write_run(whole, [])
    expected = rows_of(run)
    last = 0
    for _ in range(200):
        left = len(journals(run))
        with pytest.MonkeyPatch.context() as patch:
            Mortal(patch, last)
            try:
                write_run(run, [])
            except (Died, EvalkitError, RuntimeError):
                ended = False
            else:
                ended = True
        assert rows_of(run) == expected
        if ended:
            break
        last += (
            1 + len(journals(run)) - left
        )  # the end of each journal is synced first, and this death may have left one
    assert ended
    write_run(run, [])
    assert check_log(run) == []
    _nothing_left(run)
    after = contents(run)
    write_run(run, [])
    assert contents(run) == after
    found, wanted = (
        {
            name: (one.take, one.steps, one.ending, one.requests, one.cost)
            for name, one in read_index(path).episodes.items()
        }
        for path in (run, whole)
    )
    assert found == wanted
