"""Nights for tests: a simulated provider on the same loop, whose models draw anew every night and can be replaced."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from evalkit.dialogue import Request
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.money import parse_usd
from evalkit.nightly.night import Night, NightOptions, play_night
from evalkit.report.nights.history import Rule
from evalkit.serve.provider import ArrivedRequest
from evalkit.spec.model import Provider
from evalkit.spec.sweep import read_sweep
from evalkit.store.lock import hold_run
from tests.provider.double import Double
from tests.provider.options import options_from
from tests.provider.serving import serving

SPEC = """
replicates = {replicates}
width = {width}
{more}
[[agents]]
name = "good"
provider = "simulated"
model = "knuth"
max_tokens = 100
[[agents]]
name = "poor"
provider = "simulated"
model = "random"
max_tokens = 100
[[suites]]
name = "scheduling/basic"
vary = {{ k = [5], periods = [{periods}] }}
"""


@dataclass(slots=True)
class House:
    """A sweep's nights, and who serves its models."""

    directory: Path
    resolved: ResolvedSweep
    patch: pytest.MonkeyPatch
    instead: dict[str, str] = field(default_factory=dict)
    """Model that is asked for -> model that is served in its place."""
    asked: list[str] = field(default_factory=list)
    """The ids of all requests, in order of arrival."""
    models: dict[str, str] = field(default_factory=dict)
    """By episode, the model that was asked for."""
    requests: dict[str, Request] = field(default_factory=dict)
    """By its id, the last request that was read."""
    billed: int = 0
    """What the provider took for the last night's play, in pico-dollars."""
    rule: Rule = field(default_factory=Rule)

    def play(self, date: str, *, budget: str | None = None, deadline_s: float | None = None) -> Night:
        """One call on that night."""
        sweep = replace(
            self.resolved.sweep, budget=None if budget is None else parse_usd(budget), deadline_s=deadline_s
        )
        self.billed, self.asked = 0, []
        return asyncio.run(self._play(replace(self.resolved, sweep=sweep), date))

    async def _play(self, resolved: ResolvedSweep, date: str) -> Night:
        with self.patch.context() as patch:
            self._take_over(patch, seed=int(date.replace("-", "")))
            async with serving(options_from({})) as (url, simulator):

                @contextmanager
                def launch(provider: Provider, run: Path) -> Iterator[str]:
                    yield url

                options = NightOptions(directory=self.directory, date=date, rule=self.rule, launch=launch)
                with hold_run(options.folder):
                    night = await play_night(resolved, options, lambda view: None)
                self.billed = simulator.totals.bill
                return night

    def _take_over(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        """Every night draws with its own seed, and models may be others than their names say."""
        plain = Double.read

        def read(simulator: Double, asked: ArrivedRequest) -> tuple[str, Request]:
            model, request = plain(simulator, asked)
            name = asked.arrival.headers["x-client-request-id"]
            self.asked.append(name)
            self.models[name.partition("/")[0]] = model
            self.requests[name] = request
            return self.instead.get(model, model), replace(request, seed=(request.seed + 1009 * seed) % 2**31)

        patch.setattr(Double, "read", read)


def house(
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    *,
    periods: int = 4,
    replicates: int = 1,
    width: int = 8,
    more: str = "",
    rule: Rule | None = None,
) -> House:
    """A sweep of a good and a poor agent on twelve instances."""
    path = tmp_path / "mine.toml"
    path.write_text(SPEC.format(periods=periods, replicates=replicates, width=width, more=more))
    return House(
        directory=tmp_path / "runs" / "mine", resolved=resolve(read_sweep(path)), patch=patch, rule=rule or Rule()
    )
