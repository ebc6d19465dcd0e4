"""The ended episodes of a run, from its log alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def ended_rows(run: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The last row of each episode that has ended, in the order of their ids; `columns` with `ending` among them."""
    from pyarrow import compute

    from evalkit.store.reading.reader import scan

    log = scan(run, columns)
    rows: list[dict[str, Any]] = log.filter(compute.not_equal(log.column("ending"), "")).to_pylist()
    return rows
