"""evalkit's environments as Gymnasium environments. Importing this module registers them.

    import gymnasium
    import evalkit.integrations.gym

    env = gymnasium.make("evalkit/Pricing-v1", suite="pricing/basic", periods=20)

`evalkit/Text-v1` plays any suite: an action is what a model would reply. The others, `evalkit/Scheduling-v1`,
`evalkit/Pricing-v1`, `evalkit/Procurement-v1` and `evalkit/CostBench-v1`, have actions and observations of numbers.
They skip language, so their scores are no model's. docs/gymnasium.md describes all of them.
"""

from evalkit.integrations import missing

try:
    import gymnasium
except ModuleNotFoundError as flaw:
    raise missing("gymnasium", "gym") from flaw

ENTRY_POINTS = {
    "evalkit/Text-v1": "evalkit.integrations.gym.text:TextEnv",
    "evalkit/Scheduling-v1": "evalkit.integrations.gym.scheduling:SchedulingEnv",
    "evalkit/Pricing-v1": "evalkit.integrations.gym.pricing:PricingEnv",
    "evalkit/Procurement-v1": "evalkit.integrations.gym.procurement:ProcurementEnv",
    "evalkit/CostBench-v1": "evalkit.integrations.gym.costbench:CostBenchEnv",
}
"""Gymnasium's id -> the class, which is imported when one is made."""

for _id, _entry_point in ENTRY_POINTS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, entry_point=_entry_point)
