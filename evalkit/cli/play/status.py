"""`evalkit status`: a run's progress and cost; what was predicted, and what it takes to finish."""

import argparse
from typing import TYPE_CHECKING

from evalkit.api.specs import run_directory
from evalkit.cli.plan_words import show_span
from evalkit.engine.forecast import Range
from evalkit.engine.status import CellStatus, Status, read_status
from evalkit.money import show_usd

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 110
"""The least columns for showing each cell's range and time."""
NAME = 18
"""Names up to this many columns are never broken."""


def status(args: argparse.Namespace) -> int:
    """Print the status."""
    status = read_status(run_directory(args.run))
    if args.json:
        import orjson

        print(orjson.dumps(status.to_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(status)
    return 0


def _print(status: Status) -> None:
    from rich.table import Table

    from evalkit.report.render.terminal import NO_BREAK
    from evalkit.report.render.terminal import console as console_of

    console = console_of()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column, names in (
        ("suite", [cell.suite for cell in status.cells]),
        ("agent", [cell.agent for cell in status.cells]),
    ):
        # Endings break before names do.
        table.add_column(column, overflow="fold", min_width=min(NAME, max(map(len, names), default=0)))
    for column in ("planned", "ended", "begun", "steps", "spent"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("endings")
    above = ""
    for cell in status.cells:
        endings = ", ".join(f"{name}{NO_BREAK}{count:,}" for name, count in cell.endings.items())
        counts = (cell.planned, cell.ended, cell.started, cell.steps)
        suite = cell.suite if cell.suite != above else ""
        table.add_row(suite, cell.agent, *(f"{count:,}" for count in counts), show_usd(cell.cost), endings)
        above = cell.suite
    console.print(table)
    paid = [cell for cell in status.cells if cell.predicted is not None]
    if paid:
        console.print()
        console.print(_predictions(paid, wide=console.width >= WIDE))
    console.print()
    for line in _words(status):
        console.print(line, highlight=False)


def _predictions(cells: list[CellStatus], *, wide: bool) -> "Table":
    """An average episode as predicted and as observed, and what the remaining episodes need."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("suite", overflow="fold")
    table.add_column("agent", overflow="fold")
    for column in ("predicted", "seen", "requests", "seen", "left", "to finish"):
        table.add_column(column, justify="right", no_wrap=True)
    if wide:
        table.add_column("95 % range", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
    above = ""
    for cell in cells:
        assert cell.predicted is not None
        seen = ("-", "-") if cell.seen is None else (show_usd(round(cell.seen.cost)), f"{cell.seen.requests:,.1f}")
        row = [
            cell.suite if cell.suite != above else "",
            cell.agent,
            show_usd(round(cell.predicted.cost)),
            seen[0],
            f"{cell.predicted.requests:,.1f}",
            seen[1],
            f"{cell.owed:,}" if cell.owed else "",
            show_usd(round(cell.to_finish.expected)) if cell.owed else "",
        ]
        if wide:
            known = cell.owed and cell.seconds_left is not None
            row += [_range(cell.to_finish) if cell.owed else "", show_span(cell.seconds_left or 0.0) if known else ""]
        table.add_row(*row)
        above = cell.suite
    return table


def _range(amount: Range) -> str:
    return f"{show_usd(round(amount.low))} to {show_usd(round(amount.high))}"


def _words(status: Status) -> list[str]:
    planned, ended = sum(cell.planned for cell in status.cells), sum(cell.ended for cell in status.cells)
    if status.written_by is not None:
        state = f"being written by process {status.written_by.pid} on {status.written_by.host}"
    else:
        state = "complete" if ended == planned else "not running"
    money = [f"{show_usd(status.spent)} spent: {show_usd(status.steps_cost)} for replies"]
    if status.charges:
        money.append(f"{show_usd(status.charges)} charged for attempts whose cost nobody knows")
    if status.crash_charges:
        money.append(f"{show_usd(status.crash_charges)} for what crashes may have left in flight (unconfirmed)")
    lines = [f"{status.name}: {ended:,} of {planned:,} episodes ended, {state}.", ", ".join(money) + "."]
    if status.unmetered.replies:
        lines.append(status.unmetered.advice())
    if ended < planned:
        lines.append(_finish(status))
    return [*lines, *status.kept]


def _finish(status: Status) -> str:
    words = f"To finish: {show_usd(round(status.to_finish.expected))}"
    if status.to_finish.expected:
        words += f" ({_range(status.to_finish)})"
    if status.seconds_left is not None:
        slowest = max(status.lane_seconds, key=lambda lane: status.lane_seconds[lane])
        words += f", about {show_span(status.seconds_left)} at the rate so far"
        words += f" ({slowest} takes longest)" if len(status.lane_seconds) > 1 else ""
    return words + "."
