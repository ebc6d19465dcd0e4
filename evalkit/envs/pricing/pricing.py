"""Pricing: set prices period after period in a market whose best prices move, and earn as much as can be.

Source: EconAgentBench, section on pricing and appendices E and F.3; the loop is `envs/periods.py`.
"""

from evalkit.dialogue import Sampling
from evalkit.envs import periods, rules
from evalkit.envs.environment import Described, Environment, Kit, Presentation, Quantity
from evalkit.envs.pricing import instance, prices, score
from evalkit.envs.pricing.instance import PricingInstance
from evalkit.envs.pricing.prices import PricingWorld

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


DESCRIBED = Described(
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
    score=score.score,
    generate=instance.generate,
    stratum=instance.stratum,
    offers=lambda _: len(RULES.tools),
    most_requests=periods.most_requests,
    presentation=Presentation(
        zero_means="no profit",
        described=DESCRIBED,
        report="evalkit.report.environments.pricing:EXTRAS",
        prompt_import="evalkit.spec.importing.pricing:IMPORT",
    ),
    policies="evalkit.policy.pricing.policies:POLICIES",
    stand_in="learner",
)
