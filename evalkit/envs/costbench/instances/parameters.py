"""The parameters of CostBench's instances: names, ranges, defaults. Defaults are the paper's (table 5)."""

from collections.abc import Mapping
from typing import Any

from evalkit.envs import parameters
from evalkit.envs.costbench.domain.catalogue import SPLITS
from evalkit.envs.costbench.domain.catalogue_files import parse_catalogue
from evalkit.envs.costbench.domain.world import LEAST_LENGTH, MOST_LENGTH
from evalkit.envs.environment import Parameter

NAME = "costbench"

KINDS = ("ban_tool", "preference_change", "remove_tools", "cost_change")
"""Blocking events in the reference's order. The first two are told to the agent, the others are not."""

MOST_EXAMPLE = 8
"""Tools in the worked example: it lists every way through them, and their number doubles with every tool."""

LEAST_STEPS = 20
"""Assistant messages at least, where the chain's length sets them: the reference's number."""

DISTRIBUTIONS = ("uniform", "normal", "exponential", "two_point")
"""How atomic costs are drawn natively; the reference's are always uniform."""

_MOST_COST = 1e6

REFUSED, CHARGED = "refused", "charged"
"""What becomes of a malformed id that is given to a composite tool."""

PARAMETERS: Mapping[str, Parameter] = {
    "catalogue": Parameter(
        kind=str,
        help="domain: a shipped catalogue's name, or a file .toml",
        default="travel",
        file=parse_catalogue,
    ),
    "task": Parameter(kind=str, help="a task of the catalogue; all in turn where none is given", default=None),
    "length": Parameter(kind=int, help="atomic tools in a chain (N)", default=5, least=LEAST_LENGTH, most=MOST_LENGTH),
    "split": Parameter(kind=str, help="which values people wish for", default="test", choices=SPLITS),
    "generator": Parameter(
        kind=str,
        help="who draws costs and events: the reference's generators, draw for draw, or ours, keyed by tool",
        default="native",
        choices=("reference", "native"),
    ),
    "seed": Parameter(kind=int, help="makes costs and events", default=0, least=0, most=2**63 - 1),
    "low": Parameter(kind=float, help="least cost of an atomic tool", default=15.0, least=0.0, most=_MOST_COST),
    "high": Parameter(kind=float, help="most cost of an atomic tool", default=25.0, least=0.0, most=_MOST_COST),
    "noise": Parameter(
        kind=float,
        help="standard deviation of a composite tool's cost over the square root of its size",
        default=0.1,
        least=0.0,
        most=_MOST_COST,
    ),
    "distribution": Parameter(
        kind=str, help="how atomic costs lie between low and high", default="uniform", choices=DISTRIBUTIONS
    ),
    "whole": Parameter(kind=bool, help="whether the tool that does everything at once is offered", default=False),
    "block": Parameter(kind=str, help="what happens on the way", default="none", choices=("none", *KINDS, "mixed")),
    "blocks": Parameter(kind=int, help="how often it happens; 1 where not said", default=None, least=0, most=100),
    "failures": Parameter(kind=float, help="probability that a call fails for once", default=0.0, least=0.0, most=1.0),
    "steps": Parameter(
        kind=int,
        help=f"assistant messages at most; 0: {LEAST_STEPS}, or 2 N + 4 in longer chains",
        default=0,
        least=0,
        most=10_000,
    ),
    "strict": Parameter(
        kind=bool, help="whether ids that the reference never checks must be the right ones", default=False
    ),
    "malformed_ids": Parameter(
        kind=str,
        help="a malformed id given to a composite tool: refused free of charge, or charged and its type given, as in "
        "the reference",
        default=REFUSED,
        choices=(REFUSED, CHARGED),
    ),
    "require_goal_state": Parameter(
        kind=bool,
        help="whether every reply must hold a call until the goal is held, and the one behind it none",
        default=False,
    ),
    "control_tool_length": Parameter(
        kind=bool, help="whether composite tools of more than max_tool_length atomic ones are left out", default=False
    ),
    "max_tool_length": Parameter(
        kind=int,
        help="atomic tools that a composite stands for at most, where control_tool_length says so",
        default=8,
        least=1,
        most=MOST_LENGTH,
    ),
    "example": Parameter(
        kind=bool, help=f"worked example in the instructions; where not said, up to {MOST_EXAMPLE} tools", default=None
    ),
    "composites": Parameter(kind=bool, help="whether the instructions explain composite tools", default=True),
    "sequence": Parameter(kind=bool, help="whether the instructions list the atomic tools in order", default=True),
}


def checked(name: str, value: Any) -> Any:
    """A parameter's value of the right type. Raises UsageError where it is of another, out of range or no choice."""
    return parameters.checked(PARAMETERS, name, value)


def steps_by_rule(length: int) -> int:
    """Assistant messages at most, where the line does not say: enough for atomic tools alone, and as many in vain."""
    return max(LEAST_STEPS, 2 * length + 4)


def example_by_rule(length: int) -> bool:
    """Whether the instructions hold the worked example, where the line does not say."""
    return length <= MOST_EXAMPLE
