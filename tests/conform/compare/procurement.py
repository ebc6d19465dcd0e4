"""Golden cases of procurement: instances bit for bit, single plans, and recorded actions played to their score.

The reference judges plans in floats and takes quantities of any kind. So each golden plan is judged twice: by the
reference's rule, which is written out here and must give the golden value to the last bit, and by the environment.
Where the two part, it is named.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalkit.dialogue import Reply, ToolCall
from evalkit.envs.environment import Facts, Kit
from evalkit.envs.mersenne import RandomStateStream
from evalkit.envs.procurement.generate import DIFFICULTIES, N40K5, MadeMarket, Shape, reference_market
from evalkit.envs.procurement.instance import ProcurementInstance, describe, load
from evalkit.envs.procurement.market import BULK, TWO_PART, Deal, ProcurementMarket, plan_cost, totals, workers_of
from evalkit.envs.procurement.plan import OVER, REFUSALS, menu_text
from evalkit.envs.procurement.procurement import ACTION, PROCUREMENT, RULES
from evalkit.envs.replay import advance, begin
from evalkit.spec.packs import read_pack
from tests.conform.compare.goldens import EQUAL, GoldenVerdict, Row, differing, documented, judged, parting

SHAPES: Mapping[str, Shape] = {**DIFFICULTIES, "n40k5": N40K5}
"""By a golden difficulty's name in lower case."""

_LAST_BIT = 2.0**-51
"""Relative: replays went through a table whose reader does not always keep a number's last bit."""

_RELATIVE = 1e-12
"""How far two quotients of geometric means may lie apart: another optimal plan's totals are rounded in other places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One reference instance."""

    difficulty: str
    seed: int
    shape: Shape
    made: MadeMarket

    @property
    def market(self) -> ProcurementMarket:
        """Its market."""
        return self.made.market


@lru_cache(maxsize=64)
def level(difficulty: str, seed: int) -> Level:
    """The reference's instance of a difficulty and seed. Raises ValueError for an unknown difficulty."""
    shape = SHAPES.get(difficulty.lower())
    if shape is None:
        raise ValueError(f"there is no difficulty {difficulty!r}")
    return Level(difficulty=difficulty, seed=seed, shape=shape, made=reference_market(shape, seed))


def bare(at: Level) -> ProcurementInstance:
    """The reference's instance, as a suite's line would give it, without its optimum: to be judged by, not scored."""
    shape = at.shape
    line = {"id": f"{at.difficulty.lower()}-{at.seed}", "generator": "reference", "seed": at.seed}
    line |= {name: getattr(shape, name) for name in ("categories", "products", "p_items", "p_quantity", "p_budget")}
    line |= {name: getattr(shape, name) for name in ("effectiveness_least", "effectiveness_most")}
    return load(line)


def target(at: Level) -> ProcurementInstance:
    """The same with its optimum."""
    return load(describe(bare(at)))


def instances(row: Row, data: Path | None) -> GoldenVerdict:
    """Items, effectiveness, deals, menu text, the budget's plan and the budget itself."""
    del data
    at = level(row["difficulty"], row["seed"])
    market, start, shape = at.market, at.made.start, at.shape
    cost = plan_cost(market, start)
    ours = {
        "env": PROCUREMENT.name,
        "difficulty": at.difficulty,
        "seed": at.seed,
        "params": {
            "num_inputs": shape.categories,
            "num_alternatives_per_input": shape.products // shape.categories,
            "num_entries": shape.offered,
            "NUM_ITEMS_PER_ENTRY_P": shape.p_items,
            "QUANTITY_PER_ITEM_P": shape.p_quantity,
            "OFFER_QTY_IN_SAMPLE_BUNDLE_P": shape.p_budget,
            "MIN_EFFECTIVENESS": shape.effectiveness_least,
            "MAX_EFFECTIVENESS": shape.effectiveness_most,
        },
        "item_groups": market.categories,
        "effectiveness": dict(zip(market.items, market.effectiveness, strict=True)),
        "menu": {deal.id: _entry(deal, market.items) for deal in market.deals},
        "menu_text": menu_text(market, _kit().pack.texts),
        "start_alloc": {deal.id: units for deal, units in zip(market.deals, start, strict=True) if units},
        "start_cost": cost / 100,
        "start_utility": workers_of(totals(market, start)),
        "budget_slack_global_seed_eq_seed": round(RandomStateStream(at.seed).double(), 2),
        "budget": market.budget / 100,
        "budget_range_upstream": [cost / 100, (cost + 100) / 100],
    }
    # The reference's cost is a sum of floats in the order its plan was drawn; what counts is the cents.
    rounded = {**row, "start_cost": round(row["start_cost"], 2)}
    rounded["budget_range_upstream"] = [round(bound, 2) for bound in row["budget_range_upstream"]]
    return judged(rounded, ours)


def plans(row: Row, data: Path | None) -> GoldenVerdict:
    """One plan: what it costs and supports, whether it is feasible, and why not."""
    del data
    at = level(row["difficulty"], row["seed"])
    if row["budget"] != at.market.budget / 100:
        return differing(f"budget: golden {row['budget']}, ours {at.market.budget / 100}")
    by_reference = reference_judgement(at.market, row["plan"])
    golden = {key: row[key] for key in by_reference}
    if found := parting(golden, by_reference):
        return differing(f"by the reference's rule: {found}")
    golden["reason"] = by_reference["reason"]  # the same text, of which a row may have the digest alone
    (facts,) = _play(bare(at), [row["plan"]])
    if "action" in facts:
        return _compared(at.market, golden, facts["action"])
    outcome = facts["calls"][0]["outcome"]
    refused = outcome in REFUSALS and not _is_plan(row["plan"])
    return documented("whole-quantities") if refused else differing(f"the plan was refused: {outcome}")


def replay(row: Row, data: Path | None) -> GoldenVerdict:
    """A hundred recorded actions: each period's feedback, then the score by the reference's figures and by ours."""
    del data
    at = level(row["difficulty"], row["seed"])
    instance = target(at)
    played = _play(instance, row["actions"])
    actions = [facts["action"] for facts in played if "action" in facts]
    if len(actions) != len(row["actions"]):
        return differing(f"accepted: golden {len(row['actions'])} actions, ours {len(actions)}")
    parted: GoldenVerdict | None = None
    for period, (plan, golden, action) in enumerate(zip(row["actions"], row["per_period"], actions, strict=True)):
        by_reference = reference_judgement(at.market, plan)
        figures = (by_reference["cost"], by_reference["workers"])
        same = all(math.isclose(one, other, rel_tol=_LAST_BIT) for one, other in zip(golden, figures, strict=False))
        found = "" if same else f"per_period[{period}]: golden {golden}, by the reference's rule {figures}"
        found = found or parting(golden[2], by_reference["feasible"], f"per_period[{period}].feasible")
        verdict = differing(found) if found else _compared(at.market, by_reference, action)
        if verdict.status == "differing":
            return verdict
        parted = parted if verdict == EQUAL else verdict
    return parted or _scored(row["notebook"], instance, played)


def _scored(golden: Mapping[str, Any], instance: ProcurementInstance, played: Sequence[Facts]) -> GoldenVerdict:
    ours = PROCUREMENT.score(instance, played)
    if instance.optimum is None or ours.metrics["exploration_rate_text"] != golden["exploration_rate"]:
        return differing(f"exploration_rate: golden {golden['exploration_rate']}, ours {ours.metrics}")
    if ours.solved != golden["solved"]:
        return differing(f"solved: golden {golden['solved']}, ours {ours.solved}")
    figures = [
        ("opt_utility", instance.optimum.workers),
        ("max_ratio", ours.metrics.get("reference_score", math.nan)),
        ("max_ratio", ours.value if ours.metrics["feasible_plans"] else math.nan),
    ]
    for name, value in figures:
        same_nan = math.isnan(value) and math.isnan(golden[name])
        if not same_nan and not math.isclose(value, golden[name], rel_tol=_RELATIVE):
            return differing(f"{name}: golden {golden[name]!r}, ours {value!r}")
    if not ours.metrics["feasible_plans"]:
        return documented("no-feasible-plan")
    same = ours.metrics["exploration_rate"] == golden["exploration_rate"]
    return EQUAL if same else documented("exploration-by-what-is-bought")


def reference_judgement(market: ProcurementMarket, plan: Mapping[str, float]) -> dict[str, Any]:
    """What the reference says of a plan: floats, any quantities, sums in the plan's order, its own words."""
    deals = {deal.id: place for place, deal in enumerate(market.deals)}
    costs, reason = [], ""
    by_category = [0.0] * len(market.categories)
    for name, quantity in plan.items():
        deal = market.deals[deals[name]]
        if deal.kind == BULK and 0 < quantity < deal.least:
            reason += f"Quantity {quantity} for {name} is insufficient (miniumum {deal.least} necessary)\n"
        else:
            costs.append(_reference_cost(deal, quantity))
        for category, gain in enumerate(market.gains[deals[name]]):
            by_category[category] += gain * quantity
    cost = _compensated(costs)
    if cost > market.budget / 100:
        reason += f"Total cost {cost:.2f} exceeds budget {market.budget / 100:.2f}\n"
    supported: complex = 1
    for total in by_category:
        supported *= total ** (1 / len(by_category))
    shown: Any = {"complex": [supported.real, supported.imag]} if isinstance(supported, complex) else supported
    return {
        "feasible": not reason,
        "reason": reason,
        "cost": cost,
        "workers": shown,
        "workers_2dp": f"{supported:.2f}",
    }


def _reference_cost(deal: Deal, quantity: float) -> float:
    if deal.kind == TWO_PART:
        return deal.fixed / 100 + deal.price / 100 * quantity if quantity > 0 else 0.0
    return deal.price / 100 * quantity


def _compensated(terms: Sequence[float]) -> float:
    """A sum as Python has computed it from 3.12 on, with Neumaier's compensation; the reference ran on that."""
    total = lost = 0.0
    for term in terms:
        raised = total + term
        lost += (total - raised) + term if abs(total) >= abs(term) else (term - raised) + total
        total = raised
    return total + lost


def _compared(market: ProcurementMarket, golden: Mapping[str, Any], action: Mapping[str, Any]) -> GoldenVerdict:
    """The environment's facts of a plan, beside what the reference says of it."""
    ours = {"cost": action["cost"], "workers": workers_of(action["totals"]), "reasons": len(action["reasons"])}
    over = [reason for reason in action["reasons"] if reason["reason"] == OVER]
    as_cents = {
        "cost": round(golden["cost"] * 100),
        "workers": golden["workers"],
        "reasons": golden["reason"].count("\n"),
    }
    # In floats a plan of exactly the budget may be too dear.
    exactly = action["cost"] == market.budget and not over and " exceeds budget " in golden["reason"]
    if exactly:
        as_cents["reasons"] -= 1
    if found := parting(as_cents, ours):
        return differing(found)
    if action["feasible"] != golden["feasible"] and not exactly:
        return differing(f"feasible: golden {golden['feasible']}, ours {action['feasible']}")
    return documented("budget-in-cents") if exactly else EQUAL


def _is_plan(plan: Mapping[str, Any]) -> bool:
    return all(type(quantity) is int and quantity >= 0 for quantity in plan.values())


def _entry(deal: Deal, items: Sequence[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": deal.kind,
        "contents": {items[item]: units for item, units in deal.contents},
    }
    if deal.kind == TWO_PART:
        return {**entry, "fixed_cost": deal.fixed / 100, "variable_cost": deal.price / 100}
    entry["cost"] = deal.price / 100
    return {**entry, "min_quantity": deal.least} if deal.kind == BULK else entry


@lru_cache(maxsize=1)
def _kit() -> Kit:
    return Kit(pack=read_pack("standard", PROCUREMENT.name, ""))


def _play(instance: ProcurementInstance, submitted: Sequence[Mapping[str, Any]]) -> list[Facts]:
    """Submit plans, one a reply, until they or the episode end. The facts of every step."""
    position, found = begin(PROCUREMENT, instance, _kit()), []
    for plan in submitted:
        if position.ending:
            break
        arguments = json.dumps({RULES.argument: repr(dict(plan))})
        call = ToolCall(id="call", name=ACTION, arguments=arguments)
        found.append(advance(PROCUREMENT, position, Reply(calls=(call,)), b"").facts)
    return found
