"""CostBench: reach a goal through priced tools at the lowest cost, while tools, prices and wishes may change.

Source: CostBench (arXiv 2511.02734); the state machine is `step.py`.
"""

from collections.abc import Mapping
from typing import Any

from evalkit.dialogue import Sampling
from evalkit.envs.costbench import score, step
from evalkit.envs.costbench.described import DESCRIBED
from evalkit.envs.costbench.domain.world import MOST_LENGTH
from evalkit.envs.costbench.instances import suite
from evalkit.envs.costbench.instances.instance import PlanningProblem
from evalkit.envs.costbench.instances.line import PARAMETERS
from evalkit.envs.costbench.instances.parameters import NAME
from evalkit.envs.costbench.planning.solve import COMPILED_LENGTH
from evalkit.envs.costbench.prompt import TEXT_CHOICES
from evalkit.envs.environment import Environment


def compiled_saves_s(line: Mapping[str, Any]) -> float:
    """CPU seconds that compiled distances save in an episode: they are found anew with each event. Measured: 2 us each
    at N = 8, 7 us at N = 15."""
    length, blocks = line.get("length"), line.get("blocks", 0)
    if not (isinstance(length, int) and isinstance(blocks, int) and COMPILED_LENGTH <= length <= MOST_LENGTH):
        return 0.0
    return (1 + max(0, blocks)) * 3e-8 * length**2


COSTBENCH: Environment[PlanningProblem, step.State] = Environment(
    name=NAME,
    version=1,
    defaults=Sampling(temperature=0.0, max_tokens=16384, tool_choice="auto", parallel_calls=False),
    parameters=PARAMETERS,
    texts=step.TEXTS,
    later_texts=step.LATER_TEXTS,
    open_texts=step.OPEN_TEXTS,
    load=suite.load,
    describe=suite.describe,
    start=step.start,
    opening=step.opening,
    tools=step.tools,
    tool_choice=step.tool_choice,
    step=step.step,
    period=step.period,
    ended=step.ended,
    score=score.score,
    generate=suite.generate,
    stratum=suite.stratum,
    offers=suite.offers,
    likeness=suite.likeness,
    compiled_saves_s=compiled_saves_s,
    score_range=(0.0, 1.0),
    zero_means="no call in common with an optimal plan",
    one_chat=True,
    described=DESCRIBED,
    text_choices=TEXT_CHOICES,
    kernels="evalkit.envs.costbench.planning.kernels",
    report="evalkit.report.environments.costbench:EXTRAS",
    made_suites={
        "costbench/reference": "It is made from a copy of the reference's query file: evalkit queries import "
        "path/to/test/queries.json --out instances/costbench/reference.jsonl"
    },
    prompt_import="evalkit.spec.importing.costbench.record:IMPORT",
    tasks="evalkit.tasks.costbench.record:TASKS",
    policies="evalkit.policy.costbench.policies:POLICIES",
    stand_in="replanner",
)
