"""What an environment's record says to who reads logs; of one that is not installed, what is safe to assume.

A run can be read where its environment is not: its log holds facts and scores.
"""

import math
from collections.abc import Iterable
from typing import Any

from evalkit.envs import table
from evalkit.envs.environment import ActionShare, Environment


def known(name: str) -> Environment[Any, Any] | None:
    """The environment of that name; None if there is none."""
    if name not in table.ENVIRONMENTS:
        return None
    return table.ENVIRONMENTS[name]


def score_range(name: str) -> tuple[float, float]:
    """Between what an environment's scores can be; where nobody knows it, anything up to the optimum."""
    env = known(name)
    return env.score_range if env else (-math.inf, 1.0)


def zero_means(name: str) -> str:
    """What a score of 0 stands for; empty if nobody says."""
    env = known(name)
    return env.zero_means if env else ""


def one_chat(name: str) -> bool:
    """Whether an environment's episodes are one chat, without periods."""
    env = known(name)
    return env is not None and env.one_chat


def one_chats(played: Iterable[str]) -> list[str]:
    """The environments whose episodes are one chat, by name: of evalkit's own, and of those that were played."""
    return sorted({name for name in (*table.OWN_ENVIRONMENTS, *played) if one_chat(name)})


def is_stationary(name: str) -> bool:
    """Whether an environment's periods are alike."""
    env = known(name)
    return env is not None and env.stationary


def shares_of(names: Iterable[str]) -> dict[str, ActionShare]:
    """The secondary metrics of their own that these environments have reports show."""
    envs = (known(name) for name in dict.fromkeys(names))
    return {name: share for env in envs if env for name, share in env.shares.items()}
