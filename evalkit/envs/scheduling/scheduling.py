"""Scheduling: find a stable assignment of workers to tasks from reported blocking pairs, by trial and error.

Source: EconAgentBench, section on scheduling and appendices D and F.2; the loop is `envs/periods.py`.
"""

from evalkit.dialogue import Sampling
from evalkit.envs import periods, rules
from evalkit.envs.environment import Environment, Kit, Presentation, Quantity, SuiteDescription
from evalkit.envs.scheduling import assignment, instance, score
from evalkit.envs.scheduling.assignment import SchedulingWorld
from evalkit.envs.scheduling.instance import SchedulingInstance

ACTION = "submit_assignment"
HISTORY = "get_previous_attempts_data"

RULES: rules.Rules[SchedulingWorld] = rules.Rules(
    getters=(
        rules.Getter.history(HISTORY, "previous_attempts_data"),
        rules.Getter.attempt(),
        rules.Getter(name="get_worker_ids", key="worker_ids", read=lambda state: list(state.world.market.workers)),
        rules.Getter(name="get_task_ids", key="task_ids", read=lambda state: list(state.world.market.tasks)),
    ),
    action=ACTION,
    argument="assignment",
    act=assignment.submit,
    refusals=assignment.REFUSALS,
)

TEXTS = RULES.texts(assignment.TEXTS)


def start(target: SchedulingInstance, kit: Kit) -> rules.PeriodsState[SchedulingWorld]:
    """An episode before its first request. Raises UsageError for a line that is not what it says, or a partial pack."""
    market, random_state = instance.market_of(target)
    setting = RULES.setting(
        kit,
        TEXTS,
        periods=target.periods,
        queries=target.queries,
        restarts=target.no_action == "restart",
    )
    return rules.PeriodsState(
        setting=setting,
        world=SchedulingWorld(
            market=market,
            k=target.k,
            seed=target.seed,
            random_state=random_state,
            at_random=target.shown == "random",
        ),
    )


DESCRIBED = SuiteDescription(
    quantities=(
        Quantity(
            title="Random assignment",
            unit="expected blocking pairs",
            of=lambda line: line["expected"][0] / line["expected"][1],
        ),
    )
)

SCHEDULING: Environment[SchedulingInstance, rules.PeriodsState[SchedulingWorld]] = Environment(
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
    presentation=Presentation(
        zero_means="random assignment",
        stationary=True,
        described=DESCRIBED,
        report="evalkit.report.environments.scheduling:EXTRAS",
        prompt_import="evalkit.spec.importing.scheduling:IMPORT",
    ),
    policies="evalkit.policy.scheduling.policies:POLICIES",
    stand_in="knuth",
)
