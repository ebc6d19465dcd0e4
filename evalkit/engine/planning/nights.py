"""A proposal for a plan: which part of its sweep to play for an amount, and the nights that complete it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.planning.pilot import BETWEEN, WITHIN, Basis
from evalkit.engine.planning.planned import CellPlan, Plan
from evalkit.engine.planning.propose import Share, SuiteShare, propose, rotate, worst
from evalkit.money import usd_number


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedRun:
    """What to ask `run` for, to play a part of a proposal."""

    suite: str
    agents: tuple[str, ...]
    """Empty: all."""
    limit: int
    """Episodes per lane."""

    def words(self) -> str:
        """Options of `evalkit run`."""
        only = ",".join([f"suite={self.suite}", *(f"agent={agent}" for agent in self.agents)])
        return f"--only '{only}' --limit {self.limit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What to play for an amount."""

    amount: int
    """Pico-dollars to spend now, and in each night of the rotation."""
    spent: int
    """Pico-dollars that the run has spent already."""
    kept: int
    """Pico-dollars of the amount that are kept in reserve: the worst case of the last request."""
    shares: tuple[Share, ...]
    commands: tuple[ProposedRun, ...]
    nights: tuple[tuple[Share, ...], ...]
    """Each with what has been played at its end; empty if the sweep would never be complete."""
    guessed: bool
    """Whether the spread of scores is a default."""

    @property
    def cost(self) -> float:
        """Expected pico-dollars of what is to be played now."""
        return math.fsum(share.cost for share in self.shares)

    @property
    def worst(self) -> float:
        """Half of the widest 95 % interval afterwards; infinite where a suite has too few instances for one."""
        return worst(self.shares)

    @property
    def ceiling(self) -> int:
        """The budget to give to `run`: it is the whole run's."""
        return self.spent + self.amount

    def to_json(self) -> dict[str, Any]:
        """Plain values: money in USD, widths in the units of the score, null if there is no interval."""
        return {
            "usd": usd_number(self.amount),
            "kept_usd": usd_number(self.kept),
            "expected_usd": usd_number(self.cost),
            "half_width": _finite(self.worst),
            "scatter_guessed": self.guessed,
            "budget_usd_of_run": usd_number(self.ceiling),
            "suites": [_share_json(share) for share in self.shares],
            "commands": [
                {
                    "suite": command.suite,
                    "agents": list(command.agents),
                    "limit": command.limit,
                    "options": command.words(),
                }
                for command in self.commands
            ],
            "nights": [
                {"half_width": _finite(worst(night)), "suites": [_share_json(share) for share in night]}
                for night in self.nights
            ],
        }


def proposal_of(plan: Plan, resolved: Resolved, basis: Basis, amount: int) -> Proposal:
    """What of a plan to play for `amount` pico-dollars, the worst case of the last request included."""
    by_suite: dict[str, list[CellPlan]] = {}
    for cell in plan.cells:
        by_suite.setdefault(cell.suite, []).append(cell)
    parts, guessed = [], False
    for suite, cells in by_suite.items():
        known = {cell.agent: basis.scatter(resolved.manifest.agents[cell.agent], suite) for cell in cells}
        guessed = guessed or None in known.values()
        parts.append(
            SuiteShare(
                suite=suite,
                instances=len(resolved.manifest.suites[suite].instances),
                replicates=resolved.manifest.replicates,
                done=min(cell.ended for cell in cells),
                cost=math.fsum(cell.one for cell in cells),
                scatter=tuple((agent, *(scatter or (BETWEEN, WITHIN))) for agent, scatter in known.items()),
            )
        )
    free = max(0, amount - plan.dearest)
    shares = propose(parts, free)
    return Proposal(
        amount=amount,
        spent=plan.spent,
        kept=min(amount, plan.dearest),
        shares=tuple(shares),
        commands=tuple(_commands(shares, by_suite)),
        nights=tuple(tuple(night) for night in rotate(parts, free)),
        guessed=guessed,
    )


def _commands(shares: Sequence[Share], by_suite: dict[str, list[CellPlan]]) -> Iterator[ProposedRun]:
    """`--limit` counts episodes per lane, and agents of one lane share it: one command for each number of them."""
    for share in shares:
        lanes: dict[str, list[CellPlan]] = {}
        for cell in by_suite[share.part.suite]:
            lanes.setdefault(cell.lane, []).append(cell)
        wanted: dict[int, list[str]] = {}
        for cells in lanes.values():
            limit = sum(max(0, share.episodes - cell.ended) for cell in cells)
            wanted.setdefault(limit, []).extend(cell.agent for cell in cells)
        for limit, agents in wanted.items():
            if limit:
                everybody = len(agents) == len(by_suite[share.part.suite])
                yield ProposedRun(suite=share.part.suite, agents=() if everybody else tuple(agents), limit=limit)


def _share_json(share: Share) -> dict[str, Any]:
    return {
        "suite": share.part.suite,
        "episodes_an_agent": share.episodes,
        "of": share.part.most,
        "more": share.more,
        "instances": min(share.episodes, share.part.instances),
        "expected_usd": usd_number(share.cost),
        "half_width": _finite(share.width),
    }


def _finite(width: float) -> float | None:
    return width if math.isfinite(width) else None
