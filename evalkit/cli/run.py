"""`evalkit run`: start, resume or extend; then the scores, where the run lies, and what to do next."""

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from pathlib import Path

from evalkit.cli.choosing import choice_of, sweep_of
from evalkit.errors import UsageError
from evalkit.money import show_usd
from evalkit.run.freeze import resolve
from evalkit.run.outcome import INTERRUPTED, Outcome
from evalkit.run.sweep import RunOptions, run_sweep
from evalkit.spec.model import Provider


def run(args: argparse.Namespace) -> int:
    """Play what is missing; exit codes are those of `main`."""
    from evalkit.cli.display import display

    sweep = sweep_of(args)
    resolved = resolve(sweep)
    if args.limit is not None and args.limit < 1:
        raise UsageError("--limit: must be at least 1.")
    options = RunOptions(
        directory=Path(args.dir) if args.dir else Path("runs") / sweep.name,
        choice=choice_of(args.only, resolved),
        limit=args.limit,
        retry=frozenset(word for words in args.retry for word in words.split(",")),
        repair=args.repair,
        launch=_launch,
    )
    with display(json_lines=args.json) as show:
        outcome = _loop_run(run_sweep(resolved, options, show))
    _tell(outcome, args)
    return outcome.exit_code


def _loop_run(coroutine: Coroutine[None, None, Outcome]) -> Outcome:
    """Run on uvloop where it is there: it takes a quarter off the cost of a request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)


def _launch(provider: Provider, run_directory: Path) -> AbstractContextManager[str]:
    from evalkit.serve.launch import simulated

    assert provider.simulate is not None
    bill = {"bill": str(run_directory / f"bill-{provider.name}.jsonl")}
    return simulated({**bill, **provider.simulate}, where=f"providers/{provider.name}.toml: simulate")


def _tell(outcome: Outcome, args: argparse.Namespace) -> None:
    from evalkit.report.report import report
    from evalkit.report.terminal import print_report

    if args.json:
        import orjson

        print(orjson.dumps(outcome.to_json()).decode())
        return
    if outcome.ended:
        print_report(report(outcome.directory), brief=True)
    print(_summary(outcome))
    for line in outcome.messages:
        print(f"  {line}", file=sys.stderr)
    print(_next(outcome, args))


def _summary(outcome: Outcome) -> str:
    spent = show_usd(outcome.spent)
    money = f"{spent} spent" if outcome.budget is None else f"{spent} of {show_usd(outcome.budget)} spent"
    if outcome.unconfirmed:
        money += f", {show_usd(outcome.unconfirmed)} of it unconfirmed crash charges"
    done = f"{outcome.ended:,} of {outcome.episodes:,} episodes ended"
    return f"{done}; {outcome.steps:,} steps in {outcome.elapsed_s:,.1f} s; {money}."


def _next(outcome: Outcome, args: argparse.Namespace) -> str:
    where = outcome.directory
    if outcome.exit_code == INTERRUPTED:
        return f"Interrupted; everything is on disk in {where}. Go on with: evalkit run {args.sweep}"
    if outcome.owed:
        return f"{outcome.owed:,} episodes are owed ({outcome.reason}). Go on with: evalkit run {args.sweep}"
    return (
        f"The run lies in {where}. Next:\n"
        f"  evalkit report {where}          all tables: scores, behaviour, money\n"
        f"  evalkit show {where} {outcome.example}\n"
        "                                 one trajectory, step by step\n"
        f"  evalkit verify {where}          replay every episode against the log"
    )
