"""Start, resume, extend: what `evalkit run` does, for programs."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from evalkit.api.progress import Progress, progress_of
from evalkit.api.runs import Run, run_at
from evalkit.api.specs import Spec, changed, checked_limit, checked_names, chosen, sweep_of
from evalkit.engine.episode import Stop
from evalkit.engine.freezing.freeze import Resolved, resolve
from evalkit.engine.loop import drained, finish
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.session import RunOptions
from evalkit.engine.sweep import run_sweep
from evalkit.engine.view import View
from evalkit.errors import CorruptLogError, UsageError
from evalkit.spec.model import Provider, Sweep
from evalkit.store.manifests import described


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of `run`, checked as far as can be without a look at the run: what the command line does as well."""

    resolved: Resolved
    options: RunOptions

    async def play(self, stop: Stop | None, show: Callable[[View], None]) -> RunOutcome:
        """To the end, or to where `stop` ends it."""
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
    """A call that plays what a sweep asks for; `mark` stands before the names of options in errors.

    Raises UsageError.
    """
    if directory is not None and not isinstance(directory, str | PathLike):
        raise UsageError(f"{mark}directory: expected a path, got {type(directory).__name__}.")
    where = Path(directory) if directory else Path("runs") / sweep.name
    resolved = resolve(sweep, described(where))
    options = RunOptions(
        directory=where,
        choice=chosen(only, resolved.manifest, f"{mark}only"),
        limit=checked_limit(limit, mark),
        retry=checked_names(retry, f"{mark}retry"),
        launch=launch,
    )
    return Call(resolved=resolved, options=options)


def launch(provider: Provider, run_directory: Path) -> AbstractContextManager[str]:
    """A provider that evalkit simulates, with its bill in the run's directory; gives its base URL."""
    from evalkit.serve.launch import simulated

    assert provider.simulate is not None
    bill = {"bill": os.fspath(run_directory / f"bill-{provider.name}.jsonl")}
    return simulated({**bill, **provider.simulate}, source=f"providers/{provider.name}.toml: simulate")


def run(
    spec: Spec,
    *,
    name: str = "",
    directory: str | PathLike[str] | None = None,
    only: Mapping[str, Sequence[str]] = {},
    limit: int | None = None,
    width: int | None = None,
    retry: Collection[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Start, resume or extend a run, and wait for its end: what `evalkit run` does.

    A spec is a desired state. Called again with the same spec, `run` asks for what is missing, and for nothing twice;
    with a longer spec it adds what is new.

    Args:
        spec: the path of a sweep's TOML file, the name of one that evalkit brings (`quickstart`), or a mapping that
            holds what such a file would (docs/sweeps.md); a mapping needs `name`.
        name: the run's name instead of the spec's.
        directory: where the run lies; else in `runs/NAME` below the current directory.
        only: part of the sweep: `{"agent": ["knuth"], "suite": ["pricing/basic"]}`; an absent key means all.
        limit: end at most so many episodes a lane in this call.
        width: episodes in flight in each lane, instead of the spec's.
        retry: endings whose episodes are played again, such as `["context_length"]`.
        on_progress: called with a `Progress` some four times a second, and at the end, in the thread that plays. What
            it raises is logged and does not harm the run.

    Returns:
        The `Run`. That a budget or a deadline was reached, or a provider could not go on, is an outcome and no error:
        `Run.reason` says it, `Run.messages` says what to do.

    Raises:
        UsageError, RunError: the spec, an argument or the directory cannot be used; nothing was written.
        CorruptLogError: the log was changed or has lost rows.
        StorageError: the disk refuses.
        KeyboardInterrupt: Ctrl-C, or SIGTERM, in the main thread. The first one drains: replies in flight are awaited
            and kept, and nothing else is sent. A second one stops at once. The next call goes on from there.

    It works in any thread, in a notebook, inside a running loop (which stands still meanwhile; `run_async` lets it go
    on), and several times at once in one process. Signals are heeded in the main thread alone.

    >>> import evalkit
    >>> spec = {
    ...     "name": "first",
    ...     "agents": [{"policy": "knuth"}, {"policy": "random"}],
    ...     "suites": [{"name": "scheduling/basic", "instances": ["seed-0"]}],
    ... }
    >>> evalkit.run(spec)
    Run(first: complete, 2 of 2 episodes, 0 USD)
    >>> evalkit.run(spec | {"replicates": 2}, only={"agent": ["knuth"]})
    Run(first: complete, 3 of 4 episodes, 0 USD)
    """
    sweep = changed(sweep_of(spec, name), width=width)
    call = call_of(sweep, directory=directory, only=only, limit=limit, retry=retry)
    _check_listener(on_progress)
    outcome = finish(lambda stop: _told(call, stop, on_progress))
    if outcome.reason == "interrupt":
        raise KeyboardInterrupt
    return _run(outcome)


async def run_async(
    spec: Spec,
    *,
    name: str = "",
    directory: str | PathLike[str] | None = None,
    only: Mapping[str, Sequence[str]] = {},
    limit: int | None = None,
    width: int | None = None,
    retry: Collection[str] = (),
    on_progress: Callable[[Progress], None] | None = None,
) -> Run:
    """`run`, to be awaited: it plays on the caller's loop, beside what else runs there.

    Arguments, result and errors are those of `run`, except that no signal is heeded. Where the awaiting task is
    cancelled, the run drains as it does on Ctrl-C, and then CancelledError is raised; cancelled again, it stops at
    once. `on_progress` is called on the same loop.

    >>> import asyncio, evalkit
    >>> def spec(name, policy):
    ...     suites = [{"name": "scheduling/basic", "instances": ["seed-0"]}]
    ...     return {"name": name, "agents": [{"policy": policy}], "suites": suites}
    >>> async def both():
    ...     runs = evalkit.run_async(spec("a", "knuth")), evalkit.run_async(spec("b", "random"))
    ...     return await asyncio.gather(*runs)
    >>> asyncio.run(both())
    [Run(a: complete, 1 of 1 episodes, 0 USD), Run(b: complete, 1 of 1 episodes, 0 USD)]
    """
    sweep = changed(sweep_of(spec, name), width=width)
    call = call_of(sweep, directory=directory, only=only, limit=limit, retry=retry)
    _check_listener(on_progress)
    return _run(await drained(lambda stop: _told(call, stop, on_progress)))


async def _told(call: Call, stop: Stop | None, on_progress: Callable[[Progress], None] | None) -> RunOutcome:
    """Play, and tell of it: from the loop itself, so that what the listener raises is not ours."""
    loop = asyncio.get_running_loop()

    def show(view: View) -> None:
        if on_progress is not None:
            loop.call_soon(on_progress, progress_of(view))

    outcome = await call.play(stop, show)
    await asyncio.sleep(0)  # the last look is told before we return
    return outcome


def _check_listener(on_progress: object) -> None:
    if on_progress is not None and not callable(on_progress):
        raise UsageError(f"on_progress: expected a function, got {type(on_progress).__name__}.")


def _run(outcome: RunOutcome) -> Run:
    if outcome.reason == "corrupt":
        raise CorruptLogError(" ".join(outcome.messages))
    return run_at(outcome.directory, reason=outcome.reason, messages=outcome.messages)
