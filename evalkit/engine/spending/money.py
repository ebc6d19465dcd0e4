"""What a run's crashed sessions may have left in flight, and what its agents and lanes have spent.

The money of a crashed session's leases that no step and no charge accounts for (`store/reading/accounts.py`) may have
been spent on requests without a recorded reply.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evalkit.client.budget_state import crash_charge
from evalkit.money import PicoUsd
from evalkit.store.files.journal import newest_claim
from evalkit.store.files.record import LedgerRecord
from evalkit.store.reading.accounts import APART, BUDGETED, PARTLY, UNBUDGETED, Account, closing_row
from evalkit.store.reading.totals import read


class WorstCase(NamedTuple):
    """The most that an episode's next request can cost, in pico-dollars, with its lane and agent."""

    amount: int
    lane: str
    agent: str


def open_row(session: str, width: int, *, budgeted: bool, apart: bool = False, partial: bool = False) -> LedgerRecord:
    """The row that begins a session; `attempt` holds the episodes it may have in flight."""
    reason = (BUDGETED if budgeted else UNBUDGETED) + (APART if apart else "") + (PARTLY if partial else "")
    return LedgerRecord(kind="open", session=session, amount=PicoUsd(0), attempt=width, reason=reason, at=time.time())


def settle_crashes(
    ledger: Mapping[str, Account], worst_cases: Iterable[WorstCase], *, all_known: bool = True
) -> Iterator[LedgerRecord]:
    """The rows that charge and close every session that has crashed.

    `worst_cases`: of the next request of each episode that was or may have been begun, read only as far as needed.
    `all_known`: whether none of them is missing. If one may be missing (a session that played a part may have started
    other episodes than the next in order), the whole rest of the leases is charged.
    """
    known, others = list[WorstCase](), iter(worst_cases)
    for account in ledger.values():
        if account.closed:
            continue
        left = account.unspent if _is_bounded(account) else None
        if left is not None and (account.partial or not all_known):
            parts = {("", ""): left}
        else:
            _read_until(left, known, others)
            parts = _parts(account, known)
        account.crashed, account.closed, account.crashed_close = sum(parts.values()), True, True
        yield from (
            crash_row(account.session, amount, lane=lane, agent=agent) for (lane, agent), amount in parts.items()
        )
        yield closing_row(account.session)


def unheard_leases(run: Path, ledger: Mapping[str, Account]) -> Iterator[LedgerRecord]:
    """The rows that take back what workers were lent without hearing of it; books them too.

    A worker that loses its coordinator ends its requests, and closes its journal with what it has spent. Its leases are
    in the coordinator's journal: one whose answer was lost, or money that it gave back and nobody wrote down, would
    count as spent. Raises CorruptLogError.
    """
    for writer, account in ledger.items():
        unheard = account.leased - account.returned - max(account.said, account.settled + account.charged)
        if unheard > 0 and account.closed and not account.crashed_close and not _wrote_leases(run, writer):
            account.leased -= unheard
            yield LedgerRecord(kind="lease", session=writer, amount=PicoUsd(-unheard), at=time.time())


def _wrote_leases(run: Path, session: str) -> bool:
    """Whether a session's leases are in its own journal, or in none any more: then it has heard of all."""
    says = newest_claim(run, session)
    own = None if says is None else read(says.get("totals") or "{}", session).accounts.get(session)
    return own is None or not own.closed or own.leased > 0


def _is_bounded(account: Account) -> bool:
    """Whether its leases bound what a session spent."""
    return account.had_budget and not account.leases_lost


def _parts(account: Account, known: Sequence[WorstCase]) -> dict[tuple[str, str], int]:
    """A crash's charge by lane and agent; without either if it is less than all that may have been in flight, since it
    is then unknown which requests were."""
    charge = crash_charge(
        leased=account.leased if _is_bounded(account) else None,
        settled=account.settled,
        charged=account.charged,
        worst_cases=(case.amount for case in known),
    )
    by_agent = Counter[tuple[str, str]]()
    for case in known:
        by_agent[case.lane, case.agent] += case.amount
    return dict(by_agent) if by_agent.total() == charge else {("", ""): charge}


def crash_row(session: str, amount: int, *, lane: str = "", agent: str = "") -> LedgerRecord:
    """The row that charges what a crashed session may have left in flight."""
    return LedgerRecord(
        kind="crash",
        session=session,
        amount=PicoUsd(amount),
        lane=lane,
        agent=agent,
        reason="unconfirmed: what may have been in flight when the session died",
        at=time.time(),
    )


def _read_until(enough: int | None, known: list[WorstCase], others: Iterator[WorstCase]) -> None:
    """Add to the known ones until they are more than `enough`; all there are if None."""
    total = sum(case.amount for case in known)
    while enough is None or total <= enough:
        case = next(others, None)
        if case is None:
            return
        known.append(case)
        total += case.amount


def spent_below(
    ledger: Iterable[LedgerRecord], cost_by_agent: Mapping[str, int], agents: Collection[str]
) -> Counter[tuple[str, str]]:
    """What each agent has spent, by (`agent`, name): an upper bound, as the run's is. Charges of unknown origin count
    for every agent."""
    spent, anybodys = Counter[tuple[str, str]](), 0
    for agent, cost in cost_by_agent.items():
        spent["agent", agent] += cost
    for row in ledger:
        if row.kind not in ("charge", "crash", "release"):
            continue
        amount = -row.amount if row.kind == "release" else row.amount
        if row.agent:
            spent["agent", row.agent] += amount
        else:
            anybodys += amount
    for agent in agents:
        spent["agent", agent] += anybodys
    return spent
