"""What a directory holds in which a run is to be played."""

from pathlib import Path

from evalkit.errors import RunError
from evalkit.store.manifest import Manifest
from evalkit.store.manifests import is_run, read_manifest

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
