"""A call of `run` that has nothing to do: known from the sums of the log, however many episodes it has.

Nothing is locked, written, started or asked, and no row is read. On a disk the bytes of the log are compared with the
digests that it records, as before each call that plays. In a bucket they are not: the store itself answers for what it
keeps, and reading all of it would be paid for. `verify` compares there.
"""

from collections.abc import Mapping
from pathlib import Path

from evalkit.engine.ending import example_of
from evalkit.engine.freezing.freeze import Resolved
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.resume import RunPart
from evalkit.engine.session import RunOptions
from evalkit.errors import RunError
from evalkit.store.bucket import is_bucket
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import is_run, read_manifest
from evalkit.store.reading.accounts import spent, unaccounted
from evalkit.store.reading.sums import closed_totals
from evalkit.store.reading.totals import CellTotals
from evalkit.store.reading.unmetered import together
from evalkit.store.writing.opening import refuse_damage

# What a directory holds in which a run is to be played.

OWN = {
    *("lock", "lead", "manifest", "suites", "spec", "log", "tail", "steps", "ends", "ledger"),
    *("events", "events.jsonl", "nights"),
}
"""What may be there before a manifest is."""


def existing_manifest(directory: Path) -> Manifest | None:
    """The manifest of the run in a directory, or None for a new run. Raises RunError if the directory holds other
    files."""
    if is_run(directory):
        return read_manifest(directory)
    # A run that was killed before its manifest was written has its lock and empty folders.
    # Its nights may have come before it.
    if directory.is_dir() and any(
        entry.name not in OWN and not entry.name.startswith(".") for entry in directory.iterdir()
    ):
        raise RunError(
            f"{directory} is no run directory, and it is not empty. Nothing was written. Choose another with --dir."
        )
    if directory.exists() and not directory.is_dir():
        raise RunError(f"{directory} is a file. Choose another place with --dir.")
    return None


def nothing_to_do(resolved: Resolved, options: RunOptions, manifest: Manifest) -> RunOutcome | None:
    """The outcome of a call for which everything has ended and is settled; None if there may be something to do.

    manifest: the run's, which the sweep does not extend. Raises CorruptLogError for damage, StorageError.
    """
    choice, sweep = options.choice, resolved.sweep
    if options.repair or options.retry or options.outside is not None or sweep.decide is not None:
        return None
    if choice.replicate is not None:  # the sums do not know replicates
        return None
    totals = closed_totals(options.directory)
    if totals is None or any(unaccounted(totals.books())):
        return None
    agents = [agent for agent in resolved.manifest.agents.values() if not choice.agents or agent.name in choice.agents]
    share = RunPart(manifest=resolved.manifest, agents=agents, choice=choice)
    planned = {(agent.name, suite.name): len(suite.instances) * len(share.replicates) for agent, suite in share.places}
    if any(_ended(totals.cells, place) != count for place, count in planned.items()):
        return None
    if not is_bucket(options.directory):
        refuse_damage(options.directory)
    books = totals.books().values()
    unmetered = together(totals.unmetered(), manifest)
    return RunOutcome(
        directory=options.directory,
        reason="complete",
        messages=tuple(filter(None, [unmetered.advice()])),
        episodes=sum(planned.values()),
        ended=sum(planned.values()),
        owed=0,
        unfinished=0,
        owed_cost=None,
        refused=0,
        broken=0,
        steps=0,
        elapsed_s=0.0,
        spent=spent(sum(cell.cost for cell in totals.cells.values()), books),
        unconfirmed=sum(account.crashed - account.confirmed for account in books),
        budget=sweep.budget,
        unmetered=unmetered,
        example=example_of(resolved.manifest, choice),
    )


def _ended(cells: Mapping[tuple[str, str], CellTotals], place: tuple[str, str]) -> int:
    cell = cells.get(place)
    return 0 if cell is None else cell.ended
