"""Calls of `run` that have nothing to do: the same outcome as a call that looks at all of the log, and no file touched;
and what looks complete without being so."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from evalkit.engine import sweep as engine_sweep
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import Choice
from evalkit.errors import CorruptLogError, RunError
from evalkit.playing import sweeps
from evalkit.store.files.layout import journals
from evalkit.store.lock import hold_run
from evalkit.store.writing import writer
from evalkit.store.writing.opening import is_closed
from tests.support.small_sweeps import TWO_POLICIES, resolved
from tests.support.sweep_runs import go, go_served, served, with_budget


def whole(sweep: ResolvedSweep, run: Path, **options: Any) -> RunOutcome:
    """The outcome of a call that takes the long way."""
    with mock.patch.object(sweeps, "nothing_to_do", return_value=None):
        return go(sweep, run, **options)


def files(run: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(run)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in run.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Runs whose log was opened for writing."""
    seen: list[Path] = []
    real = writer.open_store

    def noted(run: Path, **options: Any) -> Any:
        seen.append(run)
        return real(run, **options)

    monkeypatch.setattr(engine_sweep, "open_store", noted)
    return seen


@pytest.mark.parametrize("choice", [Choice(), Choice(agents=frozenset({"random"}))], ids=["all", "one agent"])
def test_its_outcome_is_that_of_a_call_which_reads_the_log(tmp_path: Path, opened: list[Path], choice: Choice) -> None:
    sweep, run = resolved(tmp_path), tmp_path / "run"
    go(sweep, run)
    opened.clear()
    before = files(run)
    idle = go(sweep, run, choice=choice)
    assert opened == []
    assert files(run) == before
    read = whole(sweep, run, choice=choice)
    assert opened == [run]
    assert replace(read, elapsed_s=0.0) == idle
    assert (idle.reason, idle.exit_code, idle.remaining) == ("complete", 0, 0)


def test_money_is_what_the_log_says(tmp_path: Path, opened: list[Path]) -> None:
    sweep = with_budget(resolved(tmp_path, served()), 10**12)
    first, simulator = go_served(sweep, tmp_path / "run", {"fault_unmetered": 0.2})
    opened.clear()
    idle, quiet = go_served(sweep, tmp_path / "run")
    assert opened == []
    assert quiet.totals.bill == 0
    assert idle.spent == first.spent >= simulator.totals.bill > 0
    assert idle.unmetered == first.unmetered
    assert idle.unmetered.replies
    assert (idle.budget, idle.unconfirmed, idle.messages) == (first.budget, first.unconfirmed, first.messages)


def test_it_is_not_taken_where_something_is_left(tmp_path: Path, opened: list[Path]) -> None:
    sweep, run = resolved(tmp_path), tmp_path / "run"
    go(sweep, run, limit=3)
    opened.clear()
    assert go(sweep, run).remaining == 0
    grown = resolved(tmp_path, TWO_POLICIES.replace("replicates = 2", "replicates = 3"))
    assert go(grown, run).steps > 0
    assert go(grown, run, retry=frozenset({"exhausted"})).ended == 24
    assert go(grown, run, repair=True).ended == 24
    assert go(grown, run, choice=Choice(replicate=1)).ended == 8
    assert opened == [run] * 5


@pytest.mark.exhaustive
def test_a_session_that_did_not_close_is_settled(tmp_path: Path, opened: list[Path]) -> None:
    sweep, run = resolved(tmp_path), tmp_path / "run"
    go(sweep, run)
    (objects,) = journals(run).values()
    assert is_closed(run)
    objects[-1].path.unlink()  # it was killed before it closed
    assert not is_closed(run)
    opened.clear()
    with pytest.raises(CorruptLogError):
        go(sweep, run)
    assert opened == [run]


def test_a_missing_file_is_noticed(tmp_path: Path, opened: list[Path]) -> None:
    sweep, run = resolved(tmp_path), tmp_path / "run"
    go(sweep, run)
    (steps,) = (run / "steps").iterdir()
    steps.unlink()
    opened.clear()
    with pytest.raises(CorruptLogError, match=r"log/.* is missing"):
        go(sweep, run)


def test_a_changed_byte_is_noticed(tmp_path: Path, opened: list[Path]) -> None:
    sweep, run = resolved(tmp_path), tmp_path / "run"
    go(sweep, run)
    (steps,) = (run / "steps").iterdir()
    data = bytearray(steps.read_bytes())
    data[len(data) // 2] ^= 1
    steps.write_bytes(data)
    opened.clear()
    with pytest.raises(CorruptLogError, match=rf"{steps.name}.*--repair"):
        go(sweep, run)
    assert opened == []


def test_a_run_that_another_process_plays_is_refused(tmp_path: Path) -> None:
    sweep, run = resolved(tmp_path), tmp_path / "run"
    go(sweep, run, limit=3)
    with hold_run(run), pytest.raises(RunError, match="is being written by"):
        go(sweep, run)
