"""The parameters of CostBench's instances: names, ranges, defaults. Defaults are the paper's (table 5)."""

from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from evalkit.envs.costbench.domain.catalogue import Split
from evalkit.envs.costbench.domain.world import LEAST_LENGTH, MOST_LENGTH
from evalkit.envs.parameters import Seed

NAME: Final = "costbench"

Kind = Literal["ban_tool", "preference_change", "remove_tools", "cost_change"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Blocking events in the reference's order. The first two are told to the agent, the others are not."""

MOST_EXAMPLE = 8
"""Tools in the worked example: it lists every way through them, and their number doubles with every tool."""

LEAST_STEPS = 20
"""Assistant messages at least, where the chain's length sets them: the reference's number."""

Distribution = Literal["uniform", "normal", "exponential", "two_point", "lognormal"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
"""How atomic costs are drawn natively; the reference's are always uniform."""

SQUARE_ROOT = 0.5

MalformedIds = Literal["refused", "charged"]
REFUSED, CHARGED = get_args(MalformedIds)
"""What happens to a malformed id that is given to a composite tool."""

Cost = Annotated[float, Meta(ge=0.0, le=1e6)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters but for the domain."""

    task: Annotated[str, Meta(description="a task of the catalogue; all in turn where none is given")] | None = None
    length: Annotated[int, Meta(ge=LEAST_LENGTH, le=MOST_LENGTH, description="atomic tools in a chain (N)")] = 5
    split: Annotated[Split, Meta(description="which values people wish for")] = "test"
    generator: Annotated[
        Literal["reference", "native"],
        Meta(
            description="who draws costs and events: the reference's generators, draw for draw, or ours, keyed by tool"
        ),
    ] = "native"
    seed: Annotated[Seed, Meta(description="makes costs and events")] = 0
    """Global: with the query's id it makes every draw."""
    low: Annotated[Cost, Meta(description="least cost of an atomic tool")] = 15.0
    high: Annotated[Cost, Meta(description="most cost of an atomic tool")] = 25.0
    noise: Annotated[
        Cost, Meta(description="standard deviation of a composite tool's cost over its size to the noise_power")
    ] = 0.1
    noise_power: Annotated[
        float, Meta(ge=0.0, le=2.0, description="0.5: noise grows as the square root of the size, as in the reference")
    ] = SQUARE_ROOT
    distribution: Annotated[Distribution, Meta(description="how atomic costs lie between low and high")] = "uniform"
    listed: (
        Annotated[
            str,
            Meta(
                pattern=r"^\s*\d{1,7}(\.\d{1,2})?(\s*,\s*\d{1,7}(\.\d{1,2})?){0,999}\s*\Z",
                description="costs of which each atomic tool's is drawn, instead of between low and high",
                title="costs with commas between, as in '15, 18.5, 25'",
            ),
        ]
        | None
    ) = None
    whole: Annotated[bool, Meta(description="whether the tool that does everything at once is offered")] = False
    block: Annotated[Literal["none", Kind, "mixed"], Meta(description="what happens on the way")] = "none"
    blocks: Annotated[int, Meta(ge=0, le=100, description="how often it happens; 1 where not said")] | None = None
    failures: Annotated[float, Meta(ge=0.0, le=1.0, description="probability that a call fails for once")] = 0.0
    """Drawn by place."""
    steps: Annotated[
        int,
        Meta(ge=0, le=10_000, description=f"assistant messages at most; 0: {LEAST_STEPS}, or 2 N + 4 in longer chains"),
    ] = 0
    strict: Annotated[bool, Meta(description="whether ids that the reference never checks must be the right ones")] = (
        False
    )
    """Ids of constants and of the context."""
    malformed_ids: Annotated[
        MalformedIds,
        Meta(
            description="a malformed id given to a composite tool: refused free of charge, or charged and its type "
            "given, as in the reference"
        ),
    ] = "refused"
    require_goal_state: Annotated[
        bool,
        Meta(description="whether every reply must hold a call until the goal is held, and the one behind it none"),
    ] = False
    """As in the reference."""
    control_tool_length: Annotated[
        bool, Meta(description="whether composite tools of more than max_tool_length atomic ones are left out")
    ] = False
    max_tool_length: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_LENGTH,
            description="atomic tools that a composite stands for at most, where control_tool_length says so",
        ),
    ] = MOST_EXAMPLE
    example: (
        Annotated[
            bool,
            Meta(description=f"worked example in the instructions; where not said, up to {MOST_EXAMPLE} tools"),
        ]
        | None
    ) = None
    composites: Annotated[bool, Meta(description="whether the instructions explain composite tools")] = True
    sequence: Annotated[bool, Meta(description="whether the instructions list the atomic tools in order")] = True


def steps_by_rule(length: int) -> int:
    """Assistant messages at most, where the line does not say: enough for atomic tools alone, and as many without
    success."""
    return max(LEAST_STEPS, 2 * length + 4)


def example_by_rule(length: int) -> bool:
    """Whether the instructions hold the worked example, where the line does not say."""
    return length <= MOST_EXAMPLE
