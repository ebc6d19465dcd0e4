"""What the provider's own account shows was not spent: charges are released down to its total.

The ledger is an upper bound of the bill: attempts of unknown usage are charged at their worst case, and a crash at all
that its session had leased. The provider's total replaces the worst cases: never below what replies stated, and never
above what was charged. A release is a row of the ledger; a second reconciliation with the same total finds nothing.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalkit.errors import RunError, UsageError, nearest
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_manifest
from evalkit.money import PicoUsd
from evalkit.store.files.record import DOUBTFUL, UNMETERED, LedgerRecord
from evalkit.store.reading.accounts import Account, accounts, charge_crashes, spent
from evalkit.store.reading.reader import read_ledger, scan_all
from evalkit.store.writing.writer import open_store


@dataclass(slots=True, kw_only=True)
class Books:
    """A run's money as it lies on disk; pico-dollars."""

    manifest: Manifest
    ledger: list[LedgerRecord]
    known: Counter[str] = field(default_factory=Counter)
    """By lane: steps at the usage that their replies stated."""
    guessed: list[LedgerRecord] = field(default_factory=list)
    """Steps whose replies stated none, at their worst case: as the charges that they are."""
    by_session: Counter[str] = field(default_factory=Counter)
    """Cost of steps."""

    @property
    def accounts(self) -> dict[str, Account]:
        """All sessions."""
        return accounts(self.ledger, self.by_session)

    @property
    def spent(self) -> PicoUsd:
        """All that counts against the budget."""
        return spent(self.by_session.total(), self.accounts.values())

    def paid_lanes(self) -> set[str]:
        """Lanes of models that have a price."""
        return {agent.lane for agent in self.manifest.agents.values() if agent.provider and agent.price}


def read_books(run: Path) -> Books:
    """The money of a run. Raises RunError if it is none, CorruptLogError if its log is damaged."""
    books = Books(manifest=read_manifest(run), ledger=read_ledger(run))
    columns = ("episode", "step", "agent", "cost", "attempts", "worker")
    for batch in scan_all(run, columns).to_batches():
        for episode, step, agent, cost, attempts, session in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            lane = _lane(books, agent)
            books.by_session[session] += cost
            if attempts.endswith((UNMETERED, DOUBTFUL)):
                place = {"lane": lane, "agent": agent, "episode": episode, "step": step}
                books.guessed.append(LedgerRecord(kind="charge", session=session, amount=PicoUsd(cost), **place))
            else:
                books.known[lane] += cost
    return books


def _lane(books: Books, agent: str) -> str:
    """Of an agent; empty if the run has none of this name."""
    known = books.manifest.agents.get(agent)
    return "" if known is None else known.lane


RECONCILED = "reconciled with the provider's total"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCharges:
    """Charges for one step, or for one session's crash: the rest of them can be released."""

    row: LedgerRecord
    """The first of them."""
    lane: str
    """Empty if unknown. A repair's rows name the agent alone."""
    amount: int
    """Pico-dollars that count against the budget, releases taken off."""


def held_charges(books: Books) -> list[HeldCharges]:
    """Charges for crashes and for what a log has lost, then those for attempts and steps without usage."""
    first: dict[tuple[str, ...], LedgerRecord] = {}
    amounts = Counter[tuple[str, ...]]()
    for row in (*books.guessed, *books.ledger):
        if row.kind in ("charge", "crash", "release"):
            key = (row.episode, str(row.step)) if row.episode else (row.session, row.lane, row.agent)
            first.setdefault(key, row)
            amounts[key] += -row.amount if row.kind == "release" else row.amount
    held = (
        HeldCharges(row=row, lane=row.lane or _lane(books, row.agent), amount=amounts[key])
        for key, row in first.items()
    )
    return sorted(held, key=lambda charge: bool(charge.row.episode))


def releases(books: Books, lane: str | None, truth: int) -> Iterator[LedgerRecord]:
    """The rows that a total leads to; of all lanes if None: sessions that have crashed are settled then.

    Raises RunError.
    """
    whole = lane is None or books.paid_lanes() == {lane}
    if not whole:
        _refuse_in_part(books, str(lane))
    charges = [charge for charge in held_charges(books) if whole or charge.lane == lane]
    counted = books.known.total() if whole else books.known[str(lane)]
    if whole:
        crashes = list(charge_crashes(books.accounts))
        yield from crashes
        charges = [*(HeldCharges(row=row, lane="", amount=row.amount) for row in crashes), *charges]
    spare = counted + sum(charge.amount for charge in charges) - truth
    for charge in charges:
        part = min(charge.amount, spare)
        if part > 0:
            spare -= part
            yield replace(charge.row, kind="release", amount=PicoUsd(part), reason=RECONCILED, at=time.time())


def _refuse_in_part(books: Books, lane: str) -> None:
    remedy = "Give the total of the whole run: --spent without --lane."
    several = [agent.name for agent in books.manifest.agents.values() if len(agent.lanes) > 1 and lane in agent.lanes]
    if several:
        raise RunError(
            f"{several[0]} has models in several lanes, so the total of one says too little of its requests. {remedy}"
        )
    if any(not account.closed for account in books.accounts.values()):
        raise RunError(f"A session of this run has crashed and is not settled. Run it again first. Or: {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What a reconciliation did; pico-dollars."""

    before: int
    after: int
    released: int
    rows: int
    """Releases written."""


async def reconcile(run: Path, lane: str | None, truth: int) -> Reconciliation:
    """Release what the provider's total, of one lane or of all, shows was not spent.

    Raises RunError if another process writes the run or one lane's total says too little, UsageError for a lane that
    the run does not have, CorruptLogError, StorageError.
    """
    with open_store(run, session=f"reconcile:{time.time():.3f}") as store:
        books = read_books(run)
        if lane is not None and lane not in books.paid_lanes():
            raise UsageError(f"--lane: the run has no paid lane {lane!r}.{nearest(lane, books.paid_lanes())}")
        before, rows = books.spent, list(releases(books, lane, truth))
        for row in rows:
            store.enter(row)
        await store.durable()
        books.ledger += rows
        released = [row.amount for row in rows if row.kind == "release"]
        store.event("reconciled", releases=len(released), released_pico_usd=sum(released))
    return Reconciliation(before=before, after=books.spent, released=sum(released), rows=len(released))
