"""One call of `run`: a sweep, and what is asked of it beside."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.options import RunOptions, Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.errors import UsageError
from evalkit.frozen.manifests import manifest_if_run
from evalkit.playing.specs import checked_limit, checked_names, chosen
from evalkit.playing.sweeps import run_sweep
from evalkit.spec.model import Provider, Sweep
from evalkit.store.bucket import is_bucket, place_of

if TYPE_CHECKING:  # it comes with all that plays
    from evalkit.engine.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of `run`, checked as far as possible without reading the run. The command line uses it too."""

    resolved: ResolvedSweep
    options: RunOptions

    async def play(self, stop: Stop | None, show: Callable[["View"], None]) -> RunOutcome:
        """Play to the end, or until `stop` is set."""
        return await run_sweep(self.resolved, replace(self.options, stop=stop), show)


def call_of(
    sweep: Sweep,
    *,
    directory: str | PathLike[str] | None = None,
    only: Mapping[str, Sequence[str]] = {},
    limit: int | None = None,
    retry: Collection[str] = (),
    mark: str = "",
) -> Call:
    """A call that plays a sweep; `mark`: prefix of option names in errors.

    Raises UsageError.
    """
    if directory is not None and not isinstance(directory, str | PathLike):
        raise UsageError(f"{mark}directory: expected a path, got {type(directory).__name__}.")
    where = place_of(directory) if directory else Path("runs") / sweep.name
    resolved = resolve(sweep, manifest_if_run(where))
    options = RunOptions(
        directory=where,
        choice=chosen(only, resolved.manifest, f"{mark}only"),
        limit=checked_limit(limit, mark),
        retry=checked_names(retry, f"{mark}retry"),
        launch=launch,
    )
    return Call(resolved=resolved, options=options)


def launch(provider: Provider, run_directory: Path) -> AbstractContextManager[str]:
    """Start a simulated provider, with its bill in the run's directory; yields its base URL."""
    from evalkit.serve.launch import launched

    # A bill is appended to, which no object can be.
    bill = {} if is_bucket(run_directory) else {"bill": os.fspath(run_directory / f"bill-{provider.name}.jsonl")}
    return launched(provider, **bill)
