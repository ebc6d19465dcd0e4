"""The markup that earns most, learned from what was sold at others.

In logit demand, nested or not, products earn most at one markup that is the same for all of them; and with equal
markups m all products together sell  M / (1 + exp(m / mu - b))  units, whatever the nests are (math: the totals of the
nests all shrink by the same factor). So three numbers say it all, and the best m follows from them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

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
    return (1.0 + _lambert(level - 1.0)) / -slope


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


def _lambert(level: float) -> float:
    """The y > 0 with y + log y = level (Newton from the side where it cannot overshoot)."""
    y = max(level, 1.0) if level > 1.0 else math.exp(level) / (1.0 + math.exp(level))
    for _ in range(50):
        step = (y + math.log(y) - level) / (1.0 + 1.0 / y)
        y = max(y - step, y / 10)
        if abs(step) < 1e-12 * y:
            break
    return y
