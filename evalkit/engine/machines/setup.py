"""What a worker's process is given before it says hello: the sweep as the coordinator has read it, without the
instances of its suites, which it reads from the run. It contains no key."""

from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.universe import Choice
from evalkit.store.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What a worker does, and where."""

    resolved: Resolved
    directory: Path
    choice: Choice
    retry: frozenset[str]
    after: str
    """The coordinator's writer: the worker's begins later."""
    urls: dict[str, str]
    """Of simulated providers that the coordinator's process has started."""
    deadline_s: float | None
    """Seconds from now at which the run ends."""

    def beside(self, run: Manifest) -> Resolved:
        """The sweep, with the instances of the run's suites and what remains of the time."""
        own = self.resolved.manifest
        suites = {
            name: structs.replace(suite, instances=run.suites[name].instances) for name, suite in own.suites.items()
        }
        return replace(
            self.resolved,
            manifest=structs.replace(own, suites=suites),
            sweep=replace(self.resolved.sweep, deadline_s=self.deadline_s),
        )


def without_instances(resolved: Resolved) -> Resolved:
    """A sweep as it is sent."""
    suites = {name: structs.replace(suite, instances=()) for name, suite in resolved.manifest.suites.items()}
    return replace(resolved, manifest=structs.replace(resolved.manifest, suites=suites))
