"""What a call of `run` has to play, and where."""

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.universe import Choice
from evalkit.envs.environment import Environment
from evalkit.envs.table import ENVIRONMENTS
from evalkit.store.manifest import Manifest
from evalkit.store.reading.totals import CellTotals


def is_spread(resolved: Resolved) -> bool:
    """Whether other processes than this one play the run."""
    return resolved.sweep.workers > 1 or resolved.sweep.on != "here"


def work_of(
    manifest: Manifest, cells: Mapping[tuple[str, str], CellTotals], choice: Choice
) -> Iterator[tuple[Environment[Any, Any], Mapping[str, Any], float]]:
    """What will be played, as `load_for` takes it, before the first request: no request waits for the import."""
    planned = {
        suite.name: len(suite.instances)
        * manifest.replicates
        * sum(suite.environment in agent.packs for agent in manifest.agents.values())
        for suite in manifest.suites.values()
    }
    ended = sum(cell.ended for cell in cells.values())
    left = max(0.0, 1 - ended / max(1, sum(planned.values())))
    for suite in filter(choice.takes_suite, manifest.suites.values()):
        if suite.instances:
            line = suite.instances[0].line
            yield ENVIRONMENTS[suite.environment], line, left * planned[suite.name] * line.get("periods", 1)
