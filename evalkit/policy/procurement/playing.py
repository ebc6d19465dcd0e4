"""Baselines for procurement: random affordable plans, and a climber that learns effectiveness from its own plans.

Source: the paper has no baseline for procurement; both are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import acting, asking, offered, results
from evalkit.policy.market_reading import PastPlan, ReadDeal, read_budget, read_menu, read_purchases
from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]


# Searching for a good plan, given what one unit of each deal adds to each category's total.
#
# Steepest ascent on the product of the totals: part of one deal is dropped, and the money goes into another, as much
# as there is or part of it. All such moves are weighed at once.

Plan = tuple[int, ...]
"""Quantities by deal."""

_MOST_MOVES = 60
_MOST_DEALS = 24
"""Deals that are weighed to take money, besides those that are held."""
_BARE = 1e-3
"""Added to totals, as a share of a typical one: a category without anything is poor but comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What can be bought, as arrays by deal."""

    price: "Ints"
    """Cents a unit, at least 1."""
    fixed: "Ints"
    least: "Ints"
    gains: "Doubles"
    """Deals by categories."""
    budget: int
    bare: float


def make_shop(deals: Sequence[ReadDeal], gains: "Doubles", budget: int) -> Shop:
    """The deals as arrays. `gains`: what one unit of each deal adds to each category's total, deals by categories."""
    import numpy as np

    price = np.array([max(1, deal.price) for deal in deals])
    return Shop(
        price=price,
        fixed=np.array([deal.fixed for deal in deals]),
        least=np.array([deal.least for deal in deals]),
        gains=gains,
        budget=budget,
        bare=_BARE * max(1e-9, float(gains.max())) * budget / float(np.median(price)),
    )


def worth(shop: Shop, plan: Plan) -> float:
    """The product of a plan's totals, in a unit that is the same for all plans of the shop."""
    import numpy as np

    return float(np.log(np.array(plan) @ shop.gains + shop.bare).sum())


def improve(shop: Shop, start: Plan) -> Plan:
    """A plan that no move improves, from an affordable one."""
    import numpy as np

    plan = np.array(start, dtype=np.int64)
    for _ in range(_MOST_MOVES):
        now = plan @ shop.gains + shop.bare
        bought = np.flatnonzero(plan)
        kept = _kept(shop, plan, bought)
        taking = _promising(shop, now, bought)
        added = _added(shop, kept, taking)
        totals = (kept @ shop.gains + shop.bare) / now
        value = (totals[None, :, None, :] + added[..., None] * (shop.gains[taking] / now)).prod(axis=-1)
        part, row, column = np.unravel_index(int(np.argmax(value)), value.shape)
        if value[part, row, column] <= 1 + 1e-9:
            break
        plan = kept[row].copy()
        plan[taking[column]] += added[part, row, column]
    return tuple(int(quantity) for quantity in plan)


def _kept(shop: Shop, plan: "Ints", bought: "Ints") -> "Ints":
    """What may be left of a plan, by rows: everything; without one deal, or half or one unit of it."""
    import numpy as np

    kept = np.repeat(plan[None, :], 1 + 3 * len(bought), axis=0)
    for part, up in enumerate((plan[bought], -(-plan[bought] // 2), np.minimum(1, plan[bought]))):
        kept[1 + part * len(bought) + np.arange(len(bought)), bought] -= up
    kept[kept < shop.least] = 0
    return kept


def _promising(shop: Shop, now: "Doubles", bought: "Ints") -> "Ints":
    """The deals that would add most for the whole budget as the totals are, and those that are held."""
    import numpy as np

    if len(shop.price) <= _MOST_DEALS:
        return np.arange(len(shop.price))
    units = np.maximum(0, shop.budget - shop.fixed) / shop.price
    rate = (shop.gains / now).sum(axis=1) * units
    return np.union1d(np.argsort(-rate, kind="stable")[:_MOST_DEALS], bought)


def _added(shop: Shop, kept: "Ints", taking: "Ints") -> "Ints":
    """Units that each of these deals may get: all that can be paid, half, one, the least. Parts by rows by deals."""
    import numpy as np

    left = shop.budget - kept @ shop.price - (kept > 0) @ shop.fixed
    new = kept[:, taking] == 0
    most = np.maximum(0, (left[:, None] - np.where(new, shop.fixed[taking], 0)) // shop.price[taking])
    least = np.where(new, shop.least[taking], 1)
    added = np.stack([most, most // 2, np.minimum(1, most), np.minimum(least, most)])
    added[added < least] = 0
    return added


def cover(deals: Sequence[ReadDeal], gains: "Doubles", budget: int, draws: Stream | None = None) -> Plan:
    """A plan to begin with: one deal for each category that none has added to, as long as money is left.

    It is the deal that costs least, or, with draws, any one; with draws, categories come in random order.
    """
    plan = [0] * len(deals)
    left, groups = budget, gains.shape[1]
    for group in draws.permutation(groups) if draws else range(groups):
        if any(quantity and gains[j, group] > 0 for j, quantity in enumerate(plan)):
            continue
        costs = [(deal.cost(deal.least), j) for j, deal in enumerate(deals) if gains[j, group] > 0 and not plan[j]]
        choices = [(cost, j) for cost, j in costs if cost <= left]
        if choices:
            cost, j = choices[draws.below(len(choices))] if draws else min(choices)
            plan[j], left = deals[j].least, left - cost
    return tuple(plan)


# Learning what items are worth from what plans supported.
#
# The model: a plan that holds n_i units of item i supports s * prod over categories g of (sum_{i in g} n_i e_i)^(1/k)
# workers, which is the environment's own law with unknown e; s is the scale that no plan can tell from the e's. In
# logarithms it is fitted by Gauss-Newton under a normal prior on each log e_i, and what is left open is the Gaussian
# of that fit (Laplace's approximation).

_SPREAD = 0.7
"""Standard deviation of the prior of log e: between that of 1..3 and that of 1..20, uniformly drawn."""
_NOISE = 0.004
"""Of a logarithm seen: more than rounding makes, so that the fit stays smooth."""
_ROUNDS = 12
_STEP = 1.5
"""The greatest change of a log e in one round."""
_PART = 25
"""Plans whose products are summed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is known of the items' effects."""

    logs: "Doubles"
    """Most likely log e, by item."""
    precision: "Doubles"
    """Inverse covariance around it, items by items."""

    def best(self) -> "Doubles":
        """The most likely effects."""
        import numpy as np

        effects: Doubles = np.exp(self.logs)
        return effects

    def drawn(self, draws: Stream) -> "Doubles":
        """Effects drawn from the belief."""
        import numpy as np

        root = np.linalg.cholesky(self.precision)
        off = _normals(len(self.logs), draws)
        # Solved from the last row up: a general solver would wake threads, which cost more than they gain here.
        for i in range(len(off) - 1, -1, -1):
            off[i] = (off[i] - root[i + 1 :, i] @ off[i + 1 :]) / root[i, i]
        effects: Doubles = np.exp(self.logs + off)
        return effects


def learn(units: "Doubles", workers: Sequence[float], category: "Ints") -> Belief:
    """The belief after some plans.

    `units`: units of each item in each plan, plans by items; `workers`: of each plan, positive; `category`: of each
    item, counted from 0.
    """
    import numpy as np

    items = units.shape[1]
    logs, precision = np.zeros(items), np.eye(items) / _SPREAD**2
    # Nothing is learned of items that no plan held; leaving them out keeps the equations small.
    seen = np.flatnonzero(units.any(axis=0))
    if len(seen):
        fitted = _fitted(units[:, seen], np.asarray(workers, dtype=np.float64), category[seen])
        logs[seen], precision[np.ix_(seen, seen)] = fitted
    return Belief(logs=logs, precision=precision)


def _fitted(units: "Doubles", workers: "Doubles", category: "Ints") -> "tuple[Doubles, Doubles]":
    """Most likely logarithms and their precision, for items that plans held."""
    import numpy as np

    items = len(category)
    logs, prior = np.zeros(items), np.eye(items) / _SPREAD**2
    groups = (category[:, None] == np.unique(category)).astype(np.float64)
    target, weight = np.log(workers), 1.0 / (_NOISE**2 + (0.003 / workers) ** 2)
    precision = prior
    for _ in range(_ROUNDS):
        effective = units * np.exp(logs)
        totals = effective @ groups
        slope = effective / (totals @ groups.T) / groups.shape[1]
        left = target - np.log(totals).mean(axis=1)
        # The scale is fitted along: deviations from weighted means leave it out.
        slope -= (weight @ slope) / weight.sum()
        left -= (weight @ left) / weight.sum()
        weighed = slope * weight[:, None]
        # In parts, so that none is large enough to wake threads, which cost more than they gain here.
        parts = range(0, len(units), _PART)
        precision = prior + sum((weighed[i : i + _PART].T @ slope[i : i + _PART] for i in parts), np.zeros_like(prior))
        change = np.linalg.solve(precision, left @ weighed - logs / _SPREAD**2)
        logs = logs + change * min(1.0, _STEP / max(1e-12, float(np.abs(change).max())))
        if np.abs(change).max() < 1e-3:
            break
    return logs, precision


def _normals(count: int, draws: Stream) -> "Doubles":
    """Standard normal numbers, two from two uniform ones (Box and Muller)."""
    import numpy as np

    pairs = draws.uniforms(2 * ((count + 1) // 2)).reshape(2, -1)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[0]))
    normal: Doubles = np.concatenate([radius * np.cos(2 * np.pi * pairs[1]), radius * np.sin(2 * np.pi * pairs[1])])
    return normal[:count]


ACTION = "submit_purchase_plan"
HISTORY = "get_previous_purchase_data"
MENU = "get_equipment_information"
BUDGET = "get_budget"

_TRIES = 3
"""Effects drawn at most, where what the fit says was tried."""
_FEW_DEALS = 40
"""In a market this small the search begins at a random plan each time; in larger ones that would take too long."""


def plays(request: Request) -> bool:
    """Whether the tools offered are procurement's: the action tool is among them."""
    return offered(request, ACTION) is not None


def random(request: Request, draws: Stream) -> Reply:
    """A random affordable plan in every period.

    Deals come in random order; of each, a quantity is drawn uniformly from 0 (or none, and the least that may be
    bought) to what the money left pays.
    """
    known = results(request)
    question = asking(request, known, (MENU, BUDGET))
    if question:
        return question
    deals, left = _market(known)
    plan = {}
    for index in draws.permutation(len(deals)):
        deal = deals[index]
        most = deal.most(left)
        drawn = draws.below(most - deal.least + 2) if most else 0
        if drawn:
            plan[deal.id] = drawn + deal.least - 1
            left -= deal.cost(plan[deal.id])
    return submit(request, plan)


def climber(request: Request, draws: Stream) -> Reply:
    """Learns from all plans so far what items are worth, and submits the best plan by it that it has not submitted.

    In an opening it takes all items of a category for equally good. Later, effects are fitted to what plans
    supported; where the best plan by that fit was submitted before, effects are drawn from what the fit leaves open
    (Thompson sampling), so that plans are tried that may be better. It never spends more than the budget.
    """
    known = results(request)
    question = asking(request, known, (MENU, BUDGET, HISTORY))
    if question:
        return question
    deals, budget = _market(known)
    if not deals or not budget:
        return submit(request, {})
    # Asked twice, the tool may say the second time that it has answered already.
    histories = (read_purchases(text, deals, budget) for text in known.get(HISTORY, ()))
    bought = max(histories, key=len, default=[])
    return submit(request, _next_plan(deals, budget, bought, draws))


def submit(request: Request, plan: Mapping[str, int]) -> Reply:
    """The reply that submits a plan, in the form the offered action tool asks for."""
    return acting(request, ACTION, plan)


def _market(known: Mapping[str, Sequence[str]]) -> tuple[tuple[ReadDeal, ...], int]:
    deals = next(filter(None, map(read_menu, known.get(MENU, ()))), ())
    budget = next(filter(None, map(read_budget, known.get(BUDGET, ()))), 0)
    return deals, budget


def _next_plan(deals: Sequence[ReadDeal], budget: int, bought: Sequence[PastPlan], draws: Stream) -> dict[str, int]:
    import numpy as np

    units, category = _units(deals)
    index_of = {deal.id: j for j, deal in enumerate(deals)}
    # A plan without a worker says only that it lacks a category, which the menu says too.
    telling = [purchase for purchase in bought if purchase.workers > 0]
    item_units = np.zeros((len(telling), len(category)))
    for i, purchase in enumerate(telling):
        for name, quantity in purchase.quantities.items():
            item_units[i] += quantity * units[index_of[name]]
    belief = learn(item_units, [purchase.workers for purchase in telling], category)
    groups = (category[:, None] == np.unique(category)).astype(np.float64)
    best = max(telling, key=lambda purchase: purchase.workers, default=None)
    quantities: dict[str, int] = {}
    for attempt in range(1 + _TRIES):
        effects = belief.drawn(draws) if attempt else belief.best()
        gains = (units * effects) @ groups
        shop = make_shop(deals, gains, budget)
        first = tuple(best.quantities.get(deal.id, 0) for deal in deals) if best else cover(deals, gains, budget)
        starts = [first]
        if not attempt or len(deals) <= _FEW_DEALS:
            starts.append(cover(deals, gains, budget, draws))
        plan = max((improve(shop, start) for start in starts), key=lambda candidate: worth(shop, candidate))
        quantities = {deal.id: quantity for deal, quantity in zip(deals, plan, strict=True) if quantity}
        if all(quantities != purchase.quantities for purchase in telling):
            break
    return quantities


def _units(deals: Sequence[ReadDeal]) -> "tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]":
    """Units of each item in each deal (deals by items), and each item's category: the letters of its id."""
    import numpy as np

    items = sorted({item for deal in deals for item, _ in deal.contents})
    letters = [item.rstrip("0123456789") for item in items]
    index_of = {item: i for i, item in enumerate(items)}
    units = np.zeros((len(deals), len(items)))
    for j, deal in enumerate(deals):
        for item, count in deal.contents:
            units[j, index_of[item]] += count
    names = sorted(set(letters))
    return units, np.array([names.index(letter) for letter in letters], dtype=np.int64)
