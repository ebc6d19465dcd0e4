"""One pricing episode's score, from the facts of its steps alone.

score = profits of the last periods, as they were shown / what the best prices earn in as many. 1 is the optimum, 0 is
to earn nothing, losses are below 0. A period without prices earns 0.

Shown profits are rounded to two decimals, so that a score may exceed 1 by up to 0.005 * products / best profit a
period, and no more. An episode is solved if its score is as close to 1 from below, or above it.

Source: specification of the reference, sections D.3 and D.4.
Chosen: solved, as above (the paper knows it of the other environments only); exploration is counted on the prices as
they were shown, as in the reference.
"""

from collections.abc import Mapping, Sequence
from math import fsum

from evalkit.envs.environment import Facts, Score
from evalkit.envs.periods import NO_ACTION, RESTART
from evalkit.envs.pricing.instance import PricingInstance, optimum_of

EARLY = 10
"""First periods that adaptability compares with."""

_HALF_A_CENT = 0.005
_ROUNDING = 1 + 1e-9
"""Sums of doubles that are to be compared with a bound."""


def score(instance: PricingInstance, trajectory: Sequence[Facts]) -> Score:
    """The score with its secondary metrics.

    early_score: of the first 10 periods (of all, where they are fewer); adaptability: score minus early_score;
    exploration_rate: distinct prices over prices set; periods, no_action_periods, restarts, actions, queries: counts.
    """
    best = optimum_of(instance).profit
    earned = {facts["period"]: facts["action"]["profits"] for facts in trajectory if "action" in facts}
    endings = [facts.get("period_end") for facts in trajectory]
    first, early = instance.periods - instance.counted, min(EARLY, instance.periods)
    value = _share(earned, range(first, instance.periods), best)
    metrics: dict[str, float] = {
        "periods": len(earned) + endings.count(NO_ACTION),
        "no_action_periods": endings.count(NO_ACTION),
        "restarts": endings.count(RESTART),
        "actions": len(earned),
        "queries": len(trajectory),
        "early_score": _share(earned, range(early), best),
    }
    metrics["adaptability"] = value - metrics["early_score"]
    if earned:
        fresh = sum(not facts["action"]["repeat"] for facts in trajectory if "action" in facts)
        metrics["exploration_rate"] = fresh / len(earned)
    spare = _ROUNDING * _HALF_A_CENT * instance.products / best
    return Score(value=value, solved=value >= 1 - spare, metrics=metrics)


def _share(earned: Mapping[int, Sequence[float]], periods: range, best: float) -> float:
    """Profits of some periods over the best of as many."""
    return fsum(profit for period in periods for profit in earned.get(period, ())) / (len(periods) * best)
