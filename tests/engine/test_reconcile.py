"""The provider's own total against the ledger: after a reconciliation, what is spent is the bill."""

import asyncio
import json
import shutil
from pathlib import Path

import orjson
import pytest

from evalkit.cli.main import main
from evalkit.engine.spending.reconcile import Reconciliation, read_books, reconcile
from evalkit.errors import RunError, UsageError
from evalkit.money import PICO_PER_USD
from evalkit.store.lock import hold_run
from tests.engine.snapshot import snapshot_at
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget

LANES = ("simulated/knuth", "simulated/random")


def reconciled(run: Path, truth: int, lane: str | None = None) -> Reconciliation:
    return asyncio.run(reconcile(run, lane, truth))


def billed(bill: Path) -> int:
    return sum(orjson.loads(line)["cost"] for line in bill.read_bytes().splitlines())


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("budget", [None, 3 * 10**12], ids=["no budget", "a budget"])
@pytest.mark.parametrize("resumed", [False, True])
def test_after_a_crash_and_a_reconciliation_what_is_spent_is_the_bill(
    tmp_path: Path, budget: int | None, resumed: bool
) -> None:
    """Also where the run has not been taken up since, and where both crashes and failed attempts were charged."""
    sweep, bill = resolved(tmp_path, served()), tmp_path / "bill.jsonl"
    sweep = sweep if budget is None else with_budget(sweep, budget)
    faults = {"fault_truncated": 0.05, "fault_reset": 0.02, "fault_unmetered": 0.1, "fault_early_reset": 0.02}
    with snapshot_at(tmp_path / "whole", tmp_path / "run", 40):
        go_served(sweep, tmp_path / "whole", {"bill": str(bill), "latency": "5ms", **faults})
    # What had arrived when the copy was taken; the last 8 of it may have been in flight.
    died = bill.read_bytes().splitlines(keepends=True)[:40]
    bill.write_bytes(b"".join(died))
    if resumed:
        again = tmp_path / "again.jsonl"
        outcome, _ = go_served(sweep, tmp_path / "run", {"bill": str(again), **faults})
        assert outcome.unconfirmed > 0
        bill.write_bytes(b"".join(died) + again.read_bytes())
    before = read_books(tmp_path / "run").spent
    truth = billed(bill)
    if not all(one.closed for one in read_books(tmp_path / "run").accounts.values()):
        with pytest.raises(RunError, match="crashed and is not settled"):
            reconciled(tmp_path / "run", truth, LANES[0])
    found = reconciled(tmp_path / "run", truth)
    assert found.after == truth == read_books(tmp_path / "run").spent
    assert found.before == before
    assert all(one.closed for one in read_books(tmp_path / "run").accounts.values())
    twice = reconciled(tmp_path / "run", truth)
    assert (twice.rows, twice.released, twice.after) == (0, 0, found.after)
    done, _ = go_served(sweep, tmp_path / "run")
    assert done.exit_code == 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with charges, and its bill beside it."""
    folder = tmp_path_factory.mktemp("finished")
    faults = {"fault_truncated": 0.1, "fault_early_reset": 0.05, "bill": str(folder / "bill.jsonl")}
    go_served(resolved(folder, served()), folder / "run", faults)
    return folder


@pytest.fixture
def run(tmp_path: Path, finished: Path) -> Path:
    """A copy of it, the bill at `tmp_path`."""
    shutil.copy(finished / "bill.jsonl", tmp_path)
    return Path(shutil.copytree(finished / "run", tmp_path / "run"))


def test_a_bill_above_what_was_counted_releases_nothing(run: Path) -> None:
    books = read_books(run)
    charges = [row for row in (*books.guessed, *books.ledger) if row.kind == "charge" and row.lane == LANES[0]]
    charged = sum(row.amount for row in charges)
    counted = books.known[LANES[0]] + charged
    found = reconciled(run, counted + 1, LANES[0])
    assert (found.rows, found.after) == (0, found.before)
    assert reconciled(run, counted - 7, LANES[0]).released == 7
    assert reconciled(run, counted - 7, LANES[0]).released == 0
    everything = reconciled(run, 0, LANES[0])
    assert everything.released == charged - 7  # never more than was charged: answered requests stay
    assert {row.lane for row in read_books(run).ledger if row.kind == "release"} == {LANES[0]}
    with pytest.raises(UsageError, match="no paid lane 'simulated/knut'"):
        reconciled(run, 0, "simulated/knut")


def test_a_run_that_is_being_written_is_left_alone(run: Path) -> None:
    with hold_run(run), pytest.raises(RunError, match="process"):
        reconciled(run, 0)


def test_the_command_shows_the_money_and_reconciles_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(run), "--money"]) == 0
    shown = capsys.readouterr().out
    assert "charge: truncated" in shown
    truth = billed(tmp_path / "bill.jsonl")
    assert main(["tools", "reconcile", str(run), "--spent", f"{truth / PICO_PER_USD:.12f}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after_pico_usd"] == found["billed_pico_usd"] == truth
    assert found["before_pico_usd"] - found["released_pico_usd"] == found["after_pico_usd"]
    assert main(["status", str(run), "--money", "--json"]) == 0
    money = json.loads(capsys.readouterr().out)
    assert money["spent_pico_usd"] == found["after_pico_usd"]
    assert money["released_pico_usd"] == found["released_pico_usd"]
    assert sum(money["charges_by_reason_pico_usd"].values()) == money["charges_pico_usd"] > 0
    assert main(["tools", "reconcile", str(run)]) == 2
    assert "--spent" in capsys.readouterr().err
