"""What the tests of all litmus tests share."""

from collections.abc import Mapping
from typing import Any

from evalkit import Environment, Score
from evalkit.extend import Policy
from evalkit.testing import play_policy

FEW = 5
"""Periods of short episodes."""


def played_by(env: Environment[Any, Any], policy: Policy, line: Mapping[str, Any]) -> Score:
    """The score of one episode of a policy, privileged or not."""
    play = policy.reply if policy.oracle is None else policy.oracle(env.load(line))
    assert play is not None
    return play_policy(env, line, play)
