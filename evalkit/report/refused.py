"""What tables say of episodes that the provider refused: how many, what the mean would be with them, its words.

They are in no mean and no interval (`results/cells.py`), so a reader must see how much that can matter.
"""

from collections.abc import Iterable
from typing import Any

from evalkit.report.tables import Column
from evalkit.results.cells import Cell
from evalkit.results.endings import most_said
from evalkit.text import bounded

REFUSED = "refused: "
"""What a note of such a cell begins with."""

NOTES = 4
"""Cells that are named; the others are counted."""
_WORDS = 300


def refused_columns(cells: Iterable[Cell]) -> tuple[Column, ...]:
    """Columns beside a mean; none if nothing was refused."""
    if not any(cell.refused for cell in cells):
        return ()
    return (
        Column(key="refused", title="Refused", kind="count", unit="episodes, not scored"),
        Column(key="if_refused", title="If refused 0, 100", kind="interval", unit="the score"),
    )


def refused_figures(cell: Cell) -> dict[str, Any]:
    """Their values: how many, and the mean in points if all of them scored 0 and if all scored 100."""
    ends = cell.if_refused
    return {
        "refused": len(cell.refused) or None,
        "if_refused": None if ends is None else (100 * ends[0], 100 * ends[1]),
    }


def refused_notes(cells: Iterable[Cell]) -> list[str]:
    """One line for each cell with such episodes."""
    having = [cell for cell in cells if cell.refused]
    notes = [f"{REFUSED}{cell.agent} on {cell.suite.name}: {_told(cell)}" for cell in having]
    more = len(notes) - NOTES
    return notes if more <= 0 else [*notes[:NOTES], f"{REFUSED}{more:,} more rows; see the table of completeness"]


def _told(cell: Cell) -> str:
    refused, (low, high) = cell.refused, cell.if_refused or (0.0, 0.0)
    many = "1 episode" if len(refused) == 1 else f"{len(refused):,} episodes"
    words = bounded(most_said(episode.said for episode in refused), _WORDS)
    return (
        f"{many} without a score, in no mean; if all had scored 0 or 100, the mean would be "
        f"{100 * low:.1f} or {100 * high:.1f}; the provider said: {words}"
    )
