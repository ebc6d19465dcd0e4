"""`evalkit run`: start, resume or extend; then print the scores, the run's directory, and what to do next."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evalkit.cli.choosing import only_of, program, sweep_of
from evalkit.cli.display import display
from evalkit.cli.pipes import unread
from evalkit.engine.loop import finish
from evalkit.engine.outcome import RunOutcome
from evalkit.money import money_words, show_usd
from evalkit.playing.call import call_of
from evalkit.text import many


def run(args: argparse.Namespace) -> int:
    """Play the remaining episodes; exit codes are those of `main`."""
    from evalkit.nightly.hook import BudgetAlert, split_command

    with display(json_lines=args.json) as show:
        show.phase("reading the sweep and its suites")
        call = call_of(
            sweep_of(args),
            directory=args.dir,
            only=only_of(args.only),
            limit=args.limit,
            retry=[word for words in args.retry for word in words.split(",") if word],
            mark="--",
        )
        more = replace(
            call.options,
            repair=args.repair,
            play_all=args.play_all,
            announce=announce,
            phase=show.phase,
        )
        call = replace(call, options=more)
        hook = split_command(args.on_alarm) if args.on_alarm is not None else None
        alert = BudgetAlert(show, call.resolved.sweep, call.options.directory, hook)
        outcome = finish(lambda stop: call.play(stop, alert))
        told = alert.end()
    with unread(sys.stderr):
        print("".join(f"{line}\n" for line in told), end="", file=sys.stderr)
    with unread():
        _tell(outcome, args)
    return outcome.exit_code


def announce(lines: Sequence[str]) -> None:
    """Print to standard error what a repair drops, and what the run keeps although it has changed since."""
    with unread(sys.stderr):
        for line in lines:
            print(line, file=sys.stderr, flush=True)


def _tell(outcome: RunOutcome, args: argparse.Namespace) -> None:
    """Print how the call ended: explanations first, then the scores, then what went wrong and one line that sums up.

    The end of what is printed is what a terminal shows.
    """
    if args.json:
        import orjson

        print(orjson.dumps(outcome.to_json()).decode())
        return
    if outcome.steps and outcome.ended:  # what was already complete is not scored again
        _print_scores(outcome, args)
    elif not outcome.remaining or outcome.reason == "decided":
        print(_hints(outcome, args), end="\n\n")
    for line in outcome.messages:
        print(line)
    print(_summary(outcome))
    if outcome.remaining and outcome.reason != "decided":
        print(_remedy(outcome, args))


def _print_scores(outcome: RunOutcome, args: argparse.Namespace) -> None:
    from evalkit.report.render.terminal import console, print_bare, print_notes
    from evalkit.report.report import report

    scores, to = report(outcome.place).tables[0], console()
    print_notes(scores, to)
    if not outcome.remaining or outcome.reason == "decided":
        print(f"\n{_hints(outcome, args)}")
    to.print()
    print_bare(scores, to)
    to.print()


def _summary(outcome: RunOutcome) -> str:
    money = money_words(outcome.spent, outcome.budget, outcome.simulated)
    if outcome.unconfirmed:
        money += f", {show_usd(outcome.unconfirmed)} of it unconfirmed crash charges"
    done = f"{outcome.ended:,} of {many(outcome.episodes, 'episode')} ended"
    if outcome.reason == "decided":
        worth = f", about {show_usd(outcome.spared_cost)} worth," if outcome.spared_cost else ""
        done += f", {outcome.spared:,}{worth} were spared: every question is answered (`--play-all` plays them)"
    elif outcome.remaining:
        done += f", {outcome.remaining:,} remain{'' if outcome.remaining > 1 else 's'}"
    return f"{done}; {many(outcome.steps, 'step')} in {outcome.elapsed_s:,.1f} s; {money}."


def _remedy(outcome: RunOutcome, args: argparse.Namespace) -> str:
    directory = shlex.quote(str(outcome.directory))
    reason = "" if outcome.reason == "budget" and outcome.budget is None else outcome.reason  # an agent's own was meant
    more = MORE["errors"] if outcome.remaining == outcome.broken else MORE.get(reason, "")
    return f"Everything so far is on disk in {directory}. Continue with:\n  {_again(args, more)}"


def _hints(outcome: RunOutcome, args: argparse.Namespace) -> str:
    directory, evalkit = shlex.quote(str(outcome.directory)), program()
    hints = [
        (f"{evalkit} report {directory}", "every table"),
        (f"{evalkit} show {directory} {shlex.quote(outcome.example)}", "one trajectory"),
        (f"{evalkit} verify {directory}", "replay the log"),
    ]
    if Path(args.sweep).stem == FIRST_SWEEP:
        hints.append((f"{evalkit} new runs/mine.toml", "your own sweep"))
    room = max(len(command) for command, _ in hints) + 2
    return f"The run is in {directory}. Next:\n" + "\n".join(f"  {command:<{room}}{why}" for command, why in hints)


FIRST_SWEEP = "quickstart"

MORE = {"budget": " --budget MORE", "corrupt": " --repair", "errors": " --retry internal_error"}
"""By the reason of an outcome: what the next call needs in addition."""


def _again(args: argparse.Namespace, more: str) -> str:
    """The command that resumes this run; `more`: what it needs in addition."""
    words = ["run", args.sweep]
    for option in ("name", "dir", "budget", "deadline", "workers", "on"):
        if getattr(args, option) and not more.startswith(f" --{option}"):
            words += [f"--{option.replace('_', '-')}", str(getattr(args, option))]
    for option in ("set", "only"):
        for value in getattr(args, option):
            words += [f"--{option}", value]
    return f"{program()} {shlex.join(words)}{more}"
