"""`evalkit tools reconcile` releases what the provider did not bill."""

import argparse
import asyncio

import orjson

from evalkit.engine.spending.reconcile import reconcile as release
from evalkit.errors import UsageError
from evalkit.money import parse_usd, show_usd
from evalkit.playing.specs import run_directory
from evalkit.text import many


def reconcile(args: argparse.Namespace) -> int:
    """Compare a run's books with what was billed, and release the difference."""
    run = run_directory(args.run)
    try:
        truth = parse_usd(args.spent)
    except ValueError as flaw:
        raise UsageError(f"--spent: {flaw}.") from flaw
    outcome = asyncio.run(release(run, args.lane, truth))
    if args.json:
        values = {
            "version": 1,
            "run": str(run),
            "before_pico_usd": outcome.before,
            "after_pico_usd": outcome.after,
            "released_pico_usd": outcome.released,
            "releases": outcome.rows,
            "billed_pico_usd": truth,
        }
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
        return 0
    print(
        f"{show_usd(outcome.released)} released in {many(outcome.rows, 'row')}: {show_usd(outcome.before)} spent "
        f"before, {show_usd(outcome.after)} now. The provider billed {show_usd(truth)}."
    )
    return 0
