"""Files that a command writes, replacing older ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.errors import UsageError

if TYPE_CHECKING:
    from evalkit.report.tables import Table


def write_csv(folder: Path, tables: "Sequence[Table]") -> None:
    """Write one CSV file per table into a folder, replacing older ones, and say so. Raises UsageError."""
    from evalkit.report.tables import as_csv

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in tables:
            (folder / f"{table.name}.csv").write_text(as_csv(table), encoding="utf-8", newline="")
    except OSError as flaw:
        raise UsageError(f"--csv: {folder} cannot be written: {flaw}") from flaw
    print(f"Wrote {len(tables)} tables to {folder}.")
