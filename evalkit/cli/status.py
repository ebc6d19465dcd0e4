"""`evalkit status`: what a run holds, owes and has spent."""

import argparse

from evalkit.cli.choosing import run_directory
from evalkit.money import show_usd
from evalkit.run.status import Status, read_status


def status(args: argparse.Namespace) -> int:
    """Print the status."""
    found = read_status(run_directory(args.run))
    if args.json:
        import orjson

        print(orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(found)
    return 0


def _print(found: Status) -> None:
    from rich.table import Table

    from evalkit.report.terminal import NO_BREAK
    from evalkit.report.terminal import console as console_of

    console = console_of()
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("suite", overflow="fold")
    table.add_column("agent", overflow="fold")
    for column in ("planned", "ended", "begun", "steps", "spent"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("endings")
    above = ""
    for cell in found.cells:
        endings = ", ".join(f"{name}{NO_BREAK}{count:,}" for name, count in cell.endings.items())
        counts = (cell.planned, cell.ended, cell.started, cell.steps)
        suite = cell.suite if cell.suite != above else ""
        table.add_row(suite, cell.agent, *(f"{count:,}" for count in counts), show_usd(cell.cost), endings)
        above = cell.suite
    console.print(table)
    console.print()
    for line in _words(found):
        console.print(line, highlight=False)


def _words(found: Status) -> list[str]:
    planned, ended = sum(cell.planned for cell in found.cells), sum(cell.ended for cell in found.cells)
    if found.written_by is not None:
        state = f"being written by process {found.written_by.pid} on {found.written_by.host}"
    else:
        state = "complete" if ended == planned else "not running"
    money = [f"{show_usd(found.spent)} spent: {show_usd(found.steps_cost)} for replies"]
    if found.charges:
        money.append(f"{show_usd(found.charges)} charged for attempts whose cost nobody knows")
    if found.crash_charges:
        money.append(f"{show_usd(found.crash_charges)} for what crashes may have left in flight (unconfirmed)")
    return [f"{found.name}: {ended:,} of {planned:,} episodes ended, {state}.", ", ".join(money) + "."]
