"""The `[gate]` table of a sweep: what its `evalkit gate` lets pass."""

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from evalkit.errors import UsageError, nearest

Margin = Annotated[float, msgspec.Meta(gt=0, lt=100)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class GateTable(msgspec.Struct, frozen=True, kw_only=True):
    """The `[gate]` table."""

    margin: Margin = 2.0
    """Points by which the new agent may be worse."""
    margins: dict[str, Margin] = {}
    """The same of single suites, by name."""
    dearer: Percent | None = None
    """Per cent by which an episode may cost more than the old agent's; None: anything."""
    broken: Annotated[float, msgspec.Meta(ge=0, lt=100)] | None = None
    """Per cent of a new agent's calls that may be refused or missing; None: any."""
    undecided: Literal["undecided", "pass", "fail"] = "undecided"
    """What a gate without an answer counts as, in its exit code."""

    def margin_of(self, name: str, base: str) -> float:
        """Of a suite, by its name or that without what was varied, on the scale of scores."""
        return self.margins.get(name, self.margins.get(base, self.margin)) / 100

    def check(self, suites: Collection[str], where: str) -> None:
        """Raises UsageError for a margin of a suite that is not there."""
        for name in self.margins:
            if name not in suites:
                raise UsageError(f"{where}: gate.margins: no suite is called {name!r}.{nearest(name, suites)}")
