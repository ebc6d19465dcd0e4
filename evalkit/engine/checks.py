"""What is checked of a call of `run` before its run is opened: keys, who plays, and the directory."""

from pathlib import Path

from evalkit.client.keys import check_key, servers_of
from evalkit.engine.freezing.freeze import ResolvedSweep
from evalkit.engine.universe import Choice, lanes
from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.frozen.manifests import is_run, read_manifest
from evalkit.policy.table import find_policy


def check_outside(resolved: ResolvedSweep, choice: Choice) -> None:
    """Raises UsageError if a chosen agent is played from outside."""
    for agents in lanes(resolved.manifest, choice).values():
        for agent in agents:
            policy = find_policy(agent.policy, next(iter(agent.packs))) if agent.policy else None
            if policy is not None and policy.outside is not None:
                raise UsageError(
                    f"The agent {agent.name!r} is played from outside: use `{policy.outside}`, and choose others with "
                    "`--only agent=NAME`."
                )


def check_keys(resolved: ResolvedSweep, choice: Choice) -> None:
    """Raises UsageError if a key is missing that the chosen agents need, or a variable of a provider's URL."""
    for endpoint in resolved.chosen(choice.agents).values():
        check_key(endpoint.provider)
        servers_of(endpoint.provider)


# What a directory holds in which a run is to be played.

OWN = {
    *("lock", "lead", "manifest", "suites", "spec", "log", "steps", "ledger"),
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
