"""`evalkit run`: one command to start, to resume and to extend. A spec is a desired state; what is missing is played.

Everything that the spec names is checked first. Where nothing is missing, that is found here, before what plays is
loaded; and only a run that is asked something loads statistics, only one that is spread what talks to workers.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.engine.checks import check_keys, check_outside, existing_manifest
from evalkit.engine.freezing.brought import changed, recoded
from evalkit.engine.freezing.freeze import ResolvedSweep, merge
from evalkit.engine.freezing.keeping import kept, reworded
from evalkit.engine.options import RunOptions
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.universe import RunPart, example_of
from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import read_spec
from evalkit.store.bucket import is_bucket
from evalkit.store.reading.accounts import unaccounted
from evalkit.store.reading.index import read_index
from evalkit.store.reading.totals import CellTotals
from evalkit.store.writing.opening import is_closed, refuse_damage

if TYPE_CHECKING:
    from evalkit.engine.view import View


async def run_sweep(resolved: ResolvedSweep, options: RunOptions, show: Callable[["View"], None]) -> RunOutcome:
    """Play what the spec asks for and the run lacks. Returns how it ended.

    Raises UsageError or RunError, before anything is written, if it cannot be run as asked; CorruptLogError for a
    damaged log; StorageError if the disk refuses to write.
    """
    directory, sweep = options.directory, resolved.sweep
    check_keys(resolved, options.choice)
    _check_workers(resolved, options)
    if options.outside is None:
        check_outside(resolved, options.choice)
    old = existing_manifest(directory)
    options.tell("opening the run" if old is None else "reading the run")
    manifest = resolved.manifest if old is None else _extended(old, resolved, directory)
    if old is not None:
        newer = [*changed(old, resolved.manifest), *recoded(old, resolved.manifest)]
        resolved = replace(resolved, manifest=kept(old, resolved.manifest))
        if options.announce is not None:
            options.announce([*reworded(manifest), *newer])
    idle = nothing_to_do(resolved, options) if manifest == old else None
    if idle is not None:
        return idle
    from evalkit.engine.sweep import play_sweep

    asking = machines = None
    asked = options.asked or sweep.decide
    if asked is not None:
        from evalkit.engine.question import asking_of

        asking = asking_of(manifest, asked)
    if sweep.is_spread:
        from evalkit.machines import apart

        machines = apart.machines
    return await play_sweep(resolved, options, show, old=old, manifest=manifest, asking=asking, machines=machines)


def _extended(old: Manifest, resolved: ResolvedSweep, directory: Path) -> Manifest:
    """The run's manifest with what the spec adds. Raises RunError, which names the settings that the run had before."""
    try:
        return merge(old, resolved.manifest, str(directory))
    except RunError as conflict:
        before = read_spec(directory)
        if before is None or before.settings == resolved.sweep.settings or not before.settings:
            raise
        words = " ".join(f"--set {shlex.quote(setting)}" for setting in before.settings)
        raise RunError(f"{conflict} The run was last played with {words}.") from None


def _check_workers(resolved: ResolvedSweep, options: RunOptions) -> None:
    """Raises UsageError if several processes cannot play what is chosen."""
    if not resolved.sweep.is_spread:
        return
    if resolved.sweep.on == "ray":
        from evalkit.machines.on_ray import check_ray

        check_ray()
    coded = [name for name, agent in resolved.manifest.agents.items() if agent.code is not None]
    if any(not options.choice.agents or name in options.choice.agents for name in coded) or options.outside is not None:
        raise UsageError(
            f"Agents that are code, or that are played from outside, are played by one process alone"
            f"{': ' + ', '.join(coded) if coded else ''}. Leave out `--workers` (and `[machines]` in the sweep), or "
            "choose others with `--only agent=NAME`."
        )


# A call of `run` that has nothing to do: known from the sums of the log, however many episodes it has.
#
# Nothing is locked, written, started or asked, and no row is read. On a disk the bytes of the log are compared with
# the digests that it records, as before each call that plays. In a bucket they are not: the store itself answers for
# what it keeps, and reading all of it would be paid for. `verify` compares there.


def nothing_to_do(resolved: ResolvedSweep, options: RunOptions) -> RunOutcome | None:
    """The outcome of a call for which everything has ended and is settled; None if there may be something to do.

    The sweep does not extend the run. Raises CorruptLogError for damage, StorageError.
    """
    choice, sweep = options.choice, resolved.sweep
    if options.repair or options.retry or options.outside is not None or options.asked is not None:
        return None
    if sweep.decide is not None:
        return None
    if choice.replicate is not None:  # the sums do not know replicates
        return None
    if not is_closed(options.directory):
        return None
    index = read_index(options.directory)
    accounts = index.books()
    if not all(account.closed for account in accounts.values()) or any(unaccounted(accounts)):
        return None
    agents = [agent for agent in resolved.manifest.agents.values() if not choice.agents or agent.name in choice.agents]
    share = RunPart(manifest=resolved.manifest, agents=agents, choice=choice)
    planned = {(agent.name, suite.name): len(suite.instances) * len(share.replicates) for agent, suite in share.places}
    if any(_ended(index.cells, place) != count for place, count in planned.items()):
        return None
    if not is_bucket(options.directory):
        refuse_damage(options.directory)
    books = accounts.values()
    return RunOutcome(
        directory=options.directory,
        place=options.place,
        reason="complete",
        messages=tuple(filter(None, [index.unmetered.advice()])),
        episodes=sum(planned.values()),
        ended=sum(planned.values()),
        spent=index.spent,
        unconfirmed=sum(account.crashed - account.confirmed for account in books),
        budget=sweep.budget,
        simulated=resolved.manifest.simulated,
        unmetered=index.unmetered,
        example=example_of(resolved.manifest, choice),
    )


def _ended(cells: Mapping[tuple[str, str], CellTotals], place: tuple[str, str]) -> int:
    cell = cells.get(place)
    return 0 if cell is None else cell.ended
