"""All environments by name. A plain table: adding an environment is adding a line here and a folder beside it."""

from collections.abc import Mapping
from typing import Any

from evalkit.env.costbench.costbench import COSTBENCH
from evalkit.env.environment import Environment
from evalkit.env.errand.errand import ERRAND
from evalkit.env.pricing.pricing import PRICING
from evalkit.env.procurement.procurement import PROCUREMENT
from evalkit.env.scheduling.scheduling import SCHEDULING

ENVIRONMENTS: Mapping[str, Environment[Any, Any]] = {
    "scheduling": SCHEDULING,
    "pricing": PRICING,
    "procurement": PROCUREMENT,
    "costbench": COSTBENCH,
    "errand": ERRAND,
}
