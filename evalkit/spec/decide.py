"""The `[decide]` table of a sweep: what its run is to find out, so that it can end as soon as that is known."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from evalkit.errors import UsageError
from evalkit.spec.model import About, Decide, Scope

POINTS = 100.0
"""Of the scale of scores, from 0 to 1."""

ALPHA = 0.05
"""How often any answer may be wrong, for all answers together, as all intervals of evalkit are at 95 %."""

PerPoint = Annotated[float, msgspec.Meta(gt=0, lt=1000)]


class DecideTable(msgspec.Struct, frozen=True, kw_only=True):
    """The `[decide]` table."""

    pairs: str | list[tuple[str, str]] = "all"
    margin: PerPoint = 2.0
    precision: PerPoint | None = None
    scope: Scope | None = None


def checked_decide(table: DecideTable, agents: Sequence[str], replicates: int, where: str) -> Decide:
    """The table, if a sweep with these agents can ask that. Raises UsageError.

    One replicate says nothing of what another one would score, and replicates say nothing about other instances.
    """
    pairs: str | tuple[tuple[str, str], ...] = table.pairs if isinstance(table.pairs, str) else tuple(table.pairs)
    if pairs == "all" and len(agents) == 1 and table.precision is not None:
        pairs = ()
    if table.scope == "such instances" and replicates > 1:
        raise UsageError(
            f'{where}.scope: replicates say nothing about other instances. Ask about "this suite", or leave them out.'
        )
    once: About = "this suite once" if table.scope == "this suite" else "such instances"
    decide = Decide(
        about=once if replicates == 1 else "this suite",
        pairs=pairs,
        margin=table.margin,
        precision=table.precision,
    )
    _check_pairs(decide, agents, where)
    return decide


def _check_pairs(decide: Decide, agents: Sequence[str], where: str) -> None:
    """Raises UsageError for pairs that no run can answer. Margins are compared with the range of scores once the suites
    are known."""
    from evalkit.stats.deciding import question  # here, since numpy comes with it

    some = dict.fromkeys(agents, 0.5) if decide.precision is not None else {}
    try:
        question(agents, pairs=decide.pairs, margin=0.5, alpha=ALPHA, precision=some)
    except ValueError as flaw:
        raise UsageError(f"{where}.pairs: {flaw}.") from flaw
