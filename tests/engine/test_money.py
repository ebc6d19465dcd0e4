"""Money across crashes: whatever a session leased, settled and charged before it died, the ceiling holds."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.client.budget_state import BudgetState
from evalkit.engine.spending.money import open_row, spent_below
from evalkit.engine.spending.reconcile import read_books
from evalkit.engine.universe import Choice
from evalkit.money import PicoUsd
from evalkit.store.files.journal import new_writer
from evalkit.store.files.layout import journals
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.accounts import Account, accounts, charge_crashes, spent, unaccounted
from evalkit.store.reading.reader import read_ledger
from evalkit.store.writing.opening import announce
from evalkit.store.writing.writer import open_beside, open_store
from tests.engine.snapshot import snapshot_at
from tests.support.small_sweeps import resolved
from tests.support.sweep_runs import go_served, served, with_budget


def row(kind: str, amount: int, session: str = "s1", **more: Any) -> LedgerRecord:
    return LedgerRecord(kind=kind, session=session, amount=PicoUsd(amount), **more)


def crash_of(ledger: list[LedgerRecord], settled: int) -> int:
    """What the crash of a ledger's one session is charged with; the session is closed behind it."""
    books = accounts(ledger, {"s1": settled})
    [crash] = charge_crashes(books)
    assert crash.kind == "crash"
    assert books == accounts([*ledger, crash], {"s1": settled}), "they are booked too"
    assert all(one.closed for one in books.values())
    assert list(charge_crashes(books)) == []
    return crash.amount


@pytest.mark.parametrize(
    ("leased", "settled", "charged", "charge"),
    [
        (100, 0, 0, 100),
        (100, 60, 0, 40),
        (100, 60, 40, 0),  # all of it is accounted for
        (100, 20, 10, 70),
        (0, 0, 0, 0),  # no lease, so nothing was sent
    ],
)
def test_a_crash_costs_its_open_leases(leased: int, settled: int, charged: int, charge: int) -> None:
    ledger = [open_row("s1"), row("lease", leased), row("charge", charged)]
    assert accounts(ledger, {"s1": settled})["s1"].open_leases == charge
    assert crash_of(ledger, settled) == charge


def test_the_crash_of_a_session_whose_first_row_is_lost_is_charged_too() -> None:
    assert crash_of([row("lease", 100)], 20) == 80


def test_a_crash_counts_for_every_agent_that_has_a_budget_of_its_own() -> None:
    ledger = [open_row("s1"), row("lease", 60), row("charge", 7, lane="p/m", agent="b")]
    ledger.append(row("release", 3, lane="p/m", agent="b", episode="e"))
    rows = list(charge_crashes(accounts(ledger, {"s1": 13})))
    below = spent_below([*ledger, *rows], {"a": 13}, ("a", "b", "c"))
    assert below == {("agent", "a"): 13 + 40, ("agent", "b"): 4 + 40, ("agent", "c"): 40}


def test_each_of_several_crashed_sessions_is_charged() -> None:
    ledger = [open_row("s1"), row("lease", 100), open_row("s2"), row("lease", 50, "s2"), open_row("s3")]
    charges = {one.session: one.amount for one in charge_crashes(accounts(ledger, {"s1": 20}))}
    assert charges == {"s1": 80, "s2": 50, "s3": 0}


def test_a_session_that_closed_owes_nothing_and_what_was_released_is_free_again() -> None:
    ledger = [open_row("s1"), row("lease", 100), row("charge", 10), row("close", 30), row("release", 4)]
    books = accounts(ledger, {"s1": 20})
    assert list(charge_crashes(books)) == []
    assert spent(20, books.values()) == 26
    assert books["s1"] == Account(
        session="s1", leased=100, charged=10, settled=20, released=4, confirmed=4, ended=True, said=30
    )
    assert (books["s1"].missing, books["s1"].open_leases) == (0, 0)


async def _coordinated(run: Path, *, lent: Sequence[int], said: Sequence[LedgerRecord]) -> str:
    """A coordinator opened its worker's account, lent it money, and was killed; the worker wrote this. Its name."""
    names = list(journals(run))
    coordinator = new_writer(names)
    worker = new_writer([*names, coordinator])
    with open_store(run, session=coordinator, inline=True) as store:
        for one in (open_row(worker), *(row("lease", amount, worker) for amount in lent)):
            store.enter(one)
        announce(run, worker)
        with open_beside(run, writer=worker, inline=True) as beside:
            for one in said:
                beside.enter(replace(one, session=worker))
    return worker


@pytest.mark.parametrize("paid", [0, 30])
def test_what_a_worker_was_lent_unheard_is_not_spent(tmp_path: Path, paid: int) -> None:
    """It heard of the first lease, and said what it has spent of that."""
    run, said = tmp_path / "run", [row("close", paid)]
    asyncio.run(_coordinated(run, lent=(100, 50), said=[row("charge", paid), *said] if paid else said))
    books = accounts(read_ledger(run), {})
    assert [*charge_crashes(books), *unaccounted(books)] == []
    assert spent(0, books.values()) == paid


def test_of_a_worker_that_has_not_closed_all_leases_may_be_spent(tmp_path: Path) -> None:
    run = tmp_path / "run"
    worker = asyncio.run(_coordinated(run, lent=(100, 50), said=[row("charge", 30)]))
    books = accounts(read_ledger(run), {})
    assert [one.amount for one in charge_crashes(books)] == [120]
    assert books[worker].crashed == 120


def test_a_run_goes_on_with_the_money_that_a_killed_coordinator_had_lent_unheard(tmp_path: Path) -> None:
    sweep, run = with_budget(resolved(tmp_path, served(periods=2)), 3 * 10**12), tmp_path / "run"
    _, first = go_served(sweep, run, limit=2)
    asyncio.run(_coordinated(run, lent=[10**12], said=[row("close", 0)]))
    outcome, second = go_served(sweep, run)
    assert outcome.reason == "complete"
    assert read_books(run).spent == outcome.spent == first.totals.bill + second.totals.bill


@dataclass
class World:
    """Several lives of a run: the true bill, the disk, and what each process knows only in memory."""

    bounds: list[int]
    """The most a request of each episode can cost."""
    ledger: list[LedgerRecord] = field(default_factory=list)
    settled: dict[str, int] = field(default_factory=dict)
    """Cost of durable steps by session."""
    bill: int = 0
    """What the provider has counted."""
    lives: int = 0

    def begin(self, budget: int | None) -> "Life":
        """A new process: it settles what the one before may have left, and opens its account."""
        books = accounts(self.ledger, self.settled)
        self.ledger += charge_crashes(books)
        before = spent(sum(self.settled.values()), books.values())
        assert self.bill <= before
        assert before == spent(sum(self.settled.values()), accounts(self.ledger, self.settled).values())
        name, self.lives = f"s{self.lives}", self.lives + 1
        self.ledger.append(open_row(name))
        return Life(world=self, name=name, state=BudgetState(budget=budget, before=before))


@dataclass
class Life:
    """One process."""

    world: World
    name: str
    state: BudgetState
    out: dict[int, int] = field(default_factory=dict)
    """Requests in flight: true cost by episode."""
    steps: dict[int, int] = field(default_factory=dict)
    """Steps in memory: cost by episode."""
    charges: dict[int, LedgerRecord] = field(default_factory=dict)

    def ask(self, episode: int, share: float) -> None:
        """Send a request if nothing it depends on is in memory only, and if there is money for it."""
        if episode in self.out or episode in self.steps or episode in self.charges:
            return
        bound = self.world.bounds[episode]
        if self.state.next(bound) == "lease":
            lease = self.state.lease_for([bound])
            self.world.ledger.append(row("lease", lease, self.name))
            self.state.lease(lease)
        if self.state.take(bound):
            self.out[episode] = int(share * bound)
            self.world.bill += self.out[episode]

    def hear(self, episode: int, lost: bool) -> None:
        """A reply came, or was lost on its way."""
        if episode not in self.out:
            return
        cost, bound = self.out.pop(episode), self.world.bounds[episode]
        if lost:
            self.charges[episode] = row("charge", bound, self.name)
            self.state.settle(bound, bound)
        else:
            self.steps[episode] = cost
            self.state.settle(bound, cost)

    def commit(self) -> None:
        """What is in memory becomes durable."""
        self.world.ledger += self.charges.values()
        self.world.settled[self.name] = self.world.settled.get(self.name, 0) + sum(self.steps.values())
        self.charges.clear()
        self.steps.clear()

    @property
    def untraced(self) -> int:
        """What a death at this moment leaves without a trace: bounds of what is in flight, costs of what was heard."""
        in_flight = sum(self.world.bounds[episode] for episode in self.out)
        return in_flight + sum(self.steps.values()) + sum(charge.amount for charge in self.charges.values())

    def close(self) -> None:
        """A clean end: everything comes back."""
        for episode in list(self.out):
            self.hear(episode, lost=False)
        self.commit()
        self.world.ledger.append(row("close", self.state.spent, self.name))


moves = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "hear", "lose", "commit"]), st.integers(0, 5), st.floats(0, 1)),
    max_size=40,
)
lives = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 5_000)), moves, st.booleans()), min_size=1, max_size=6)


@given(bounds=st.lists(st.integers(1, 400), min_size=6, max_size=6), lives=lives)
def test_however_often_a_run_dies_the_bill_is_below_what_is_counted_and_that_below_the_budget(
    bounds: list[int], lives: list[tuple[int | None, list[tuple[str, int, float]], bool]]
) -> None:
    world = World(bounds)
    for budget, todo, clean in lives:
        life = world.begin(budget)
        for move, episode, share in todo:
            if move == "ask":
                life.ask(episode, share)
            elif move == "commit":
                life.commit()
            else:
                life.hear(episode, lost=move == "lose")
        if clean:
            life.close()
        # What the next life will find, asked of a copy of the disk.
        books = accounts(world.ledger, world.settled)
        crashes = list(charge_crashes(books))
        after = spent(sum(world.settled.values()), books.values())
        assert world.bill <= after
        if clean:
            assert crashes == []
        else:
            assert sum(one.amount for one in crashes) >= life.untraced
        if budget is not None:
            assert after <= max(budget, life.state.before)


CHEAP_AND_DEAR = """
width = 6
budget_usd = "2"
[[agents]]
name = "dear"
provider = "simulated"
model = "knuth"
max_tokens = 20000
[[agents]]
name = "cheap"
provider = "simulated"
model = "random"
max_tokens = 100
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6", "seed-9"]
vary = { periods = [3] }
"""


def test_a_crash_is_charged_in_full_though_the_next_call_plays_something_else(tmp_path: Path) -> None:
    """The session that died played dear requests; the one that follows plays cheap ones only."""
    sweep = resolved(tmp_path, CHEAP_AND_DEAR)
    dear, cheap = (Choice(agents=frozenset({name})) for name in ("dear", "cheap"))
    with snapshot_at(tmp_path / "whole", tmp_path / "run", 10):
        go_served(sweep, tmp_path / "whole", {"latency": "20ms"}, choice=dear)
    outcome, _ = go_served(sweep, tmp_path / "run", choice=cheap)
    one_request = 20_000 * 4_000_000
    assert outcome.unconfirmed >= 4 * one_request
    assert outcome.spent <= 2 * 10**12
    assert outcome.exit_code == 0
    again, _ = go_served(sweep, tmp_path / "run")
    assert again.unconfirmed == outcome.unconfirmed
    assert (again.exit_code, again.remaining) == (0, 0)


def test_a_model_that_left_the_spec_may_still_have_been_asked_when_the_run_died(tmp_path: Path) -> None:
    with snapshot_at(tmp_path / "whole", tmp_path / "run", 12):
        go_served(resolved(tmp_path, CHEAP_AND_DEAR), tmp_path / "whole", {"latency": "20ms"})
    start = CHEAP_AND_DEAR.index("[[agents]]")
    end = CHEAP_AND_DEAR.index('[[agents]]\nname = "cheap"')
    outcome, _ = go_served(resolved(tmp_path, CHEAP_AND_DEAR[:start] + CHEAP_AND_DEAR[end:]), tmp_path / "run")
    assert outcome.unconfirmed >= 4 * 20_000 * 4_000_000
    assert outcome.spent <= 2 * 10**12


def test_a_session_that_ended_by_itself_leaves_no_charge(tmp_path: Path) -> None:
    sweep = with_budget(resolved(tmp_path, CHEAP_AND_DEAR), 3 * 10**12)
    go_served(sweep, tmp_path / "run", limit=1)
    outcome, _ = go_served(sweep, tmp_path / "run")
    assert (outcome.exit_code, outcome.unconfirmed) == (0, 0)


def test_the_price_of_an_agent_stays_what_it_was_when_it_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def priced(usd: int) -> str:
        return (
            'dialect = "openai_chat"\n[simulate]\n[usd_per_mtok]\n'
            f'input = "{usd}"\noutput = "{4 * usd}"\nsource = "made up, 2026-01-01"\n'
        )

    monkeypatch.chdir(tmp_path)
    (tmp_path / "providers").mkdir()
    file = tmp_path / "providers" / "simulated.toml"
    file.write_text(priced(1))
    _, first = go_served(resolved(tmp_path, CHEAP_AND_DEAR), tmp_path / "run", limit=1)
    file.write_text(priced(7))
    outcome, second = go_served(resolved(tmp_path, CHEAP_AND_DEAR), tmp_path / "run")
    assert outcome.exit_code == 0
    assert outcome.spent == first.totals.bill + second.totals.bill
