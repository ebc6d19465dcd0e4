"""Searching for a good plan, given what one unit of each deal adds to each category's total.

Steepest ascent on the product of the totals: part of one deal is dropped, and the money goes into another, as much as
there is or part of it. All such moves are weighed at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.policy.market_reading import ReadDeal
from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

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
