"""CostBench: reach a goal through priced tools at the lowest cost, while tools, prices and wishes may change.

Source: CostBench (arXiv 2511.02734); the state machine is `step.py`.
"""

from evalkit.dialogue import Sampling
from evalkit.env.costbench import instance, score, step
from evalkit.env.costbench.instance import Instance
from evalkit.env.environment import Environment

COSTBENCH: Environment[Instance, step.State] = Environment(
    name=instance.NAME,
    version=1,
    defaults=Sampling(temperature=0.0, max_tokens=16384, tool_choice="auto", parallel_calls=False),
    parameters=instance.PARAMETERS,
    texts=step.TEXTS,
    later_texts=step.LATER_TEXTS,
    open_texts=step.OPEN_TEXTS,
    load=instance.load,
    describe=instance.describe,
    start=step.start,
    opening=step.opening,
    tools=step.tools,
    step=step.step,
    period=step.period,
    ended=step.ended,
    score=score.score,
    generate=instance.generate,
    stratum=instance.stratum,
    offers=instance.offers,
)
