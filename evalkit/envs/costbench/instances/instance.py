"""A CostBench instance: one planning problem and how it is played. Lines of suites are read by `suite.py`."""

from collections.abc import Mapping
from typing import Any

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.query import Query, QuerySource
from evalkit.envs.costbench.domain.world import MOST_LENGTH
from evalkit.envs.costbench.instances.parameters import Settings


class PlanningProblem(Settings, frozen=True, kw_only=True, eq=False):
    """One planning problem and how it is played: the parameters, settled, and what they are about."""

    id: str
    catalogue: Catalogue
    catalogue_name: str
    """A shipped catalogue's name; empty: the line holds the catalogue itself."""
    task: str
    query: Query
    costs: Mapping[str, int] = {}
    """Explicit costs in cents by tool; they replace what would be drawn."""
    blocks: int = 0
    """How many blocking events are planned."""
    schedule: tuple[Mapping[str, Any], ...] = ()
    """Explicit events instead of planned ones: `{"at": 2, "kind": "cost_change", ...}` (`events.py`)."""
    alternatives: tuple[Query, ...] = ()
    """For preference changes, in order."""
    alternatives_seed: int | None = None
    """The global seed for which the alternatives were drawn; None: the line does not say."""
    steps: int = 20
    """Assistant messages at most."""
    example: bool = True
    source: QuerySource | None = None
    digest: str = ""
    """Of the costs at the start, as the line says; empty: it says nothing."""
    optimum: int | None = None
    """Cents of the static plan, as the line says; None: it says nothing."""

    @property
    def longest(self) -> int:
        """Atomic tools that a composite stands for at most."""
        return self.max_tool_length if self.control_tool_length else MOST_LENGTH
