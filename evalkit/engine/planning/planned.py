"""A plan as values, and as JSON. `plan.py` makes one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalkit.engine.stand_in import TooLong
from evalkit.money import STANDARD, show_usd, usd_number
from evalkit.store.reading.totals import TierOutlook
from evalkit.text import html_table, many, span

ITSELF = "the policy itself"
"""The basis of a cell whose agent is simulated by the policy that was played."""
STAND_IN, THIS_PROCESS = "stand-in", "this process"
"""Of one whose figures are its stand-in's alone; of one that is played without requests."""
RATE = "the rate so far"
"""What takes a lane's time where its run has sent requests: their rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """One agent on one suite: what is still to be played."""

    agent: str
    suite: str
    lane: str
    stand_in: str
    basis: str
    """Where the figures come from, in words."""
    episodes: int
    """To be played, or continued."""
    ended: int
    """What the run that the spec would resume has already."""
    played: int
    """Episodes that the stand-in played to estimate them all."""
    requests: float
    tokens_in: float
    tokens_out: float
    cost_low: float
    cost: float
    cost_high: float
    """Pico-dollars of them all: the 95 % range around the expected cost; models are assumed to differ from
    stand-ins."""
    one: float
    """Pico-dollars of one whole episode."""
    chain: int
    """The longest chain of sequential calls among the episodes that are known."""
    longest_prompt: int
    """Input tokens, as the stand-in played."""
    dearest: int
    """Pico-dollars: the worst case of a single request."""
    context_tokens: int | None = None
    """The model's context in tokens; None: unknown."""
    too_long: TooLong | None = None
    """The earliest request that does not fit that, as the stand-in played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePlan:
    """One lane; or limits that several lanes share, with what all of them ask for."""

    lane: str
    requests: float
    tokens_in: float
    tokens_out: float
    seconds: float
    bound: str
    """What takes the time: `requests/min`, `input tokens/min`, `output tokens/min`, `width`, `longest episode`,
    `processor time`, `budget (requests in flight)`; `the rate so far` if the run has sent requests."""
    members: tuple[str, ...] = ()
    """The lanes that share the limits; empty for a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answerable:
    """When a pair that differs so much is answered."""

    points: float
    half: float
    """Draws, in whole turns, with which half of all runs have an answer; inf: never."""
    nine_tenths: float
    """The same for nine of ten."""
    usd_half: float
    """Pico-dollars of so many draws of all agents that the question names."""
    usd_nine_tenths: float

    def to_json(self) -> dict[str, Any]:
        """As plain values; what never comes is null."""
        return {
            "points": self.points,
            "draws_half": _finite(self.half),
            "draws_nine_tenths": _finite(self.nine_tenths),
            "usd_half": _finite(usd_number(self.usd_half)),
            "usd_nine_tenths": _finite(usd_number(self.usd_nine_tenths)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """What can be found out about a pair."""

    about: str
    parts: int
    """Pairs, and agents whose own mean is wanted."""
    agents: int
    margin: float
    """Points."""
    alpha_each: float
    draws: int
    """That there are."""
    turn: int
    least: int
    """Draws without which nothing is answered, however large a difference is."""
    ahead: int
    """Draws by which an agent may have begun more than those that it is compared with."""
    spread: float
    """Of the differences, in points."""
    seen: bool
    """Whether that is the run's own; else it is supposed."""
    affordable: float | None
    """Draws of all agents that the budget pays for; None: there is none, or they cost nothing."""
    answers: tuple[Answerable, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values, money in USD."""
        return {
            "about": self.about,
            "parts": self.parts,
            "agents": self.agents,
            "margin_points": self.margin,
            "alpha_each": self.alpha_each,
            "draws": self.draws,
            "turn": self.turn,
            "least_draws": self.least,
            "ahead_draws": self.ahead,
            "spread_points": self.spread,
            "spread_is": "seen" if self.seen else "supposed",
            "affordable_draws": None if self.affordable is None else math.floor(self.affordable),
            "answers": [answer.to_json() for answer in self.answers],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """What a sweep will cost and how long it will take: what `evalkit.plan` returns.

    name       the sweep's
    cells      one entry for each agent on each suite: episodes, requests, tokens, cost with its 95 % range
    lanes      one entry for each model: requests, tokens, seconds, and what takes the time
    cost       expected pico-dollars (1e-12 USD) of what is still to be played
    needed     pico-dollars that a budget must hold, so that the last episode can start as well
    seconds    how long it takes at least
    budget     pico-dollars, or None; `spent` is what the run has spent already
    marks      by agent: settings of an environment that its provider does not support

    `to_json()` gives all of it as plain values, money in USD: what `evalkit plan --json` prints.

    >>> import evalkit
    >>> found = evalkit.plan("quickstart", only={"agent": ["knuth"], "suite": ["scheduling/basic"]})
    >>> [(cell.agent, cell.suite, cell.episodes, cell.basis) for cell in found.cells]
    [('knuth', 'scheduling/basic', 24, 'the policy itself')]
    """

    name: str
    cells: tuple[CellPlan, ...]
    lanes: tuple[LanePlan, ...]
    """Lanes first, then limits that they share."""
    reply_s: Mapping[str, float]
    """Assumed seconds per reply, by lane."""
    assumed: frozenset[str]
    """Lanes for which that is only the default."""
    budget: int | None
    own_budgets: Mapping[str, int] = field(default_factory=dict)
    """Pico-dollars of agents that have a budget of their own, by name."""
    spent: int = 0
    """Pico-dollars that the run has spent already."""
    in_flight: int | None = None
    """Requests that the budget's worst cases allow in flight at once, in all lanes; None: no bound."""
    marks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    simulated: str = ""
    """Whether its money is real, as of the manifest."""
    question: QuestionPlan | None = None
    """What can be found out, and at what price; None: the sweep asks nothing."""
    tiers: tuple[TierOutlook, ...] = ()
    """Lanes that go by other tiers than the standard one: by each, and by their mixture."""
    advice: tuple[str, ...] = ()
    """Prompt caches whose lifetime should be another, in sentences."""

    def __repr__(self) -> str:
        cost, episodes = show_usd(round(self.cost)), sum(cell.episodes for cell in self.cells)
        return f"Plan({self.name}: {many(episodes, 'episode')}, {cost}, {span(self.seconds)} at least)"

    def _repr_html_(self) -> str:
        """For notebooks: what each agent takes on each suite."""
        rows = [
            [cell.suite, cell.agent, f"{cell.episodes:,}", f"{cell.requests:,.0f}", show_usd(round(cell.cost))]
            for cell in self.cells
        ]
        return html_table(repr(self), ["Suite", "Agent", "Episodes", "Requests", "Cost"], rows)

    @property
    def cost(self) -> float:
        """Expected pico-dollars of what is still to be played."""
        return sum(cell.cost for cell in self.cells)

    @property
    def standard(self) -> float:
        """The same by the standard tier alone."""
        lanes = {one.lane for one in self.tiers}
        others = sum(cell.cost for cell in self.cells if cell.lane not in lanes)
        return others + sum(one.cost for one in self.tiers if one.tier == STANDARD)

    @property
    def low(self) -> float:
        """The lower end of the 95 % range around `cost`, in pico-dollars."""
        return self.cost - self._reach([cell.cost - cell.cost_low for cell in self.cells])

    @property
    def high(self) -> float:
        """The upper end of the 95 % range around `cost`, in pico-dollars."""
        return self.cost + self._reach([cell.cost_high - cell.cost for cell in self.cells])

    def _reach(self, parts: Sequence[float]) -> float:
        """How far an end is from the expected cost. What a policy's own episodes scatter is independent from cell to
        cell; a model that departs from its stand-in may do so on every suite."""
        apart = [cell.basis == ITSELF for cell in self.cells]
        together = math.fsum(part for part, alone in zip(parts, apart, strict=True) if not alone)
        return together + math.hypot(*(part for part, alone in zip(parts, apart, strict=True) if alone))

    @property
    def fits(self) -> bool:
        """Whether the budget is expected to be enough, so that the last episode can start as well."""
        return self.budget is None or self.needed <= self.budget

    @property
    def dearest(self) -> int:
        """Pico-dollars: the worst case of the dearest single request."""
        return max((cell.dearest for cell in self.cells if cell.episodes), default=0)

    @property
    def pays_for(self) -> float:
        """The share of what remains that the budget pays for, in every cell alike: 0 to 1."""
        if self.budget is None or not self.cost:
            return 1.0
        return min(1.0, max(0.0, (self.budget - self.spent - self.dearest) / self.cost))

    @property
    def needed(self) -> float:
        """Pico-dollars that a budget must hold: what is spent, the cost, and what must be free for the last episode to
        start: its cost once more, as a margin for the prediction (`admission.py`), and a request's worst case."""
        last = max((cell.one for cell in self.cells if cell.episodes), default=0.0)
        return self.spent + self.cost + last + self.dearest

    @property
    def seconds(self) -> float:
        """How long it takes at least: the slowest lane."""
        return max((lane.seconds for lane in self.lanes), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """The plan with a stable schema: `version` 1, money in USD, times in seconds. Fields are only added."""
        return {
            "version": 1,
            "name": self.name,
            "episodes": sum(cell.episodes for cell in self.cells),
            "ended": sum(cell.ended for cell in self.cells),
            "requests": round(sum(cell.requests for cell in self.cells)),
            "tokens_in": round(sum(cell.tokens_in for cell in self.cells)),
            "tokens_out": round(sum(cell.tokens_out for cell in self.cells)),
            "usd": {
                "low": usd_number(self.low),
                "expected": usd_number(self.cost),
                "high": usd_number(self.high),
                **({"standard": usd_number(self.standard)} if self.tiers else {}),
            },
            "simulated_money": bool(self.simulated),
            "spent_usd": usd_number(self.spent),
            "budget_usd": None if self.budget is None else usd_number(self.budget),
            "budget_pays_for": self.pays_for,
            "in_flight": self.in_flight,
            "seconds": self.seconds,
            "cells": [_cell_json(cell) for cell in self.cells],
            "lanes": [
                {
                    "lane": lane.lane,
                    "requests": round(lane.requests),
                    "seconds": lane.seconds,
                    "bound": lane.bound,
                    "assumed_reply_s": self.reply_s.get(lane.lane),
                    "members": list(lane.members),
                }
                for lane in self.lanes
            ],
            **({"tiers": [one.to_json() for one in self.tiers]} if self.tiers else {}),
            **({"advice": list(self.advice)} if self.advice else {}),
            "marks": {agent: list(marks) for agent, marks in self.marks.items() if marks},
            **({} if self.question is None else {"question": self.question.to_json()}),
        }


def _cell_json(cell: CellPlan) -> dict[str, Any]:
    over, low, high = cell.too_long, usd_number(cell.cost_low), usd_number(cell.cost_high)
    return {
        **{name: getattr(cell, name) for name in ("agent", "suite", "lane", "stand_in", "basis")},
        **{name: getattr(cell, name) for name in ("episodes", "ended", "played")},
        **{name: round(getattr(cell, name)) for name in ("requests", "tokens_in", "tokens_out")},
        "usd": {"low": low, "expected": usd_number(cell.cost), "high": high},
        "longest_chain": cell.chain,
        "longest_prompt_tokens": cell.longest_prompt,
        "context_tokens": cell.context_tokens,
        "too_long": None if over is None else {"period": over.period, "turn": over.turn, "tokens": over.tokens},
    }
