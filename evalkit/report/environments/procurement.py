"""What reports have of procurement: plans over periods, plans that cannot be bought, and an episode drawn: what each
plan is worth and costs, and the best one beside the optimal plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.procurement.instance import ProcurementInstance, market_of, optimum_of
from evalkit.envs.procurement.market import Deal, ProcurementMarket, workers_of
from evalkit.envs.procurement.score import value_of
from evalkit.report.charts import drawing
from evalkit.report.environments.markets import market_extras
from evalkit.report.extras import Charts, ErrorKind, PeriodStanding, QuotedPlace
from evalkit.report.periods import Action, best_so_far, by_period
from evalkit.report.queries import text
from evalkit.report.scores import ACCEPTED
from evalkit.report.tables import Column, columns_of
from evalkit.report.vega import Figure, Spec, data, mark, number, scaled, span, tips, word
from evalkit.results.moves import Move
from evalkit.text import many

if TYPE_CHECKING:
    import numpy.typing as npt

    Values = npt.NDArray[np.float64]

MOST_DEALS = 40
"""Deals whose quantities are drawn; all that are bought are in the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedPlan:
    """One accepted plan."""

    period: int
    feasible: bool
    """Whether it can be bought; else it supports nobody."""
    reasons: tuple[str, ...]
    """Why it cannot."""
    cost: int
    """Cents."""
    workers: float
    """It supports; 0 if it cannot be bought."""
    value: float
    """Its workers over those of the optimum, as the score counts; 0 if it cannot be bought."""
    best: float
    """The best value so far."""
    plan: Mapping[str, int]
    """Quantities by deal."""
    repeat: bool
    """Whether a plan that buys the same was submitted before."""


def planned(target: ProcurementInstance, moves: Sequence[Move]) -> tuple[AcceptedPlan, ...]:
    """The accepted plans, in order."""
    optimum = optimum_of(target)
    plans: list[AcceptedPlan] = []
    best = 0.0
    for move in moves:
        action = move.facts.get("action")
        if action is None:
            continue
        feasible = action["feasible"]
        value = value_of(int(action["product"]), target.root(action["totals"]), optimum) if feasible else 0.0
        best = max(best, value)
        plans.append(
            AcceptedPlan(
                period=move.period,
                feasible=feasible,
                reasons=tuple(reason["reason"] for reason in action["reasons"]),
                cost=action["cost"],
                workers=workers_of(action["totals"], target.aggregate) if feasible else 0.0,
                value=value,
                best=best,
                plan=action["plan"],
                repeat=action["repeat"],
            )
        )
    return tuple(plans)


def procurement_figures(target: ProcurementInstance, episode: str, moves: Sequence[Move]) -> tuple[Figure, ...]:
    """Value and spending over periods, and the best plan's quantities beside the optimal plan's."""
    plans = planned(target, moves)
    if not plans:
        return ()
    last = moves[-1].period
    figures = [_values(target, episode, plans, last), _spending(target, episode, plans, last)]
    best = best_of(plans)
    return (*figures, _quantities(target, episode, best)) if best else tuple(figures)


def best_of(plans: Sequence[AcceptedPlan]) -> AcceptedPlan | None:
    """The first of the best feasible plans; None: none could be bought."""
    return max((plan for plan in plans if plan.feasible), key=lambda plan: (plan.value, -plan.period), default=None)


def procurement_lines(target: ProcurementInstance, moves: Sequence[Move]) -> dict[int, str]:
    """A line a period: what its plan supports and costs."""
    budget = market_of(target).market.budget
    lines = {}
    for plan in planned(target, moves):
        spent = f"{plan.cost / 100:,.2f} of {budget / 100:,.2f} spent"
        why = ", ".join(dict.fromkeys(reason.replace("_", " ") for reason in plan.reasons))
        worth = f"{plan.workers:,.2f} workers ({100 * plan.value:.1f} % of the optimum)" if plan.feasible else why
        lines[plan.period] = f"{worth}, {spent}{', submitted before' if plan.repeat else ''}"
    return lines


_OPTIMUM = "optimum: the instance's stored optimum (view instances, line); its market: instance.market_of"
_FACTS = (
    "(facts->>'$.action.feasible')::boolean as feasible",
    "(facts->>'$.action.cost')::bigint as cents",
    "facts->'$.action.totals' as totals",
)


def _values(target: ProcurementInstance, episode: str, plans: Sequence[AcceptedPlan], last: int) -> Figure:
    optimum = optimum_of(target)
    rows = [
        {
            "period": plan.period,
            "workers": plan.workers,
            "value": 100 * plan.value,
            "best": 100 * plan.best,
            "can": "yes" if plan.feasible else "no",
            "why": ", ".join(plan.reasons),
            "repeat": "yes" if plan.repeat else "no",
        }
        for plan in plans
    ]
    scale = scaled([0, max(100.0, *(100 * plan.value for plan in plans))])
    line, dots = (
        drawing.over_periods(last, name, "% of the optimum's workers", scale=scale) for name in ("best", "value")
    )
    dots["shape"] = _bought(plans)
    dots["tooltip"] = tips(
        period="Period|d", workers="Workers|,.2f", value="Of the optimum, %|.2f", can="Can be bought", why="Why not"
    )
    spec = drawing.plot(
        *drawing.rule(100.0, f"optimum: {optimum.workers:,.2f} workers"),
        mark("line", line, interpolate="step-after", strokeWidth=1.6, opacity=0.7),
        mark("point", dots, filled=True, size=22, opacity=1),
        rows=rows,
    )
    proof = "proven" if optimum.proven else "the best that is known, not proven"
    notes = [
        "How many workers each plan supports, against the optimal plan; the line is the best so far.",
        f"the optimum is {proof}; a plan that cannot be bought supports nobody",
        f"score: {100 * plans[-1].best:.2f}, of the best plan; {sum(plan.feasible for plan in plans):,} of "
        f"{many(len(plans), 'plan')} can be bought",
    ]
    return drawing.period_figure(
        episode,
        _FACTS,
        ["workers: the geometric mean of totals; value: (product / the optimum's) ^ (1 / categories)", _OPTIMUM],
        [
            Column(key="workers", title="Workers", kind="number"),
            *columns_of("score", "%", value="Of the optimum", best="Best so far"),
            *columns_of(can="Can be bought", why="Why not", repeat="Repeated"),
        ],
        name="values",
        title="What each plan is worth",
        spec=spec,
        rows=rows,
        notes=notes,
    )


def _bought(plans: Sequence[AcceptedPlan]) -> Spec:
    """Circles for plans that can be bought, crosses for others; with a legend if there are both."""
    legend = None if all(plan.feasible for plan in plans) else {"title": "Can be bought"}
    return word("can", scale={"domain": ["yes", "no"], "range": ["circle", "cross"]}, legend=legend)


def _spending(target: ProcurementInstance, episode: str, plans: Sequence[AcceptedPlan], last: int) -> Figure:
    budget = market_of(target).market.budget / 100
    optimum = optimum_of(target).cost / 100
    rows = [
        {
            "period": plan.period,
            "spent": plan.cost / 100,
            "share": plan.cost / budget,
            "can": "yes" if plan.feasible else "no",
        }
        for plan in plans
    ]
    costs = [plan.cost / 100 for plan in plans]
    ends = span(costs, 0.0, budget, far=1.0, top=True)
    dots = drawing.over_periods(last, "spent", "Cost of the plan", scale=scaled(ends, clamp=True))
    dots["shape"] = _bought(plans)
    dots["tooltip"] = tips(period="Period|d", spent="Cost|,.2f", share="Of the budget, %|.1f", can="Can be bought")
    spec = drawing.plot(
        *drawing.rule(budget, f"budget {budget:,.2f}"), mark("point", dots, filled=True, size=22, opacity=1), rows=rows
    )
    notes = [
        "What each plan costs, against the budget, in the game's currency.",
        f"the optimal plan costs {optimum:,.2f} ({100 * optimum / budget:.1f} % of the budget)",
        *drawing.edge_note(drawing.beyond(costs, ends), "costs"),
    ]
    return drawing.period_figure(
        episode,
        _FACTS[:2],
        ["budget: instance.market_of, in cents as the costs"],
        [
            Column(key="spent", title="Cost", kind="number"),
            Column(key="share", title="Of the budget", kind="percent", unit="%"),
            Column(key="can", title="Can be bought"),
        ],
        name="spending",
        title="Spending against the budget",
        spec=spec,
        rows=rows,
        notes=notes,
    )


def _quantities(target: ProcurementInstance, episode: str, best: AcceptedPlan) -> Figure:
    market, optimum = market_of(target).market, optimum_of(target)
    optimal = dict(optimum.plan)
    bought = [deal for deal in market.deals if deal.id in best.plan or deal.id in optimal]
    rows = [
        {
            "deal": deal.id,
            "agent": best.plan.get(deal.id, 0),
            "optimum": optimal.get(deal.id, 0),
            "contents": _contents(market, deal),
        }
        for deal in bought
    ]
    drawn = [
        {
            "deal": drawing.label(deal.id),
            "who": who,
            "units": plan.get(deal.id, 0),
            "contents": drawing.label(_contents(market, deal)),
        }
        for deal in bought[:MOST_DEALS]
        for who, plan in ((drawing.PLAYED, best.plan), (drawing.BEST, optimal))
    ]
    bars = {
        "y": word("deal", sort=None),
        "yOffset": {"field": "who", "type": "nominal", "sort": [drawing.PLAYED, drawing.BEST]},
        "x": number("units", "Units bought", axis={"format": "d", "tickMinStep": 1}),
        "color": drawing.compared(),
        "tooltip": tips(deal="Deal", who="Of", units="Units|,d", contents="A unit holds"),
    }
    spec = {"data": data(drawn), "width": drawing.WIDTH - 40, "height": {"step": 9}, **mark("bar", bars)}
    same = best.value >= 1
    notes = [
        f"What the agent's best plan (period {best.period}) buys beside the optimal plan, in units of each deal.",
        *(("plans that differ may be worth the same: this one is optimal",) if same and best.plan != optimal else ()),
        *((f"drawn: the first {MOST_DEALS} of {len(bought):,} deals",) if len(bought) > MOST_DEALS else ()),
    ]
    query = (
        "select facts->'$.action.plan' as plan, line->'$.optimum.plan' as optimal_plan\n"
        "from steps join instances using (suite, instance)\n"
        f"where episode = {text(episode)} and period = {best.period} and {drawing.ACTED}"
    )
    return drawing.figure(
        name="quantities",
        title="The best plan beside the optimal plan",
        spec=spec,
        columns=[
            Column(key="deal", title="Deal"),
            *columns_of("count", "units", agent="Agent", optimum="Optimum"),
            Column(key="contents", title="A unit holds"),
        ],
        rows=rows,
        query=query,
        notes=notes,
    )


def _contents(market: ProcurementMarket, deal: Deal) -> str:
    """What a unit of a deal holds and costs."""
    contents = ", ".join(f"{units} {market.items[item]}" for item, units in deal.contents)
    extra = f" + {deal.fixed / 100:,.2f} once" if deal.fixed else f", {deal.least} at least" if deal.least else ""
    return f"{contents} for {deal.price / 100:,.2f}{extra}"


NAME = "procurement"


def plan_values(instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """Procurement: the value of each period's plan; 0 if it is not feasible, NaN without one."""
    best = optimum_of(instance)

    def worth(action: Mapping[str, Any]) -> float:
        root = instance.root(action["totals"])
        return value_of(int(action["product"]), root, best) if action["feasible"] else 0.0

    return by_period(actions, periods, worth)


def _bought_nothing(_: Any, played: Sequence[Move]) -> QuotedPlace | None:
    for i, move in enumerate(played):
        action = move.facts.get("action")
        if action is not None and not action["feasible"]:
            accepted = [j for j, call in enumerate(move.facts["calls"]) if call["outcome"] == ACCEPTED]
            return i, accepted[-1]
    return None


EXTRAS = market_extras(
    NAME,
    20,
    PeriodStanding(values=plan_values, hold=best_so_far),
    Charts(figures=procurement_figures, lines=procurement_lines),
    ("Procurement: best plan over periods", "Value of the best plan so far (% of optimum)", (0, 105)),
    kinds=(
        ErrorKind(
            name="plan that cannot be bought",
            environment=NAME,
            unit="plans",
            sql="metrics['plans'] - coalesce(metrics['feasible_plans'], 0)",
            find=_bought_nothing,
        ),
    ),
)
