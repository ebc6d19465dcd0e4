"""Money that was spent stays spent, whatever a log has lost: the books never fall, and the ceiling holds."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from evalkit.engine.spending.money import spent_below
from evalkit.engine.spending.reconcile import read_books, reconcile
from evalkit.envs.replay import advance
from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.accounts import UNACCOUNTED
from evalkit.store.reading.index import read_index
from evalkit.store.recovery.repair import repair
from tests.engine.snapshot import snapshot_at
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget

pytestmark = pytest.mark.exhaustive

BUDGET = 3 * 10**12
FAULTS = {"fault_truncated": 0.05, "fault_unmetered": 0.05}


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def bill_of(path: Path) -> int:
    return sum(orjson.loads(line)["cost"] for line in path.read_bytes().splitlines())


def played(folder: Path, budget: int | None) -> Path:
    """A run of two sessions that ended by themselves, its bill beside it."""
    sweep = resolved(folder, served(periods=2))
    sweep = sweep if budget is None else with_budget(sweep, budget)
    for number in (0, 1):
        simulate = {**FAULTS, "seed": number, "bill": str(folder / f"bill-{number}.jsonl")}
        go_served(sweep, folder / "run", simulate, limit=2 if not number else None)
    bills = b"".join((folder / f"bill-{number}.jsonl").read_bytes() for number in (0, 1))
    (folder / "bill.jsonl").write_bytes(bills)
    return folder


@pytest.fixture(scope="module", params=[BUDGET, None], ids=["a budget", "no budget"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("finished"), request.param)


def copies(run: Path, folder: Path) -> Iterator[Path]:
    """A copy of the run for each file of its log, and the path of that file in it."""
    files = [path.relative_to(run) for path in sorted(run.rglob("*.parquet")) if path.parent.name != "suites"]
    assert {path.parts[0] for path in files} == {"steps", "ledger", "log"}
    for number, file in enumerate(files):
        shutil.copytree(run, folder / str(number))
        yield folder / str(number) / file


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("harm", [zero, tear, Path.unlink], ids=["zeroed", "torn", "missing"])
def test_whichever_file_is_lost_the_books_do_not_fall(
    finished: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    before = read_books(finished / "run").spent
    assert before >= bill_of(finished / "bill.jsonl") > 0
    for path in copies(finished / "run", tmp_path):
        harm(path)
        run = next(one for one in path.parents if one.parent == tmp_path)
        said = repair(run, lambda plan: None).lines()
        after = read_books(run).spent
        assert after >= before, path
        if path.parent.name == "steps":
            assert after == before, path  # the journals' last objects know the sum
            assert any("stay charged" in line for line in said)
        assert repair(run, lambda plan: None).flaws == ()
        assert read_books(run).spent == after


@pytest.mark.exhaustive
def test_behind_a_repair_the_bill_stays_below_the_budget_and_a_reconciliation_finds_the_truth(tmp_path: Path) -> None:
    folder = played(tmp_path, BUDGET)
    run, spent = folder / "run", read_books(folder / "run").spent
    zero(max((run / "steps").glob("*.parquet"), key=lambda path: path.stat().st_size))
    sweep = with_budget(resolved(folder, served(periods=2)), spent + spent // 4)
    again = folder / "again.jsonl"
    outcome, _ = go_served(sweep, run, {"bill": str(again)}, repair=True)
    bill = bill_of(folder / "bill.jsonl") + (bill_of(again) if again.exists() else 0)
    assert bill <= outcome.spent == read_books(run).spent <= spent + spent // 4
    outcome, simulator = go_served(with_budget(sweep, 10**13), run, {"bill": str(again)})
    assert outcome.exit_code == 0
    (folder / "bill.jsonl").write_bytes((folder / "bill.jsonl").read_bytes() + again.read_bytes())
    bill = bill_of(folder / "bill.jsonl")
    assert asyncio.run(reconcile(run, None, bill)).after == bill
    assert simulator.totals.bill > 0


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("settled", [False, True], ids=["as it died", "taken up since"])
def test_a_crashed_sessions_lost_rows_are_covered_by_its_leases(tmp_path: Path, settled: bool) -> None:
    sweep, run = with_budget(resolved(tmp_path, served(periods=2)), BUDGET), tmp_path / "run"
    with snapshot_at(tmp_path / "whole", run, 25):
        go_served(sweep, tmp_path / "whole", {"latency": "5ms"})
    if settled:
        go_served(sweep, run, limit=1)
    before = read_books(run).spent
    for path in sorted(run.rglob("*.parquet")):
        if path.parent.name == "steps" or path.parent.parent.name == "log":
            copy = tmp_path / path.name
            shutil.copytree(run, copy)
            zero(copy / path.relative_to(run))
            unsure = repair(copy, lambda plan: None).uncounted
            # What the newest file alone knew is told instead.
            assert read_books(copy).spent >= before or (unsure and path == max((run / "log").glob("*/*.parquet")))
            shutil.rmtree(copy)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("harm", [zero, Path.unlink], ids=["zeroed", "missing"])
def test_a_crash_costs_the_leases_that_undamaged_files_tell_and_a_repair_says_whose_may_be_lost(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    sweep, run, bill = with_budget(resolved(tmp_path, served(periods=2)), BUDGET), tmp_path / "run", tmp_path / "bill"
    with snapshot_at(tmp_path / "whole", run, 25):
        go_served(sweep, tmp_path / "whole", {"latency": "5ms", "bill": str(bill)})
    bill.write_bytes(b"".join(bill.read_bytes().splitlines(keepends=True)[:25]))
    unharmed = tmp_path / "unharmed"
    shutil.copytree(run, unharmed)
    outcome, _ = go_served(sweep, unharmed, limit=1)
    assert outcome.unconfirmed > 0
    objects = sorted((run / "log").glob("*/*.parquet"))
    for file in {objects[0], objects[len(objects) // 2], objects[-1]}:
        copy = tmp_path / file.name
        shutil.copytree(run, copy)
        harm(copy / file.relative_to(run))
        repaired = repair(copy, lambda plan: None)
        assert repair(copy, lambda plan: None).flaws == ()
        newest = file == objects[-1]
        assert bool(repaired.lost) == (harm is zero or not newest)  # that the newest is gone is not noticed
        [account] = [one for one in read_books(copy).accounts.values() if not one.session.startswith("repair:")]
        # Of other files, later ones tell what was leased in them.
        assert repaired.uncounted == ((account.session,) if harm is zero and newest else ())
        assert any("leases may be lost" in line for line in repaired.lines()) == bool(repaired.uncounted)
        outcome, _ = go_served(sweep, copy, limit=1)
        assert read_books(copy).spent == outcome.spent >= bill_of(bill)
        shutil.rmtree(copy)


def test_a_reply_that_was_paid_for_and_never_reached_the_log_is_charged_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a bug of ours between the reply and its row, or a write that was refused at the very end."""
    sweep, run = with_budget(resolved(tmp_path, served(periods=2)), BUDGET), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("evalkit.engine.episode.advance", _break_once())
        outcome, simulator = go_served(sweep, run)
    assert outcome.broken == 1
    bill = simulator.totals.bill
    assert read_books(run).spent < bill == outcome.spent
    outcome, simulator = go_served(sweep, run, retry=frozenset({"internal_error"}))
    bill += simulator.totals.bill
    books = read_books(run)
    assert books.spent == bill == outcome.spent
    assert [row.reason for row in books.ledger if row.kind == "charge"] == [UNACCOUNTED]


def _break_once() -> Callable[..., object]:
    left = [1]

    def broken(*args: object, **more: object) -> object:
        if left and args[2].response_id:  # type: ignore[attr-defined]
            left.clear()
            raise RuntimeError("a bug of ours")
        return advance(*args, **more)  # type: ignore[arg-type]

    return broken


def test_what_a_repair_charged_counts_below_the_ceilings_of_agents(tmp_path: Path) -> None:
    run = played(tmp_path, BUDGET) / "run"
    before = read_books(run).spent
    zero(max((run / "steps").glob("*.parquet"), key=lambda path: path.stat().st_size))
    repair(run, lambda plan: None)
    after = read_books(run)
    found = spent_below(after.ledger, read_index(run).cost_by_agent, after.manifest.agents)
    assert sum(found.values()) >= before


def test_a_charge_that_names_its_agent_counts_for_it_alone() -> None:
    given = LedgerRecord(
        kind="charge", session="s", amount=PicoUsd(7), agent="a", episode="e", reason="it had been spent"
    )
    assert spent_below([given], {}, ("a", "b")) == {("agent", "a"): 7, ("agent", "b"): 0}
