"""`evalkit tools reconcile` releases what the provider did not bill."""

import argparse
import asyncio
from pathlib import Path

import orjson

from evalkit.api.specs import run_directory
from evalkit.engine.spending.reconcile import reconcile_total, reconcile_usage
from evalkit.engine.spending.usage import read_usage
from evalkit.errors import UsageError
from evalkit.money import parse_usd, show_usd
from evalkit.text import many


def reconcile(args: argparse.Namespace) -> int:
    """Compare a run's books with what was billed, and release the difference."""
    run = run_directory(args.run)
    if (args.usage is None) == (args.lane is None) or (args.lane is None) != (args.spent is None):
        raise UsageError("tools reconcile: give either --usage FILE, or --lane PROVIDER/MODEL and --spent USD.")
    if args.lane is None:
        outcome = asyncio.run(reconcile_usage(run, read_usage(Path(args.usage))))
    else:
        try:
            truth = parse_usd(args.spent)
        except ValueError as flaw:
            raise UsageError(f"--spent: {flaw}.") from flaw
        outcome = asyncio.run(reconcile_total(run, args.lane, truth))
    if args.json:
        values = {
            "version": 1,
            "run": str(run),
            "before_pico_usd": outcome.before,
            "after_pico_usd": outcome.after,
            "released_pico_usd": outcome.released,
            "releases": outcome.rows,
            "billed_pico_usd": outcome.billed,
            "flaws": list(outcome.flaws),
            "foreign": outcome.foreign,
        }
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
        return 0
    print(
        f"{show_usd(outcome.released)} released in {many(outcome.rows, 'row')}: {show_usd(outcome.before)} spent "
        f"before, {show_usd(outcome.after)} now. The usage sums to {show_usd(outcome.billed)}."
    )
    for line in outcome.flaws:
        print(line)
    if outcome.foreign:
        print(f"{many(outcome.foreign, 'request')} of the usage: not of this run, and ignored.")
    return 0
