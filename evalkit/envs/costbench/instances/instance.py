"""A CostBench instance: one planning problem and how it is played. Lines of suites are read by `suite.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.query import Query, QuerySource
from evalkit.envs.costbench.domain.world import MOST_LENGTH
from evalkit.envs.costbench.instances.parameters import MOST_EXAMPLE, REFUSED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanningProblem:
    """One planning problem and how it is played."""

    id: str
    catalogue: Catalogue
    catalogue_name: str
    """A shipped catalogue's name; empty: the line holds the catalogue itself."""
    task: str
    length: int
    split: str
    query: Query
    generator: str
    """Who draws costs and events: `reference` (its generators, draw for draw) or `native` (keyed by place)."""
    seed: int
    """Global: with the query's id it makes every draw."""
    low: float
    high: float
    """Range of atomic costs."""
    noise: float
    """Standard deviation of a composite's cost, times the square root of its size."""
    distribution: str
    """How atomic costs are drawn in the range: `uniform`, `normal`, `exponential`, `two_point`."""
    whole: bool
    """Whether the tool that does everything at once is offered."""
    costs: Mapping[str, int] = field(default_factory=dict)
    """Explicit costs in cents by tool; they replace what would be drawn."""
    block: str = "none"
    """`none`, one of `KINDS`, or `mixed`."""
    blocks: int = 0
    """How many blocking events are planned."""
    schedule: tuple[Mapping[str, Any], ...] = ()
    """Explicit events instead of planned ones: `{"at": 2, "kind": "cost_change", ...}` (`events.py`)."""
    failures: float = 0.0
    """Probability that a call fails for once, drawn by place."""
    alternatives: tuple[Query, ...] = ()
    """For preference changes, in order."""
    alternatives_seed: int | None = None
    """The global seed for which the alternatives were drawn; None: the line does not say."""
    steps: int = 20
    """Assistant messages at most."""
    strict: bool = False
    """Whether ids that the reference never checks (constants, context) must be the right ones."""
    malformed_ids: str = REFUSED
    """What becomes of a malformed id given to a composite tool: `refused`, or `charged` as in the reference."""
    require_goal_state: bool = False
    """Whether every reply must hold a call until the goal is held, and the one behind it none, as in the reference."""
    control_tool_length: bool = False
    max_tool_length: int = MOST_EXAMPLE
    """Composites stand for so many atomic tools at most, where `control_tool_length` says so."""
    example: bool = True
    composites: bool = True
    sequence: bool = True
    """Parts of the instructions: worked example, what composite tools are, the atomic tools in order."""
    source: QuerySource | None = None
    digest: str = ""
    """Of the costs at the start, as the line says; empty: it says nothing."""
    optimum: int | None = None
    """Cents of the static plan, as the line says; None: it says nothing."""

    @property
    def longest(self) -> int:
        """Atomic tools that a composite stands for at most."""
        return self.max_tool_length if self.control_tool_length else MOST_LENGTH
