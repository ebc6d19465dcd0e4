"""Baselines for pricing: random prices, constant ones, and a learner that follows the drift.

What a product earns is (p / alpha - c) q with an alpha that drifts: profit over quantity plus cost is p / alpha, so
each sale tells its alpha. In x = p / alpha the market stands still, and there all products earn most at one common
markup over cost.

Source: specification of the reference, sections B.5 and D.3; the paper has no baseline for pricing, these are ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.dialogue import Reply, Request
from evalkit.envs.pricing.optimum import lambert
from evalkit.policy.conversation import acting, asking, ids_in, offered, results
from evalkit.policy.market_reading import Sold, hint, read_sales, whole
from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]


# Forecasting figures that drift: a straight line, a swing around a level, or where they last went.
#
# All figures share the kind of drift and the length of the swing; each has a level, a slope or a swing of its own.

_LENGTHS = range(5, 41)
"""Periods of a swing that are tried."""
_FEW = 4
"""With fewer periods than this a drift is not looked for."""
_FITS = 4.0
"""Mean squared error, in units of what rounding explains, up to which a drift is believed."""
_RIDGE = 1e-9


def forecast(seen: "Doubles", errors: "Doubles", times: "Doubles", time: float) -> "Doubles":
    """The figures at a time, by figure.

    `seen`: figures by times, NaN if one was not seen; `errors`: how far each may be off, same shape; `times`: when.
    NaN for a figure that was never seen.
    """
    import numpy as np

    weight = np.where(np.isnan(seen), 0.0, 1.0 / np.maximum(errors, 1e-12) ** 2)
    last = _went(seen, times, time)
    if len(times) < _FEW:
        return last
    known = weight.sum(axis=1) > 0
    data = np.where(weight > 0, seen, 0.0)[known]
    figures, flaw = last.copy(), _FITS * int((weight > 0).sum())
    for shapes in (_line(times, time), _swings(times, time)):
        values, flaws = _fitted(shapes, data, weight[known])
        best = int(np.argmin(flaws))
        if flaws[best] < flaw:
            flaw = float(flaws[best])
            figures[known] = values[best]
    return figures


def _went(seen: "Doubles", times: "Doubles", time: float) -> "Doubles":
    """Each figure's last value, moved on by half of its last change a period."""
    import numpy as np

    figures = np.full(len(seen), np.nan)
    for i, row in enumerate(seen):
        when = np.flatnonzero(~np.isnan(row))
        if len(when):
            figures[i] = row[when[-1]]
        if len(when) > 1:
            pace = (row[when[-1]] - row[when[-2]]) / (times[when[-1]] - times[when[-2]])
            figures[i] += 0.5 * pace * min(2.0, time - times[when[-1]])
    return figures


def _line(times: "Doubles", time: float) -> "Doubles":
    """One shape: level and slope at all times, then at the time asked for. Shapes by times by terms."""
    import numpy as np

    when = (np.append(times, time) - times[0]) / max(1.0, float(times[-1] - times[0]))
    return np.stack([np.ones_like(when), when], axis=-1)[None]


def _swings(times: "Doubles", time: float) -> "Doubles":
    """One shape for each length: level, sine and cosine. Shapes by times by terms."""
    import numpy as np

    angles = np.append(times, time)[None, :] * 2 * np.pi / np.array(_LENGTHS, dtype=np.float64)[:, None]
    return np.stack([np.ones_like(angles), np.sin(angles), np.cos(angles)], axis=-1)


def _fitted(shapes: "Doubles", data: "Doubles", weight: "Doubles") -> "tuple[Doubles, Doubles]":
    """Under each shape: the figures at the last of its times (shapes by figures), and how badly it fits all others.

    A fit costs two units a term and figure, so that the more flexible shape must be the better one.
    """
    import numpy as np

    past = shapes[:, :-1]
    terms = past.shape[-1]
    squares = np.einsum("ft,sti,stj->sfij", weight, past, past, optimize=True)
    squares += _RIDGE * np.einsum("sfii->sf", squares)[..., None, None] * np.eye(terms)
    mixed = np.einsum("ft,sti->sfi", weight * data, past, optimize=True)
    coefficients = np.linalg.solve(squares, mixed[..., None])[..., 0]
    left = data - np.einsum("sfi,sti->sft", coefficients, past, optimize=True)
    flaws = (weight * left**2).sum(axis=(1, 2)) + 2.0 * terms * len(data)
    return np.einsum("sfi,si->sf", coefficients, shapes[:, -1]), flaws


# The markup that earns most, learned from what was sold at others.
#
# In logit demand, nested or not, products earn most at one markup that is the same for all of them; and with equal
# markups m all products together sell M / (1 + exp(m / mu - b)) units, whatever the nests are (math: the totals of
# the nests all shrink by the same factor). So three numbers say it all, and the best m follows from them.

_USUAL_MARKET = 100.0
_BETTER = 0.1
"""A size of the market other than the usual one is believed if it leaves so small a part of the error."""
_LEAST_APART = 0.05
"""Markups that differ by less, as a share of their mean, tell no slope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What all products together sold in one period."""

    markup: float
    """Mean, weighted by quantity."""
    spread: float
    """Standard deviation of the products' markups, weighted by quantity."""
    quantity: float


def best_markup(totals: Sequence[Total]) -> float | None:
    """The markup that earns most by all that was sold; None while that tells no demand that falls with it."""
    import numpy as np

    informative = [total for total in totals if total.quantity > 0]
    if len(informative) < 2:
        return None
    markup = np.array([total.markup for total in informative])
    # Unequal markups make the law an approximation, whose error grows with the square of their spread.
    weight = np.array([(1e-3 + total.spread**2) ** -2 for total in informative])
    weight /= weight.sum()
    mean = float(weight @ markup)
    if math.sqrt(float(weight @ (markup - mean) ** 2)) < _LEAST_APART * abs(mean):
        weight = np.full(len(informative), 1.0 / len(informative))
    sold = np.array([total.quantity for total in informative])
    level, slope = _law(markup, sold, weight)
    if not slope < 0:
        return None
    return (1.0 + lambert(level - 1.0)) / -slope


def _law(markup: "Doubles", sold: "Doubles", weight: "Doubles") -> tuple[float, float]:
    """b and -1/mu of the law, for the size of market that fits best."""
    import numpy as np

    most = float(sold.max())
    sizes = most * np.concatenate([np.linspace(1.02, 3.0, 100), np.geomspace(3.1, 50.0, 50)])
    if most < _USUAL_MARKET:
        sizes = np.append(sizes, _USUAL_MARKET)
    odds = np.log(sold / (sizes[:, None] - sold))
    centred = markup - weight @ markup
    slopes = (odds * weight) @ centred / max(1e-300, float(weight @ centred**2))
    levels = odds @ weight - slopes * float(weight @ markup)
    flaws = ((odds - levels[:, None] - slopes[:, None] * markup) ** 2) @ weight
    best = int(np.argmin(flaws))
    if most < _USUAL_MARKET and (len(sold) < 4 or flaws[best] > _BETTER * flaws[-1]):
        best = len(sizes) - 1
    return float(levels[best]), float(slopes[best])


ACTION = "set_prices"
HISTORY = "get_previous_pricing_data"
PRODUCTS = "get_product_ids"
ATTEMPT = "get_attempt_number"

Sales = Mapping[int, Mapping[str, Sold]]

_DEFAULT = 10.0
"""The highest sensible price where nobody says one."""
_LEAST_PRICE = 0.01
_FIRST_SHARE = 0.1
"""Of the hint: low enough that most products sell, which tells their alphas."""
_LEAST_SALE = 0.05
"""A quantity below this tells too little of an alpha: it is shown with two decimals."""
_LEAST_REAL = 0.1
"""So does a price that is less of its product's cost, alpha taken off."""
_ROUNDING = 0.005
_FIRST_MARKUPS = (1.0, 2.0)
"""Over the mean cost, tried first to see how demand falls."""
_PATIENCE = 10
"""Periods in which it waits for one in which all products sell."""
_COST = 1.0
"""What the first markups are over where products cost nothing."""
_DITHERED = 8
"""Periods in which markups are varied a little, to see more of it."""


def plays(request: Request) -> bool:
    """Whether the tools offered are pricing's: the action tool is among them."""
    return offered(request, ACTION) is not None


def random(request: Request, draws: Stream) -> Reply:
    """For each product a price drawn uniformly between 0 and the hint of the opening."""
    known = results(request)
    question = asking(request, known, (PRODUCTS,))
    if question:
        return question
    most = _most(request)
    return _submit(request, {product: most * draws.uniform() for product in _products(known)})


def fixed(request: Request, draws: Stream) -> Reply:
    """Half the hint for every product at first; from then on always the same prices, in proportion to costs.

    Their mean is that of the first ones, so with one product no price ever changes.
    """
    del draws
    known = results(request)
    question = asking(request, known, (PRODUCTS, HISTORY))
    if question:
        return question
    products, sales = _products(known), _sales(known)
    first = next((sold for _, sold in sorted(sales.items()) if len(sold) == len(products)), None)
    if not first:
        return _submit(request, dict.fromkeys(products, _most(request) / 2))
    factor = sum(sale.price for sale in first.values()) / max(1e-9, sum(sale.cost for sale in first.values()))
    return _submit(request, {product: factor * first[product].cost for product in products})


def learner(request: Request, draws: Stream) -> Reply:
    """Infers each product's alpha, forecasts it, and sets the common markup that demand so far says earns most."""
    known = results(request)
    question = asking(request, known, (PRODUCTS, ATTEMPT, HISTORY))
    if question:
        return question
    products, sales = _products(known), _sales(known)
    if not sales or not products:
        return _submit(request, dict.fromkeys(products, _most(request) * _FIRST_SHARE))
    attempts = [number for number in map(whole, known.get(ATTEMPT, ())) if number is not None]
    now = max(max(sales) + 1, attempts[0] if attempts and attempts[0] < max(sales) + 10_000 else 0)
    return _submit(request, _learned(products, sales, now, _most(request), draws))


def submit(request: Request, prices: Mapping[str, float]) -> Reply:
    """The reply that sets prices, in the form the offered action tool asks for."""
    return acting(request, ACTION, prices)


def _submit(request: Request, prices: Mapping[str, float]) -> Reply:
    """The reply that sets prices, rounded to two decimals and above zero."""
    return submit(request, {product: max(_LEAST_PRICE, round(price, 2)) for product, price in prices.items()})


def _products(known: Mapping[str, Sequence[str]]) -> list[str]:
    return next(filter(None, map(ids_in, known.get(PRODUCTS, ()))), [])


def _sales(known: Mapping[str, Sequence[str]]) -> Sales:
    # Asked twice, the tool may say the second time that it has answered already.
    products = _products(known)
    return max((read_sales(text, products) for text in known.get(HISTORY, ())), key=len, default={})


def _most(request: Request) -> float:
    """The highest sensible price by the opening's last words."""
    opening = next((message.text for message in reversed(request.messages[:2]) if message.role == "user"), "")
    return hint(opening) or _DEFAULT


def _learned(products: Sequence[str], sales: Sales, now: int, most: float, draws: Stream) -> dict[str, float]:
    import numpy as np

    times = sorted(sales)
    shown = np.full((4, len(products), len(times)), np.nan)
    for t, time in enumerate(times):
        for i, product in enumerate(products):
            sale = sales[time].get(product)
            if sale:
                shown[:, i, t] = sale.price, sale.quantity, sale.profit, sale.cost
    price, quantity, profit, cost = shown
    telling = quantity >= _LEAST_SALE
    units = np.where(telling, quantity, 1.0)
    markup = np.where(telling, profit / units, np.nan)
    # What is given away, or nearly so, says nothing of alpha: rounding hides it.
    clear = telling & (price > 0) & (markup + cost > _LEAST_REAL * cost)
    real = np.where(clear, markup + cost, 1.0)
    errors = _ROUNDING * ((1.0 + np.abs(np.where(clear, markup, 0.0))) / units + 0.5) / real
    alphas = np.where(clear, price / real, np.nan)
    expected = forecast(alphas, errors * price / real, np.array(times, dtype=np.float64), float(now))
    usual = np.nanmean(cost, axis=1)
    wanted = _markup(markup, quantity, telling, float(np.nanmean(usual)) or _COST, draws)
    # A second period in a row in which nobody bought anything: what was inferred must be wrong.
    sold = np.flatnonzero(telling.any(axis=0))
    factor = 0.5 ** max(0, len(times) - 2 - (int(sold[-1]) if len(sold) else -1))
    prices = {}
    for i, product in enumerate(products):
        if np.isfinite(expected[i]) and expected[i] > 0:
            prices[product] = factor * float(expected[i] * (usual[i] + wanted))
        else:
            prices[product] = _sought(price[i], telling[i], most * _FIRST_SHARE)
    return prices


def _sought(price: "Doubles", sold: "npt.NDArray[np.bool_]", first: float) -> float:
    """A price to try for a product whose alpha is not known: at all others it did not sell, or was as good as free."""
    import numpy as np

    low, high = price[sold & (price > 0)].max(initial=0.0), price[~sold & (price > 0)].min(initial=np.inf)
    if not low:
        return min(first, float(high) / 2)
    return float(np.sqrt(low * min(high, 16 * max(low, first))))


def _markup(
    markup: "Doubles", quantity: "Doubles", telling: "npt.NDArray[np.bool_]", cost: float, draws: Stream
) -> float:
    """The markup to set: the best by the law that was learned, one of the first ones while there is none."""
    import numpy as np

    totals = []
    telling_periods = telling.all(axis=0)
    if telling_periods.sum() < len(_FIRST_MARKUPS) and telling.shape[1] >= _PATIENCE:
        # Some product never sells: it does without it.
        telling_periods = telling.any(axis=0)
    for t in np.flatnonzero(telling_periods):
        share = np.where(telling[:, t], quantity[:, t], 0.0) / quantity[telling[:, t], t].sum()
        off = np.where(telling[:, t], markup[:, t], 0.0)
        mean = float(share @ off)
        spread = float(np.sqrt(share @ (off - mean) ** 2))
        totals.append(Total(markup=mean, spread=spread, quantity=float(np.nansum(quantity[:, t]))))
    even = [total for total in totals if total.spread < 0.2 * cost and total.markup > 0]
    if len(even) < len(_FIRST_MARKUPS):
        return cost * _FIRST_MARKUPS[len(even)]
    best = best_markup(totals)
    if best is None:
        return cost * (0.5 + 2 * draws.uniform())
    # Never far beyond what was tried.
    best = min(best, 2.0 * max(total.markup for total in even))
    return best * (0.9 + 0.2 * draws.uniform()) if len(even) < _DITHERED else best
