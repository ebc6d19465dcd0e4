"""The `[decide]` table of a sweep: what its run is to find out, so that it can end as soon as that is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from evalkit.errors import UsageError, nearest

About = Literal["instances like these", "this suite"]

POINTS = 100.0
"""Of the scale of scores, from 0 to 1."""

PerPoint = Annotated[float, msgspec.Meta(gt=0, lt=1000)]


class PrecisionTable(msgspec.Struct, frozen=True, kw_only=True):
    """The `[decide.precision]` table."""

    points: PerPoint
    agents: tuple[str, ...] = ()


class DecideTable(msgspec.Struct, frozen=True, kw_only=True):
    """The `[decide]` table."""

    about: About = "instances like these"
    pairs: str | list[tuple[str, str]] = "all"
    margin: PerPoint = 2.0
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.05
    scores: tuple[float, float] | None = None
    precision: PrecisionTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """What a run is to find out."""

    about: About
    pairs: str | tuple[tuple[str, str], ...]
    """`all`, `best`, `baseline:NAME`, or a list; an empty list where only precisions are asked for."""
    margin: float
    """Points, of which the scale from 0 to 1 has 100: closer counts as equal."""
    alpha: float
    """For all answers together."""
    scores: tuple[float, float] | None = None
    """Scores beyond are cut at its ends; None: the range that the environments say."""
    precision: float | None = None
    """Points to each side, to which single agents' own means are wanted."""
    precise: tuple[str, ...] = ()
    """These agents; empty: all of them, if there is a precision."""


def checked_decide(table: DecideTable, agents: Sequence[str], replicates: int, where: str) -> Decide:
    """The table, if a sweep with these agents can ask that. Raises UsageError."""
    if table.about == "instances like these" and replicates > 1:
        raise UsageError(
            f"{where}.about: replicates of an instance say nothing about other instances. Set `replicates = 1`, or "
            'ask about "this suite".'
        )
    if table.about == "this suite" and replicates == 1:
        raise UsageError(
            f"{where}.about: one replicate says what it scored on this suite, and not what another one would. Set "
            '`replicates` to the most that may be played, or ask about "instances like these".'
        )
    pairs: str | tuple[tuple[str, str], ...] = table.pairs if isinstance(table.pairs, str) else tuple(table.pairs)
    if pairs == "all" and len(agents) == 1 and table.precision is not None:
        pairs = ()
    for name in () if table.precision is None else table.precision.agents:
        if name not in agents:
            raise UsageError(f"{where}.precision.agents: there is no agent {name!r}.{nearest(name, agents)}")
    decide = Decide(
        about=table.about,
        pairs=pairs,
        margin=table.margin,
        alpha=table.alpha,
        scores=table.scores,
        precision=None if table.precision is None else table.precision.points,
        precise=() if table.precision is None else table.precision.agents,
    )
    _check_question(decide, agents, where)
    return decide


def _check_question(decide: Decide, agents: Sequence[str], where: str) -> None:
    """Raises UsageError for pairs or a range that no run can answer. Margins are compared with the range once the
    suites are known."""
    from evalkit.stats.deciding import question  # here, since numpy comes with it
    from evalkit.stats.evidence import Bounds

    some = dict.fromkeys(agents, 0.5) if decide.precision is not None else {}
    try:
        question(agents, pairs=decide.pairs, margin=0.5, alpha=decide.alpha, precision=some)
    except ValueError as flaw:
        raise UsageError(f"{where}.pairs: {flaw}.") from flaw
    if decide.scores is not None:
        try:
            Bounds(least=decide.scores[0], most=decide.scores[1])
        except ValueError as flaw:
            raise UsageError(f"{where}.scores: {flaw}.") from flaw
