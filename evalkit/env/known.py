"""What an environment's record says to who reads logs; of one that is not installed, what is safe to assume.

A run can be read where its environment is not: its log holds facts and scores.
"""

import math
from typing import Any

from evalkit.env import table
from evalkit.env.environment import Environment


def known(name: str) -> Environment[Any, Any] | None:
    """The environment of that name; None where there is none."""
    if name not in table.ENVIRONMENTS:
        return None
    return table.ENVIRONMENTS[name]


def score_range(name: str) -> tuple[float, float]:
    """Between what an environment's scores can be; where nobody knows it, anything up to the optimum."""
    env = known(name)
    return env.score_range if env else (-math.inf, 1.0)
