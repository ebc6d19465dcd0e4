"""Runs for tests: `run_sweep` on a fresh loop, beside a simulated provider in the same process where one is needed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.money import PicoUsd
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.model import Provider
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.provider.serving import serving

SERVED = """
replicates = {replicates}
width = {width}
{more}
[[agents]]
name = "knuth"
provider = "simulated"
model = "knuth"
[[agents]]
name = "random"
provider = "simulated"
model = "random"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0", "seed-3", "seed-6", "seed-9"]
vary = {{ periods = [{periods}] }}
"""


def served(*, replicates: int = 1, width: int = 8, periods: int = 4, more: str = "") -> str:
    """A spec of two served policies."""
    return SERVED.format(replicates=replicates, width=width, periods=periods, more=more)


def go(resolved: ResolvedSweep, directory: Path, **options: Any) -> RunOutcome:
    """Run a sweep whose agents are played in this process."""
    return asyncio.run(run_sweep(resolved, RunOptions(directory=directory, **options), lambda view: None))


def go_served(
    resolved: ResolvedSweep, directory: Path, simulate: dict[str, Any] | None = None, **options: Any
) -> tuple[RunOutcome, Double]:
    """Run a sweep whose provider is simulated on this loop; also gives the provider as it stood at the end."""

    async def both() -> tuple[RunOutcome, Double]:
        async with serving(options_from(simulate or {})) as (url, simulator):

            @contextmanager
            def launch(provider: Provider, run: Path) -> Iterator[str]:
                yield url

            outcome = await run_sweep(
                resolved, RunOptions(directory=directory, launch=launch, **options), lambda view: None
            )
            return outcome, simulator

    return asyncio.run(both())


def with_budget(resolved: ResolvedSweep, pico_usd: int) -> ResolvedSweep:
    """The sweep under another budget."""
    return replace(resolved, sweep=replace(resolved.sweep, budget=PicoUsd(pico_usd)))
