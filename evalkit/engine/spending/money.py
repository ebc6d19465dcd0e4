"""The row that begins a session, and what the agents of a run have spent."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from evalkit.money import PicoUsd
from evalkit.store.files.record import LedgerRecord


def open_row(session: str) -> LedgerRecord:
    """The row that begins a session."""
    return LedgerRecord(kind="open", session=session, amount=PicoUsd(0), at=time.time())


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
