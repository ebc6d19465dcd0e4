"""Simulates how often the intervals and tests of `evalkit report` and `evalkit compare` are right; writes the tables of
docs/statistics-methods.md below their marks.

    python -m docs.tools.coverage                 all tables, as many studies as each says (minutes)
    python -m docs.tools.coverage bounded killed  these tables alone
    python -m docs.tools.coverage --jobs 4        in four processes: the figures are the same

Each cell draws from a generator of its own, keyed by its names, so neither order nor number of processes matters. What
is tried is evalkit's own functions; `simulations.py` says what is drawn, `simulated.py` which tables.
"""

import argparse
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

import numpy as np

from docs.tools.simulated import TABLES
from docs.tools.simulations import Figures, Simulated

PAGE = Path(__file__).resolve().parent.parent / "statistics-methods.md"

_MARKED = re.compile(r'^\[//\]: # "coverage: (\w+), (\d+) studies"\n\n((?:\|.*\n)*)', re.MULTILINE)
"""A mark that no reader sees, and the table below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One table as the page has it."""

    studies: int
    cells: dict[tuple[str, str], list[float]]
    """By row and column: the numbers of the cell, in order."""


def generator(*names: str) -> np.random.Generator:
    """The draws of one cell."""
    key = hashlib.sha256("/".join(names).encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(key[:16], "little")))


def simulate(table: str, row: str, column: str, studies: int) -> Figures:
    """The figures of one cell."""
    found = TABLES[table]
    return found.cell(found.rows[row], found.columns[column], generator(table, row, column), studies)


def lines(cells: dict[tuple[str, str], Figures], table: Simulated) -> Iterator[str]:
    """The table as Markdown."""
    yield f"| {table.head} | " + " | ".join(table.columns) + " |"
    yield "|" + "---|" * (1 + len(table.columns))
    for row in table.rows:
        yield f"| {row} | " + " | ".join(table.shown(cells[row, column]) for column in table.columns) + " |"


def made(name: str, studies: int, jobs: int = 1) -> str:
    """One table with its marks, simulated."""
    table = TABLES[name]
    wanted = [(name, row, column, studies) for row in table.rows for column in table.columns]
    if jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            found = list(pool.map(simulate, *zip(*wanted, strict=True)))
    else:
        found = list(starmap(simulate, wanted))
    cells = {(row, column): figures for (_, row, column, _), figures in zip(wanted, found, strict=True)}
    return "\n".join([f'[//]: # "coverage: {name}, {studies} studies"', "", *lines(cells, table), ""])


def committed(text: str) -> dict[str, Committed]:
    """The tables of the page, by name."""
    found = {}
    for name, studies, body in _MARKED.findall(text):
        head, _, *rows = [[part.strip() for part in line.strip("|").split("|")] for line in body.splitlines()]
        cells = {
            (row[0], column): numbers(cell) for row in rows for column, cell in zip(head[1:], row[1:], strict=True)
        }
        found[name] = Committed(studies=int(studies), cells=cells)
    return found


def numbers(cell: str) -> list[float]:
    """The numbers of a cell, in order."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", cell)]


def errors(table: str, figures: Figures, shown: Sequence[float], quick: int, studies: int) -> list[float]:
    """For each number that a cell shows: the standard error of the difference between a quick try and the page."""
    used = TABLES[table].numbers
    return [_error(figures, used[place], number, quick, studies) for place, number in enumerate(shown)]


def _error(figures: Figures, of: tuple[int, ...], shown: float, quick: int, studies: int) -> float:
    spreads = [figures[place][1] for place in of]
    if any(map(math.isnan, spreads)):
        # A share, in percent: never taken to be surer than four more studies, two of them against it, would be.
        share = (max(0.0, min(100.0, shown)) / 100 * quick + 2) / (quick + 4)
        return 100 * math.sqrt(share * (1 - share)) * math.hypot(1 / math.sqrt(quick), 1 / math.sqrt(studies))
    # Of a ratio the relative errors add up.
    size = shown if len(of) > 1 else 1.0
    relative = math.hypot(
        *(spread / (abs(figures[place][0]) if len(of) > 1 else 1.0) for place, spread in zip(of, spreads, strict=True))
    )
    return size * relative * math.hypot(1 / math.sqrt(quick), 1 / math.sqrt(studies))


def placed(text: str, name: str, table: str) -> str:
    """The page with a table in its place. Raises ValueError where it has none, or several."""
    places = [found.span() for found in _MARKED.finditer(text) if found[1] == name]
    if len(places) != 1:
        raise ValueError(f"{PAGE.name} has {len(places)} places for the table {name}: one is wanted")
    ((first, last),) = places
    return text[:first] + table + text[last:]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the named tables, or all."""
    reader = argparse.ArgumentParser(description="Simulate the tables of docs/statistics-methods.md.")
    reader.add_argument("tables", nargs="*", choices=[*TABLES, []], help="which (default: all)")
    reader.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    asked = reader.parse_args(arguments)
    for name in asked.tables or TABLES:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(placed(text, name, made(name, TABLES[name].studies, asked.jobs)), encoding="utf-8")
        print(f"{name}: written", flush=True)


if __name__ == "__main__":
    main()
