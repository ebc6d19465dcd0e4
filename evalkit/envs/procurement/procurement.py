"""Procurement: buy equipment within a budget so that it supports most workers; what items are worth is found by trying.

Source: EconAgentBench, section on procurement and appendices D and F.1; the loop is `envs/periods.py`.
"""

from dataclasses import replace

from evalkit.dialogue import Sampling
from evalkit.envs import periods, rules
from evalkit.envs.environment import ActionShare, Environment, Kit, Presentation, Quantity, SuiteDescription, fill
from evalkit.envs.procurement import instance, plan, score
from evalkit.envs.procurement.instance import ProcurementInstance
from evalkit.envs.procurement.plan import ProcurementWorld, menu_text

ACTION = "submit_purchase_plan"
HISTORY = "get_previous_purchase_data"
MENU = "get_equipment_information"
BUDGET = "get_budget"

RULES: rules.Rules[ProcurementWorld] = rules.Rules(
    getters=(
        rules.Getter.history(HISTORY, "previous_purchase_data"),
        rules.Getter(name=MENU, key="", read=lambda state: state.world.menu, once=True),
        rules.Getter(name=BUDGET, key="budget", read=lambda state: state.world.market.budget / 100),
        rules.Getter.attempt(),
    ),
    action=ACTION,
    argument="purchase_plan",
    act=plan.submit,
    refusals=plan.REFUSALS,
    restarting=frozenset({plan.UNKNOWN}),
    last_opening=False,
)

TEXTS = RULES.texts({**plan.MENU_TEXTS, **plan.TEXTS, "system": frozenset({"notes", "periods"})})


def start(target: ProcurementInstance, kit: Kit) -> rules.PeriodsState[ProcurementWorld]:
    """An episode before its first request. Raises UsageError for a line that is not what it says, or a partial pack."""
    market = instance.market_of(target).market
    setting = RULES.setting(
        _telling(kit, target.periods),
        TEXTS,
        periods=target.periods,
        queries=target.queries,
        restarts=target.no_action == "restart",
    )
    places = {deal.id: index for index, deal in enumerate(market.deals)}
    return rules.PeriodsState(
        setting=setting, world=ProcurementWorld(market=market, places=places, menu=menu_text(market, setting.texts))
    )


def _telling(kit: Kit, number: int) -> Kit:
    """The kit with the number of periods said where its system text asks for it."""
    texts = kit.pack.texts
    if "{periods}" not in texts.get("system", ""):
        return kit
    return replace(kit, pack=replace(kit.pack, texts={**texts, "system": fill(texts["system"], periods=number)}))


DESCRIBED = SuiteDescription(
    quantities=(
        Quantity(title="Best plan", unit="workers supported", of=lambda line: line["optimum"]["workers"]),
        Quantity(title="Its cost", unit="currency", of=lambda line: line["optimum"]["cost"] / 100),
    )
)

PROCUREMENT: Environment[ProcurementInstance, rules.PeriodsState[ProcurementWorld]] = Environment(
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
    score_range=(0.0, 1.0),
    presentation=Presentation(
        zero_means="nobody supported",
        stationary=True,
        shares={
            "budget_utilisation": ActionShare(
                title="Budget use", about="% of plans that were feasible and cost 95 to 100 % of the budget"
            )
        },
        described=DESCRIBED,
        report="evalkit.report.environments.procurement:EXTRAS",
        prompt_import="evalkit.spec.importing.procurement:IMPORT",
    ),
    policies="evalkit.policy.procurement.policies:POLICIES",
    stand_in="climber",
)
