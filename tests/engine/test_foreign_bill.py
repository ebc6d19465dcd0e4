"""Against a provider of the tests' own that bills all that may be billed: bill <= books <= budget, under every fault;
and without faults the books are the bill."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from evalkit.client import retry
from evalkit.client.lanes import health
from evalkit.client.transport import HttpTransport
from evalkit.engine.freezing.freeze import resolve
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.spending.reconcile import read_books
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.sweep import read_sweep
from evalkit.wire.http import HttpResponse, counts_as_billed
from tests.engine.foreign import BILLED, FREE, LOST, PROVIDER, Expire, Foreign
from tests.engine.test_failures import listening
from tests.support.formats import FORMATS

SWEEP = """
replicates = 2
width = 4
{budget}
[[agents]]
name = "a"
provider = "foreign"
model = "m"
max_tokens = 300
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3"]
vary = {{ periods = [1] }}
"""
USD = 10**12


@pytest.fixture(autouse=True)
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of milliseconds in place of minutes, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retry, "FIRST_S", 0.001)
    monkeypatch.setattr(health, "FIRST_PROBE_S", 0.002)


@pytest.fixture
def expire(monkeypatch: pytest.MonkeyPatch) -> Expire:
    """What has the timeout of a request fall due, by the request's id."""
    timed, asking = HttpTransport._timed, dict[str, tuple[HttpTransport, object]]()

    async def noted(own: HttpTransport, url: URL, body: bytes, headers: Mapping[str, str], form: Any) -> HttpResponse:
        asking[headers["X-Client-Request-Id"]] = own, asyncio.current_task()
        return await timed(own, url, body, headers, form)

    def expire(request: str) -> None:
        transport, task = asking[request]
        next(timeout for timeout in transport._total._pending if timeout._task is task).expire()

    monkeypatch.setattr(HttpTransport, "_timed", noted)
    return expire


def played(folder: Path, stub: Foreign, *, budget: str = "") -> RunOutcome:
    async def play() -> RunOutcome:
        async with listening(stub.answer) as (url, _):
            (folder / "providers").mkdir(exist_ok=True)
            text = PROVIDER.format(dialect=stub.dialect, url=url)
            (folder / "providers" / "foreign.toml").write_text(text)
            (folder / "mine.toml").write_text(SWEEP.format(budget=f'budget_usd = "{budget}"' if budget else ""))
            options = RunOptions(directory=folder / "run")
            return await run_sweep(resolve(read_sweep(folder / "mine.toml")), options, lambda view: None)

    return asyncio.run(play())


def test_it_bills_what_the_table_calls_billed() -> None:
    table = {"page": "unreadable", "empty": "unreadable", "half": "unreadable"}
    assert all(counts_as_billed(table.get(one, one), {}) for one in BILLED)
    assert not any(counts_as_billed(one, {}) for one in FREE)


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("dialect", FORMATS)
def test_without_faults_the_books_are_the_bill(tmp_path: Path, dialect: str) -> None:
    stub = Foreign(dialect, (), 0.0)
    outcome = played(tmp_path, stub)
    assert outcome.exit_code == 0
    assert stub.met[""] > 20
    assert stub.bill <= outcome.spent <= 1.01 * stub.bill
    assert outcome.spent == read_books(tmp_path / "run").spent


@pytest.mark.exhaustive(but=4)
@pytest.mark.parametrize("budget", ["", "0.15"], ids=["no budget", "a budget that runs out"])
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("dialect", FORMATS)
def test_whatever_usage_lacks_the_books_hold(tmp_path: Path, dialect: str, lost: str, budget: str) -> None:
    stub = Foreign(dialect, (lost,), 0.7)
    outcome = played(tmp_path, stub, budget=budget)
    assert stub.met[lost] > 3
    assert stub.bill <= outcome.spent == read_books(tmp_path / "run").spent
    assert not budget or outcome.spent <= 0.15 * USD
    if lost in ("usage", "input", "output") and dialect != "gemini":
        assert outcome.unmetered.replies == stub.met[lost]


@pytest.mark.exhaustive(but=4)
@pytest.mark.parametrize("budget", ["", "0.15"], ids=["no budget", "a budget that runs out"])
@pytest.mark.parametrize("fault", [*BILLED, *FREE])
def test_whatever_fails_the_books_hold(tmp_path: Path, fault: str, budget: str, expire: Expire) -> None:
    dialect = sorted(FORMATS)[[*BILLED, *FREE].index(fault) % len(FORMATS)]
    stub = Foreign(dialect, (fault,), 0.3, expire)
    outcome = played(tmp_path, stub, budget=budget)
    assert stub.met[fault] > 1
    books = read_books(tmp_path / "run")
    assert stub.bill <= outcome.spent == books.spent
    assert not budget or outcome.spent <= 0.15 * USD
    charges = [row for row in books.ledger if row.kind == "charge"]
    assert len(charges) == (stub.met[fault] if fault in BILLED else 0)


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("dialect", FORMATS)
def test_under_everything_at_once_and_over_several_lives_the_books_hold(tmp_path: Path, dialect: str) -> None:
    """The budget runs out, is raised, and runs out again."""
    stub = Foreign(dialect, (*LOST, *LOST, *(one for one in (*BILLED, *FREE) if one != "timeout")), 0.5)
    for budget in ("0.1", "0.2", "0.3"):
        outcome = played(tmp_path, stub, budget=budget)
        assert stub.bill <= outcome.spent <= float(budget) * USD
    outcome = played(tmp_path, stub)
    assert stub.bill <= outcome.spent == read_books(tmp_path / "run").spent
