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
    return env.presentation.zero_means if env else ""


def is_litmus(name: str) -> bool:
    """Whether an environment claims no optimum: its scores lie between two ways of acting."""
    env = known(name)
    return env is not None and env.presentation.scale == "litmus"


OPTIMUM_UNIT = "100 = optimum"
LITMUS_UNIT = "0 and 100 = the two ends"
"""Of scores between two ways of acting."""


def score_unit(litmus: Iterable[bool]) -> str:
    """The unit of a column of scores; `litmus`: of each, whether its environment claims no optimum."""
    scales = set(litmus)
    if scales == {True}:
        return LITMUS_UNIT
    return f"{OPTIMUM_UNIT}; of litmus tests, one of two ends" if True in scales else OPTIMUM_UNIT


def scale_words(names: Iterable[str]) -> str:
    """What 100 and 0 stand for, of these environments."""
    played = list(dict.fromkeys(names))
    litmus = [name for name in played if is_litmus(name)]
    zeros = {name: words for name in played if name not in litmus and (words := zero_means(name))}
    said = []
    if len(zeros) == 1:
        said = [f"100 = optimal, 0 = {next(iter(zeros.values()))}"]
    elif zeros or len(litmus) < len(played):
        each = ", ".join(f"{words} ({name})" for name, words in zeros.items())
        said = [f"100 = optimal, 0 = {each}" if each else "100 = optimal"]
    for name in litmus:
        env = known(name)
        ends = f"100 = {env.presentation.one_means}, 0 = {env.presentation.zero_means}" if env else ""
        said.append(f"{name}: {ends}, neither is better")
    return "; ".join(said)


def one_chat(name: str) -> bool:
    """Whether an environment's episodes are one chat, without periods."""
    env = known(name)
    return env is not None and env.presentation.one_chat


def one_chats(played: Iterable[str]) -> list[str]:
    """Those of the played environments whose episodes are one chat, by name."""
    return sorted({name for name in played if one_chat(name)})


def is_stationary(name: str) -> bool:
    """Whether an environment's periods are alike."""
    env = known(name)
    return env is not None and env.presentation.stationary


def shares_of(names: Iterable[str]) -> dict[str, ActionShare]:
    """The secondary metrics of their own that these environments have reports show."""
    envs = (known(name) for name in dict.fromkeys(names))
    return {name: share for env in envs if env for name, share in env.presentation.shares.items()}
