"""The provider's own usage against the ledger: after a reconciliation, what is spent is the bill."""

import asyncio
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from evalkit.cli.main import main
from evalkit.engine.spending.reconcile import Reconciled, read_books, reconcile_total, reconcile_usage
from evalkit.engine.spending.usage import Billed, read_usage
from evalkit.errors import RunError, UsageError
from evalkit.store.lock import hold_run
from tests.engine.snapshot import snapshot_at
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget

LANES = ("simulated/knuth", "simulated/random")


def reconcile(run: Path, lines: Iterable[Billed]) -> Reconciled:
    return asyncio.run(reconcile_usage(run, lines))


def usage(bill: Path) -> list[Billed]:
    return list(read_usage(bill))


def total(lines: Iterable[Billed]) -> int:
    return sum(one.cost or 0 for one in lines)


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
    lines = usage(bill)
    found = reconcile(tmp_path / "run", lines)
    assert found.flaws == ()
    assert found.after == found.billed == total(lines) == read_books(tmp_path / "run").spent
    assert found.before == before
    assert all(one.closed for one in read_books(tmp_path / "run").accounts.values())
    twice = reconcile(tmp_path / "run", lines)
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


def test_a_usage_that_lists_not_every_answered_request_releases_nothing_of_its_lane(run: Path, tmp_path: Path) -> None:
    lines = usage(tmp_path / "bill.jsonl")
    books = read_books(run)
    answered = next(one for one in lines if books.known[one.episode, one.step] == one.cost)
    lane = books.lane_of[answered.episode]
    found = reconcile(run, [one for one in lines if one is not answered])
    assert len(found.flaws) == 1
    assert found.flaws[0].startswith(f"{lane}: the usage lists ")
    assert {row.lane for row in read_books(run).ledger if row.kind == "release"} == {*LANES} - {lane}
    whole = reconcile(run, lines)
    assert whole.after == total(lines)


def test_requests_of_other_runs_are_passed_over(run: Path, tmp_path: Path) -> None:
    lines = usage(tmp_path / "bill.jsonl")
    found = reconcile(run, [*lines, Billed(episode="other", step=0, attempt=0, cost=10**15, usage=lines[0].usage)])
    assert (found.foreign, found.after) == (1, total(lines))


def test_a_bill_above_what_was_counted_releases_nothing(run: Path) -> None:
    books = read_books(run)
    counted = sum(
        cost for step, cost in (books.known + books.guessed).items() if books.lane_of[step[0]] == LANES[0]
    ) + sum(row.amount for row in books.ledger if row.kind == "charge" and row.lane == LANES[0])
    found = asyncio.run(reconcile_total(run, LANES[0], counted + 1))
    assert (found.rows, found.after) == (0, found.before)
    found = asyncio.run(reconcile_total(run, LANES[0], counted - 7))
    assert found.released == 7
    again = asyncio.run(reconcile_total(run, LANES[0], counted - 7))
    assert again.released == 0
    everything = asyncio.run(reconcile_total(run, LANES[0], 0))
    charged = sum(row.amount for row in books.ledger if row.kind == "charge" and row.lane == LANES[0])
    assert everything.released == charged - 7  # never more than was charged: answered requests stay
    with pytest.raises(UsageError, match="no paid lane 'simulated/knut'"):
        asyncio.run(reconcile_total(run, "simulated/knut", 0))


def test_a_run_that_is_being_written_is_left_alone(run: Path, tmp_path: Path) -> None:
    with hold_run(run), pytest.raises(RunError, match="process"):
        reconcile(run, usage(tmp_path / "bill.jsonl"))


def test_usage_comes_as_csv_or_json_in_money_or_in_tokens(tmp_path: Path) -> None:
    file = tmp_path / "usage"
    file.write_text("request_id,cost_usd\ne1/3/0,0.0125\nsomebody-elses,1\n")
    assert [(one.episode, one.step, one.attempt, one.cost) for one in read_usage(file)] == [
        ("e1", 3, 0, 12_500_000_000)
    ]
    file.write_text('{"client_request_id":"e1/3/1","input_tokens":70,"output_tokens":5}\n{"client_req')
    (one,) = read_usage(file)
    assert (one.cost, one.usage.input, one.usage.output) == (None, 70, 5)
    file.write_text("request_id,cost\ne1/" + "9" * 5000 + "/0,1\n")
    assert list(read_usage(file)) == []
    for text, words in (
        ('{"request_id":"e/1/0","cost":"much"}\n', "usage:1: cost: 'much' is not a number"),
        ('{"request_id":"e/1/0","cost":-1}\n', "is not an amount"),
        ('{"request_id":"e/1/0"}\n', "expected `cost_usd`"),
        ("{torn\n", "not JSON"),
        (
            '{"request_id":"e/1/0","input_tokens":5,"cached_tokens":9,"output_tokens":1}\n',
            "usage:1: more cached tokens",
        ),
        ('{"request_id":"e/1/0","input_tokens":1e999}\n', "is not an amount|not JSON"),
        ('{"request_id":"e/1/0","cost_usd":"1e99999999"}\n', "is not an amount"),
        ("request_id,cost\ne/1/0," + "9" * 200_000 + "\n", "not CSV"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=words):
            list(read_usage(file))


def test_the_command_shows_the_money_and_reconciles_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(run), "--money"]) == 0
    shown = capsys.readouterr().out
    assert "charge: truncated" in shown
    assert main(["tools", "reconcile", str(run), "--usage", str(tmp_path / "bill.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after_pico_usd"] == found["billed_pico_usd"] == total(usage(tmp_path / "bill.jsonl"))
    assert found["before_pico_usd"] - found["released_pico_usd"] == found["after_pico_usd"]
    assert main(["status", str(run), "--money", "--json"]) == 0
    money = json.loads(capsys.readouterr().out)
    assert money["spent_pico_usd"] == found["after_pico_usd"]
    assert money["released_pico_usd"] == found["released_pico_usd"]
    assert sum(money["charges_by_reason_pico_usd"].values()) == money["charges_pico_usd"] > 0
    assert main(["tools", "reconcile", str(run)]) == 2
    assert "--usage FILE" in capsys.readouterr().err
