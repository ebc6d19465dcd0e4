"""What the provider's own usage shows was not spent: charges are released down to their true cost.

The ledger is an upper bound of the bill: attempts of unknown usage are charged at their worst case, and so is what a
crash may have left in flight. Here the provider's account replaces the worst case: never below what it shows, never
above what was charged, and only for lanes with a complete list of answered requests, since an attempt that is not
listed counts as not billed. A release is a row of the ledger; a second reconciliation with the same account finds
nothing.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalkit.engine.spending.money import crash_row
from evalkit.engine.spending.usage import Billed
from evalkit.engine.stand_in import prices_of
from evalkit.engine.universe import Choice, episodes
from evalkit.errors import RunError, UsageError, nearest
from evalkit.money import PicoUsd
from evalkit.store.files.record import DOUBTFUL, UNMETERED, LedgerRecord
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import read_manifest
from evalkit.store.reading.accounts import Account, accounts, closing_row, spent
from evalkit.store.reading.reader import read_ledger, scan_all
from evalkit.store.writing.writer import Store, open_store

Step = tuple[str, int]
"""Episode and step."""


@dataclass(slots=True, kw_only=True)
class Books:
    """A run's money as it lies on disk, by where it was spent."""

    manifest: Manifest
    ledger: list[LedgerRecord]
    known: Counter[Step] = field(default_factory=Counter)
    """Steps at the usage that their replies stated."""
    guessed: Counter[Step] = field(default_factory=Counter)
    """Steps whose replies stated none: at their worst case."""
    lane_of: dict[str, str] = field(default_factory=dict)
    """By episode, as far as rows name it."""
    agent_of: dict[str, str] = field(default_factory=dict)
    by_session: Counter[str] = field(default_factory=Counter)
    """Cost of steps."""
    """Wall time."""
    unmetered: dict[Step, str] = field(default_factory=dict)
    """Which session wrote the guessed ones."""

    @property
    def accounts(self) -> dict[str, Account]:
        """All sessions."""
        return accounts(self.ledger, self.by_session)

    @property
    def spent(self) -> PicoUsd:
        """All that counts against the budget."""
        return spent(self.by_session.total(), self.accounts.values())

    def is_code(self, episode: str) -> bool:
        """Whether an episode's agent is code, so that a step may have taken several requests, also in other lanes."""
        return self.manifest.agents[self.agent_of[episode]].code is not None

    def paid_lanes(self) -> set[str]:
        """Lanes of models that have a price."""
        return {agent.lane for agent in self.manifest.agents.values() if agent.provider and agent.price}


def read_books(run: Path) -> Books:
    """The money of a run. Raises RunError if it is none, CorruptLogError if its log is damaged."""
    books = Books(manifest=read_manifest(run), ledger=read_ledger(run))
    columns = ("episode", "step", "agent", "cost", "attempts", "worker")
    for batch in scan_all(run, columns).to_batches():
        for episode, number, agent, cost, attempts, worker in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            step = episode, number
            _place(books, episode, agent)
            books.by_session[worker] += cost
            if attempts.endswith((UNMETERED, DOUBTFUL)):
                books.guessed[step] += cost
                books.unmetered[step] = worker
            else:
                books.known[step] += cost
    for row in books.ledger:
        if row.episode:
            _place(books, row.episode, row.agent)
    return books


def _place(books: Books, episode: str, agent: str) -> None:
    if episode not in books.agent_of and agent in books.manifest.agents:
        books.agent_of[episode] = agent
        books.lane_of[episode] = books.manifest.agents[agent].lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The provider's account of a run."""

    billed: Counter[Step]
    """Pico-dollars, all attempts of a step together."""
    lanes: frozenset[str]
    """Those it lists without a gap."""
    flaws: tuple[str, ...]
    """Why it does not count for the others, in sentences."""
    foreign: int
    """Requests of other runs."""


def understand(books: Books, lines: Iterable[Billed]) -> Word:
    """A usage file in the run's terms."""
    listed = list(lines)
    _place_all(books, {bill.episode for bill in listed} - set(books.agent_of))
    billed, foreign = Counter[Step](), 0
    prices = {name: prices_of(agent) for name, agent in books.manifest.agents.items()}
    for bill in listed:
        agent = books.agent_of.get(bill.episode)
        if agent is None:
            foreign += 1
            continue
        # Which of an agent's models it was is not known: at worst the dearest.
        dearest = max(price.of(bill.usage) for price in prices[agent])
        billed[bill.episode, bill.step] += dearest if bill.cost is None else bill.cost
    seen = {books.lane_of[episode] for episode, _ in billed}
    asked, missing = Counter[str](), Counter[str]()
    for (episode, step), cost in (books.known + books.guessed).items():
        asked[books.lane_of[episode]] += cost > 0
        listed_all = billed[episode, step] >= books.known[episode, step] or not books.is_code(episode)
        missing[books.lane_of[episode]] += cost > 0 and not ((episode, step) in billed and listed_all)
    flaws = [
        f"{lane}: the usage lists {asked[lane] - missing[lane]:,} of {asked[lane]:,} requests that were answered, so "
        "it does not cover this lane: nothing of it is released."
        for lane in sorted(books.paid_lanes())
        if missing[lane] or lane not in seen
    ]
    lanes = frozenset(lane for lane in seen if not missing[lane])
    return Word(billed=billed, lanes=lanes, flaws=tuple(flaws), foreign=foreign)


def _place_all(books: Books, unknown: set[str]) -> None:
    """Find the agents of episodes without a row."""
    if unknown:
        for episode in episodes(books.manifest, list(books.manifest.agents.values()), Choice()):
            if episode.id in unknown:
                _place(books, episode.id, episode.cell.agent.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCharges:
    """Charges for one step, or for one session's crash: the rest of them can be released."""

    row: LedgerRecord
    """The first of them."""
    amount: int
    """Pico-dollars that count against the budget, releases taken off."""

    def release(self, amount: int) -> LedgerRecord:
        """The row that releases this amount."""
        return replace(self.row, kind="release", amount=PicoUsd(amount), reason=RECONCILED, at=time.time())


RECONCILED = "reconciled with the provider's usage"


WHOLE = -1
"""Stands for all steps of an episode together."""


def _places(books: Books) -> Callable[[Step], Step]:
    """What charges are compared with: a step; of an episode that has a charge for several steps at once (rows that a
    repair gave up: no attempt of theirs is named), the whole of it."""
    together = {row.episode for row in books.ledger if row.kind == "charge" and row.episode and row.attempt < 0}
    return lambda step: (step[0], WHOLE) if step[0] in together else step


def held_charges(books: Books) -> tuple[dict[Step, HeldCharges], list[HeldCharges]]:
    """(by step, as `_places` puts them: charges for attempts and steps without usage; charges for crashes and for what
    a log has lost), releases taken off."""
    first: dict[tuple[str, ...], LedgerRecord] = {}
    amounts = Counter[tuple[str, ...]]()
    key: tuple[str, ...]
    unit_of = _places(books)
    for (episode, step), cost in books.guessed.items():
        key = episode, str(unit_of((episode, step))[1])
        amounts[key] += cost
        agent = books.agent_of[episode]
        first[key] = LedgerRecord(
            kind="charge",
            session=books.unmetered[episode, step],
            amount=PicoUsd(cost),
            lane=books.lane_of[episode],
            agent=agent,
            episode=episode,
            step=step,
            attempt=0,
        )
    for row in books.ledger:
        if row.kind in ("charge", "crash", "release"):
            request_key = row.episode, str(unit_of((row.episode, row.step))[1])
            key = request_key if row.episode else (row.session, row.lane, row.agent)
            first.setdefault(key, row)
            amounts[key] += -row.amount if row.kind == "release" else row.amount
    charges = [HeldCharges(row=row, amount=amounts[key]) for key, row in first.items()]
    return (
        {unit_of((charge.row.episode, charge.row.step)): charge for charge in charges if charge.row.episode},
        [charge for charge in charges if not charge.row.episode],
    )


def by_request(books: Books, word: Word) -> Iterator[LedgerRecord]:
    """The rows that a usage by request leads to: crashed sessions are settled, then charges come down to the truth."""
    steps, crashes = held_charges(books)
    lost = Counter[str]()
    """By lane: billed amounts without a row, which were in flight when a session crashed."""
    unit_of, truths = _places(books), Counter[Step]()
    for step, cost in word.billed.items():
        truths[unit_of(step)] += max(0, cost - books.known[step])
    for step in {*steps, *truths}:
        lane = books.lane_of[step[0]]
        if lane in word.lanes:
            charged, truth = steps[step].amount if step in steps else 0, truths[step]
            lost[lane] += max(0, truth - charged)
            if charged > truth:
                yield steps[step].release(charged - truth)
    if books.paid_lanes() <= word.lanes:
        settled = list(_settle(books, lost.total() - sum(charge.amount for charge in crashes)))
        yield from settled
        crashes += [HeldCharges(row=row, amount=row.amount) for row in settled if row.kind == "crash"]
        yield from _take_off(crashes, sum(charge.amount for charge in crashes) - lost.total())
        return
    for lane in word.lanes:
        lane_charges = [charge for charge in crashes if _lane(books, charge.row) == lane]
        yield from _take_off(lane_charges, sum(charge.amount for charge in lane_charges) - lost[lane])


def by_total(books: Books, lane: str, truth: int) -> Iterator[LedgerRecord]:
    """The rows that a lane's total leads to. Raises RunError."""
    several = [agent.name for agent in books.manifest.agents.values() if len(agent.lanes) > 1 and lane in agent.lanes]
    if several:
        raise RunError(
            f"{several[0]} has models in several lanes, so the total of one lane says too little of its requests. "
            "Reconcile with --usage, requests of all its lanes together."
        )
    alone = books.paid_lanes() == {lane}
    if any(not account.closed for account in books.accounts.values()):
        raise RunError("A session of this run has crashed and is not settled. Run it again, or reconcile with --usage.")
    steps, crashes = held_charges(books)
    counted = sum(cost for (episode, step), cost in books.known.items() if books.lane_of[episode] == lane)
    lane_charges = [
        charge
        for charge in (*crashes, *steps.values())
        if _lane(books, charge.row) == lane or (alone and not charge.row.agent)
    ]
    yield from _take_off(lane_charges, counted + sum(charge.amount for charge in lane_charges) - truth)


def _lane(books: Books, row: LedgerRecord) -> str:
    """The lane of a row's money; empty if unknown. A repair's rows name the agent alone."""
    agent = books.manifest.agents.get(row.agent)
    return row.lane or ("" if agent is None else agent.lane)


def _settle(books: Books, unexplained: int) -> Iterator[LedgerRecord]:
    """Charge and close the sessions that have crashed: the rest of their leases, or what the usage shows of them."""
    for account in books.accounts.values():
        if not account.closed:
            left = account.unspent if account.had_budget else unexplained
            if left > 0:
                yield crash_row(account.session, left)
            yield closing_row(account.session)


def _take_off(charges: Sequence[HeldCharges], spare: int) -> Iterator[LedgerRecord]:
    """Release this amount of these charges, one after the other."""
    for charge in charges:
        part = min(charge.amount, spare)
        if part > 0:
            spare -= part
            yield charge.release(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What a reconciliation did; pico-dollars."""

    before: int
    after: int
    released: int
    rows: int
    """Releases written."""
    billed: int
    """The total of the provider's account, for the lanes that it covers."""
    flaws: tuple[str, ...]
    foreign: int


async def reconcile_usage(run: Path, lines: Iterable[Billed]) -> Reconciled:
    """Release what a usage by request shows was not spent. Raises RunError if another process writes the run,
    CorruptLogError, StorageError."""
    with open_store(run, session=f"reconcile:{time.time():.3f}") as store:
        books = read_books(run)
        word = understand(books, lines)
        rows = list(by_request(books, word))
        return await _write(
            store,
            books,
            rows,
            billed=sum(cost for (episode, _), cost in word.billed.items() if books.lane_of[episode] in word.lanes),
            flaws=word.flaws,
            foreign=word.foreign,
        )


async def reconcile_total(run: Path, lane: str, truth: int) -> Reconciled:
    """Release what a lane's total shows was not spent. Raises as `reconcile_usage`, and UsageError for a lane that the
    run does not have."""
    with open_store(run, session=f"reconcile:{time.time():.3f}") as store:
        books = read_books(run)
        if lane not in books.paid_lanes():
            raise UsageError(f"--lane: the run has no paid lane {lane!r}.{nearest(lane, books.paid_lanes())}")
        rows = list(by_total(books, lane, truth))
        return await _write(store, books, rows, billed=truth, flaws=(), foreign=0)


async def _write(
    store: Store, books: Books, rows: Sequence[LedgerRecord], *, billed: int, flaws: tuple[str, ...], foreign: int
) -> Reconciled:
    before = books.spent
    for row in rows:
        store.enter(row)
    await store.durable()
    books.ledger += rows
    released = [row for row in rows if row.kind == "release"]
    store.event("reconciled", releases=len(released), released_pico_usd=sum(row.amount for row in released))
    return Reconciled(
        before=before,
        after=books.spent,
        released=sum(row.amount for row in released),
        rows=len(released),
        billed=billed,
        flaws=flaws,
        foreign=foreign,
    )
