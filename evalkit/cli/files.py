"""Files that a command makes for the user: never over one that is there, but for tables made anew."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.errors import UsageError

if TYPE_CHECKING:
    from evalkit.report.tables import Table


def new_file(name: str, ending: str, what: str) -> Path:
    """Where `what` is to be written. Raises UsageError for another ending, and where something is there already."""
    path = Path(name)
    if path.suffix != ending:
        raise UsageError(f"{path}: {what} ends in {ending}.")
    if path.exists():
        raise UsageError(f"{path} exists already; nothing was written. Choose another name.")
    return path


def write_new(path: Path, text: str) -> None:
    """Write a text to a file that is not there yet, with the folders above it. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as flaw:
        raise UsageError(f"{path} cannot be written: {flaw.strerror or flaw}.") from flaw


def write_csv(folder: Path, tables: "Sequence[Table]") -> None:
    """Write one CSV file a table into a folder, over those of before, and say so. Raises UsageError."""
    from evalkit.report.tables import as_csv

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in tables:
            (folder / f"{table.name}.csv").write_text(as_csv(table), encoding="utf-8", newline="")
    except OSError as flaw:
        raise UsageError(f"--csv: {folder} cannot be written: {flaw}") from flaw
    print(f"Wrote {len(tables)} tables to {folder}.")
