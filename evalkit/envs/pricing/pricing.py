"""Pricing: set prices period after period in a market whose best prices move, and earn as much as can be.

Source: EconAgentBench, section on pricing and appendices E and F.3; the loop is `envs/periods.py`.
"""

from collections.abc import Mapping, Sequence
from math import fsum

from evalkit.dialogue import Sampling
from evalkit.envs import periods, rules
from evalkit.envs.environment import Environment, Facts, Kit, Presentation, Quantity, Score, SuiteDescription
from evalkit.envs.periods import NO_ACTION, RESTART
from evalkit.envs.pricing import instance, prices
from evalkit.envs.pricing.instance import PricingInstance, optimum_of
from evalkit.envs.pricing.prices import PricingWorld

# One pricing episode's score, from the facts of its steps alone.
#
# score = profits of the last periods, as they were shown / what the best prices earn in as many. 1 is the optimum, 0
# is to earn nothing, losses are below 0. A period without prices earns 0.
#
# Shown profits are rounded to two decimals, so that a score may exceed 1 by up to 0.005 * products / best profit a
# period, and no more. An episode is solved if its score is as close to 1 from below, or above it.
#
# Source: specification of the reference, sections D.3 and D.4. Chosen: solved, as above (the paper knows it of the
# other environments only); exploration is counted on the prices as they were shown, as in the reference.

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


ACTION = "set_prices"
HISTORY = "get_previous_pricing_data"

RULES: rules.Rules[PricingWorld] = rules.Rules(
    getters=(
        rules.Getter.history(HISTORY, "previous_pricing_data"),
        rules.Getter(name="get_product_ids", key="product_ids", read=lambda state: list(state.world.market.products)),
        rules.Getter.attempt(),
    ),
    action=ACTION,
    argument="prices_dict_str",
    act=prices.submit,
    refusals=prices.REFUSALS,
    told={"hint": prices.told_hint},
    bare_number=prices.BARE_NUMBER,
    last_opening=False,
)

TEXTS = RULES.texts(prices.TEXTS)


def start(target: PricingInstance, kit: Kit) -> rules.PeriodsState[PricingWorld]:
    """An episode before its first request. Raises UsageError for a line that is not what it says, or a partial pack."""
    market = instance.market_of(target)
    setting = RULES.setting(
        kit,
        TEXTS,
        periods=target.periods,
        queries=target.queries,
        restarts=target.no_action == "restart",
    )
    return rules.PeriodsState(setting=setting, world=PricingWorld(market=market, hinted=target.hint))


DESCRIBED = SuiteDescription(
    quantities=(
        Quantity(title="Best prices", unit="profit a period", of=lambda line: line["optimum"]["profit"]),
        Quantity(title="Their markup", unit="times alpha", of=lambda line: line["optimum"]["markup"]),
    )
)

PRICING: Environment[PricingInstance, rules.PeriodsState[PricingWorld]] = Environment(
    name=instance.NAME,
    version=1,
    defaults=Sampling(temperature=1.0, max_tokens=8192, tool_choice="required"),
    parameters=instance.PARAMETERS,
    texts=TEXTS,
    load=instance.load,
    describe=instance.describe,
    start=start,
    opening=periods.opening,
    tools=periods.tools,
    step=periods.step,
    period=periods.period,
    ended=periods.ended,
    score=score,
    generate=instance.generate,
    stratum=instance.stratum,
    offers=lambda _: len(RULES.tools),
    presentation=Presentation(
        zero_means="no profit",
        described=DESCRIBED,
        report="evalkit.report.environments.pricing:EXTRAS",
        prompt_import="evalkit.spec.importing.pricing:IMPORT",
    ),
    policies="evalkit.policy.pricing.policies:POLICIES",
    stand_in="learner",
)
