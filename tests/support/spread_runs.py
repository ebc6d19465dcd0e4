"""Runs that several processes play, for tests: a simulated provider and the coordinator are in this process."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import orjson

from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.view import View
from evalkit.machines import children
from evalkit.machines.children import Child
from evalkit.playing.sweeps import run_sweep
from evalkit.serve.outcome import Arrival, ServedOutcome
from evalkit.spec.model import Provider
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.provider.serving import serving
from tests.support.patience import PATIENCE_S


@dataclass(slots=True, kw_only=True)
class SpreadRun:
    """A run while it is played, and afterwards."""

    simulator: Double
    children: list[Child] = field(default_factory=list)
    """All worker processes that were started."""
    views: list[View] = field(default_factory=list)
    arrivals: list[tuple[float, str, int]] = field(default_factory=list)
    """Of each request that has reached the provider: when, what became of it, and how many were then in flight."""
    outcome: RunOutcome | None = None

    @property
    def ended(self) -> RunOutcome:
        """How it ended."""
        assert self.outcome is not None
        return self.outcome

    @property
    def steps(self) -> int:
        """As the last view says."""
        return sum(lane.steps for lane in self.views[-1].lanes) if self.views else 0

    def words(self) -> set[str]:
        """What became of its requests."""
        return {word for _, word, _ in self.arrivals}


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of a kind in a run's events, in order."""
    lines = [orjson.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def _nothing(run: SpreadRun) -> None:
    """Let it be."""


def play(
    resolved: ResolvedSweep,
    directory: Path,
    *,
    workers: int = 2,
    simulate: dict[str, Any] | None = None,
    during: Callable[[SpreadRun], None] = _nothing,
    **options: Any,
) -> SpreadRun:
    """Play a sweep in so many processes; `during` is called four times a second and may do harm. Raises TimeoutError if
    it does not end."""
    return asyncio.run(
        asyncio.wait_for(_play(resolved, directory, workers, simulate or {}, during, options), PATIENCE_S)
    )


async def _play(
    resolved: ResolvedSweep,
    directory: Path,
    workers: int,
    simulate: dict[str, Any],
    during: Callable[[SpreadRun], None],
    options: dict[str, Any],
) -> SpreadRun:
    async with serving(options_from(simulate)) as (url, simulator):
        run = SpreadRun(simulator=simulator)

        @contextmanager
        def launch(provider: Provider, folder: Path) -> Iterator[str]:
            del provider, folder
            yield url

        plain = Double.handle

        class _Child(Child):
            def __init__(self, *words: Any) -> None:
                super().__init__(*words)
                run.children.append(self)

        def heard(simulator: Double, arrival: Arrival, now_s: float) -> ServedOutcome:
            outcome = plain(simulator, arrival, now_s)
            if outcome.line is not None:
                run.arrivals.append((now_s, outcome.line.outcome, simulator.totals.in_flight))
            return outcome

        def show(view: View) -> None:
            run.views.append(view)
            during(run)

        sweep = replace(resolved.sweep, workers=workers)
        with mock.patch.object(children, "Child", _Child), mock.patch.object(Double, "handle", heard):
            run.outcome = await run_sweep(
                replace(resolved, sweep=sweep), RunOptions(directory=directory, launch=launch, **options), show
            )
    return run
