"""Markets so small that all their plans can be counted out, the counting, and boxes of their plans."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from evalkit.envs.procurement.best import _Search
from evalkit.envs.procurement.market import BULK, KINDS, TWO_PART, Deal, ProcurementMarket
from evalkit.envs.procurement.scratch import Deals, Scratch

MOST_PLANS = 1_000_000
"""If every deal had the whole budget for itself; most of these cannot be bought."""


def a_market(rows: list[tuple[int, ...]], budget: int, **terms: list[int]) -> ProcurementMarket:
    """A market from gains, by deal and category; terms: prices, fixed costs and least quantities by deal."""
    prices = terms.get("price", [1] * len(rows))
    fixed, least = terms.get("fixed", [0] * len(rows)), terms.get("least", [0] * len(rows))
    deals = []
    for j, row in enumerate(rows):
        kind = TWO_PART if fixed[j] else BULK if least[j] else KINDS[0]
        contents = tuple((c, units) for c, units in enumerate(row) if units)
        deals.append(Deal(id=f"D{j}", kind=kind, contents=contents, price=prices[j], fixed=fixed[j], least=least[j]))
    k = len(rows[0])
    return ProcurementMarket(
        categories=tuple((f"I{c}",) for c in range(k)), effectiveness=(1,) * k, deals=tuple(deals), budget=budget
    )


def drawn_market(seed: int) -> ProcurementMarket:
    """At most 8 deals in at most 4 categories: all kinds, small numbers that tie, twins, no money, nothing for sale."""
    draws = random.Random(seed)
    k, tiny = draws.randint(1, 4), draws.random() < 0.5
    deals: list[Deal] = []
    for j in range(draws.randint(1, 8)):
        kind = draws.choice(KINDS)
        deal = Deal(
            id=f"D{j}",
            kind=kind,
            contents=tuple((c, draws.randint(1, 4)) for c in range(k) if draws.random() < 0.75),
            price=draws.choice([1, 2, 3, 5]) if tiny else draws.randint(1, 300),
            fixed=draws.randint(0, 6 if tiny else 300) if kind == TWO_PART else 0,
            least=draws.randint(2, 5) if kind == BULK else 0,
        )
        deals += [deal] * (1 + (draws.random() < 0.15))
    scale = 40 if tiny else 2500
    budget = draws.choice([0, draws.randint(0, scale // 4), *(draws.randint(scale // 4, scale) for _ in range(6))])
    while math.prod(1 + max(budget - deal.fixed, 0) // deal.price for deal in deals[:8]) > MOST_PLANS:
        budget = budget * 9 // 10
    return ProcurementMarket(
        categories=tuple((f"I{c}",) for c in range(k)),
        effectiveness=tuple(draws.randint(1, 3) for _ in range(k)),
        deals=tuple(deals[:8]),
        budget=budget,
    )


def plans(market: ProcurementMarket) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every plan that can be bought, without deals of no use, and its totals."""

    def further(j: int, left: int, plan: tuple[int, ...], sums: tuple[int, ...]):  # type: ignore[no-untyped-def]
        if j == len(market.deals):
            yield plan, sums
            return
        yield from further(j + 1, left, (*plan, 0), sums)
        deal, row = market.deals[j], market.gains[j]
        units = max(deal.least, 1)
        while any(row) and deal.fixed + deal.price * units <= left:
            after = tuple(a + units * b for a, b in zip(sums, row, strict=True))
            yield from further(j + 1, left - deal.fixed - deal.price * units, (*plan, units), after)
            units += 1

    yield from further(0, market.budget, (), (0,) * len(market.categories))


def best_product(market: ProcurementMarket) -> int:
    """The greatest product of totals, by counting out; the last deal is bought as often as money lasts."""
    last = len(market.deals) - 1

    def further(j: int, left: int, sums: tuple[int, ...]) -> int:
        deal, row = market.deals[j], market.gains[j]
        most = (left - deal.fixed) // deal.price
        found, units = 0, max(deal.least, 1)
        if j == last:
            for number in (0, most if most >= units else 0):
                product = 1
                for a, b in zip(sums, row, strict=True):
                    product *= a + number * b
                found = max(found, product)
            return found
        found = further(j + 1, left, sums)
        while any(row) and units <= most:
            after = tuple(a + units * b for a, b in zip(sums, row, strict=True))
            found = max(found, further(j + 1, left - deal.fixed - deal.price * units, after))
            units += 1
        return found

    return further(0, market.budget, (0,) * len(market.categories))


def room_for(market: ProcurementMarket) -> tuple[Deals, Scratch]:
    """The market as arrays, and the room in which the search works on all its deals."""
    search = _Search(market, compiled=False)
    every = list(range(len(market.deals)))
    return search._deals(every), search._scratch(len(every))


def inside(low: list[int], plan: tuple[int, ...], high: list[int]) -> bool:
    """Whether a plan lies in the box of these quantities, ends included."""
    return all(a <= units <= b for a, units, b in zip(low, plan, high, strict=True))


def best_in_box(market: ProcurementMarket, low: list[int], high: list[int]) -> float:
    """The greatest log product of a plan in the box; -inf: none covers all categories."""
    best = max((math.prod(sums) for plan, sums in plans(market) if inside(low, plan, high)), default=0)
    return math.log(best) if best else -math.inf


def drawn_box(market: ProcurementMarket, draws: random.Random) -> tuple[list[int], list[int]]:
    """A box as branching makes them: no quantity from 1 on that is below the least one."""
    low, high = [], []
    for deal in market.deals:
        ends = sorted(draws.randint(0, 8) for _ in "ab")
        low.append(max(ends[0], deal.least) if ends[0] and draws.random() < 0.5 else 0)
        high.append(max(ends[1], low[-1]) if ends[1] >= max(deal.least, 1) else low[-1])
    return low, high


def drawn_boxes(draws: random.Random) -> Iterator[tuple[ProcurementMarket, Deals, Scratch, list[int], list[int]]]:
    """Markets of at most five deals in which something can be bought, room to search them, and a box of each."""
    for seed in range(4000, 4800):
        drawn = drawn_market(seed)
        if not drawn.budget or not any(map(any, drawn.gains)):
            continue
        budget = min(drawn.budget, 6 * min(deal.price for deal in drawn.deals))
        market = replace(drawn, deals=drawn.deals[:5], budget=budget)
        yield market, *room_for(market), *drawn_box(market, draws)
