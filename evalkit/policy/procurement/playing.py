"""Baselines for procurement: random affordable plans, and a climber that learns effectiveness from its own plans.

Source: the paper has no baseline for procurement; both are ours.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evalkit.dialogue import Reply, Request
from evalkit.policy.conversation import action_arguments, asking, calling, offered, results
from evalkit.policy.market_reading import Bought, ReadDeal, read_budget, read_menu, read_purchases
from evalkit.policy.procurement.buying import cover, improve, make_shop, worth
from evalkit.policy.procurement.effects import learn
from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
    tool = offered(request, ACTION)
    return calling(request, [(ACTION, action_arguments(tool, plan) if tool else "{}")])


def _market(known: Mapping[str, Sequence[str]]) -> tuple[tuple[ReadDeal, ...], int]:
    deals = next(filter(None, map(read_menu, known.get(MENU, ()))), ())
    budget = next(filter(None, map(read_budget, known.get(BUDGET, ()))), 0)
    return deals, budget


def _next_plan(deals: Sequence[ReadDeal], budget: int, bought: Sequence[Bought], draws: Stream) -> dict[str, int]:
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
