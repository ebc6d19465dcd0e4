"""`evalkit nightly`: play tonight within its budget and deadline, then print trends, and an alarm if a score dropped.

Exit codes are those of `run`, except: 4 if tonight has an alarm, 5 if it has no score at all, and 0 if episodes remain
only because of budget or deadline, since the next night plays them.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, NoReturn

from evalkit.cli.choosing import choice_of, program, sweep_of
from evalkit.cli.pipes import unread
from evalkit.engine.freezing.freeze import ResolvedSweep, resolve
from evalkit.engine.outcome import COMPLETE, INCOMPLETE, INTERRUPTED, REFUSED, RunOutcome
from evalkit.errors import EvalkitError, RunError, UsageError
from evalkit.files import write_whole
from evalkit.money import money_words, usd_number
from evalkit.nightly.history_files import (
    FOLDER,
    accepted,
    derive,
    nights,
    note,
    read_history,
    read_journal,
    rebuild,
    told,
)
from evalkit.nightly.night import parse_date
from evalkit.report.nights.history import NightRecord, Rule, taken
from evalkit.store.lock import hold_run
from evalkit.text import many

ALARM, NO_MEASUREMENT = 4, 5
MOST_TOLERANCE = 100.0
CUT = frozenset({"budget", "deadline"})
"""Reasons of an outcome that are a night's own limits."""


def nightly(args: argparse.Namespace) -> int:
    """Play tonight, or only show the nights; exit codes as above."""
    from evalkit.nightly.hook import split_command

    sweep = sweep_of(args)
    folder = Path("runs") / sweep.name / FOLDER
    rule = _rule(args)
    hook = split_command(args.on_alarm) if args.on_alarm is not None else None
    if args.date is not None:
        parse_date(args.date)
    if args.html is not None and not Path(args.html).parent.is_dir():
        raise UsageError(f"--html: {args.html} cannot be written: there is no folder {Path(args.html).parent}.")
    if args.look or args.rebuild or args.accept:
        return _without_playing(args, resolve(sweep) if args.accept else None, sweep.name, folder, rule)
    resolved = resolve(sweep)
    with hold_run(folder):
        return _play(args, resolved, folder, rule, hook)


def _play(
    args: argparse.Namespace, resolved: ResolvedSweep, folder: Path, rule: Rule, hook: Sequence[str] | None
) -> int:
    from evalkit.cli.display import display
    from evalkit.cli.play.run import announce
    from evalkit.engine.loop import run_loop
    from evalkit.nightly.hook import BudgetAlert
    from evalkit.nightly.night import NightOptions, play_night
    from evalkit.playing.call import launch

    with display(json_lines=args.json) as show, chdir("."):  # agents' code may leave it
        options = NightOptions(
            directory=folder.parent,
            date=args.date,
            rule=rule,
            repair=args.repair,
            launch=launch,
            announce=announce,
            phase=show.phase,
        )
        alert = BudgetAlert(show, resolved.sweep, folder.parent, hook)
        done = run_loop(play_night(resolved, options, alert))
        told = alert.end()
    record, outcome = done.record, done.outcome
    code = _code(outcome, record)
    lines = [f"{done.night}: {done.idle}. Nothing to do."] if outcome is None else [*told, *outcome.messages]
    if outcome is not None and record is not None:
        lines.insert(0, _summary(record, outcome))
    if record is None or code in (INTERRUPTED, REFUSED):
        print("\n".join([*lines, f"{done.night} is not complete. The same command resumes it."]))
        return code
    refused = sum(sum(cell.gone.values()) for cell in record.cells)
    if refused:
        lines.append(f"{refused:,} of {many(record.planned, 'episode')}: refused by their provider, and not scored.")
    if record.remaining > refused:
        lines.append(
            f"{record.remaining - refused:,} of {many(record.planned, 'episode')} to go. "
            "The next night starts with them."
        )
    raised = _tell(args, resolved.sweep.name, folder, done.history, lines, hook)
    return ALARM if raised else code if record.measured else NO_MEASUREMENT


def _code(outcome: RunOutcome | None, record: NightRecord | None) -> int:
    """The exit code without alarms. A night that ends at its own limits is normal if at least one episode ended."""
    cut = outcome is None or (outcome.exit_code == INCOMPLETE and outcome.reason in CUT)
    if cut and record is not None:
        return COMPLETE if record.remaining < record.planned else INCOMPLETE
    return INCOMPLETE if outcome is None else outcome.exit_code


def _summary(record: NightRecord, outcome: RunOutcome) -> str:
    money = money_words(record.spent, outcome.budget, outcome.simulated)
    ended = record.planned - record.remaining
    return (
        f"{record.night}: {ended:,} of {many(record.planned, 'episode')} ended; {many(outcome.steps, 'step')}; {money}."
    )


def _without_playing(
    args: argparse.Namespace, resolved: ResolvedSweep | None, name: str, folder: Path, rule: Rule
) -> int:
    """`--look`, `--rebuild`, `--accept`: no requests are sent."""
    if args.look:  # allowed while a night is played
        history = read_history(folder)
        if not history:
            _refuse_nothing(args, folder)
        return _code_of_last(history, raised=_tell(args, name, folder, history, (), None))
    if not nights(folder):
        _refuse_nothing(args, folder)
    lines: list[str] = []
    with hold_run(folder):
        if args.rebuild:
            history, kept = rebuild(folder, rule)
            lines.append(
                f"{folder / 'history.jsonl'}: {many(len(history) - len(kept), 'night')} rebuilt from the logs."
            )
            if kept:
                lines.append(f"Kept unchanged, since their logs are missing: {', '.join(kept)}.")
        else:
            history = derive(folder, read_history(folder), (), rule)
        if resolved is not None:
            lines.append(_accept(args.accept, resolved, folder, history[-1]))
        return _code_of_last(history, raised=_tell(args, name, folder, history, lines, None))


def _code_of_last(history: Sequence[NightRecord], *, raised: bool) -> int:
    return ALARM if raised else COMPLETE if history[-1].measured else NO_MEASUREMENT


def _refuse_nothing(args: argparse.Namespace, folder: Path) -> NoReturn:
    if nights(folder):
        raise RunError(
            f"{folder} has nights but no history. Rebuild it from their logs: "
            f"{program()} nightly {shlex.quote(args.sweep)} --rebuild"
        )
    raise RunError(f"{folder} has no night that was played. Play one: {program()} nightly {shlex.quote(args.sweep)}")


def _accept(words: list[str], resolved: ResolvedSweep, folder: Path, last: NightRecord) -> str:
    choice = choice_of([] if words == ["all"] else words, resolved.manifest, "--accept")
    suites = {suite.name for suite in resolved.manifest.suites.values() if choice.takes_suite(suite)}
    cells = [
        cell.cell for cell in last.cells if cell.suite in suites and (not choice.agents or cell.agent in choice.agents)
    ]
    if not cells:
        raise UsageError(f"--accept: the night {last.night} has no such cell.")
    note(folder, "accepted", last.night, cells=cells)
    done = (
        "1 cell is accepted at its current level"
        if len(cells) == 1
        else f"{many(len(cells), 'cell is', 'cells are')} accepted at the current level"
    )
    return f"{done}: later nights are compared with {last.night} and the nights after it."


def _tell(
    args: argparse.Namespace,
    name: str,
    folder: Path,
    history: Sequence[NightRecord],
    lines: Sequence[str],
    hook: Sequence[str] | None,
) -> bool:
    """Print the last night, call the hook, write the page; whether there is an alarm."""
    from evalkit.nightly.hook import facts, message, unmeasured

    last = taken(history[-1], accepted(read_journal(folder)))
    history = [*history[:-1], last]
    about = facts(name, folder / last.night, last.night, last.raised, history)
    with unread():
        if args.json:
            _print_json(about, last, lines)
        else:
            from evalkit.report.nights.trends import trend_table
            from evalkit.report.render.terminal import console, print_table

            print_table(trend_table(history), console())
            print()
            calm = ["No alarm."] if last.measured else ["no measurement: this night says nothing of any agent."]
            print("\n".join([*lines, *unmeasured(last), *(message(about) or calm)]))
    done = [] if hook is None else _call(hook, folder, about)
    if args.html is not None:
        from evalkit.view.home import nights_page

        try:
            write_whole(Path(args.html), nights_page(name, folder, history).encode())
            done.append(f"Wrote {args.html}.")
        except OSError as flaw:
            # Only a message: the exit code remains that of the night.
            print(f"evalkit: --html: {args.html} cannot be written: {flaw.strerror}.", file=sys.stderr)
    with unread():
        print("".join(f"{line}\n" for line in done if not args.json), end="")
    return bool(last.raised or last.rises)


def _call(hook: Sequence[str], folder: Path, about: dict[str, Any]) -> list[str]:
    """Call the hook once for the alarms that are new tonight; the line that says so. A failure is reported; the next
    call tries again."""
    from evalkit.nightly.hook import call_hook

    night = str(about["night"])
    new = [(alarm["agent"], alarm["suite"]) for alarm in about["alarms"] if alarm["new"]]
    if not set(new) - told(read_journal(folder), night):
        return []
    try:
        call_hook(hook, about)
    except EvalkitError as error:
        print(f"evalkit: {error}", file=sys.stderr)
        return []
    note(folder, "told", night, cells=new)
    return [f"--on-alarm: {hook[0]} was told of {len(new):,} new alarm{'s' if len(new) > 1 else ''}."]


def _print_json(about: dict[str, Any], last: NightRecord, lines: Sequence[str]) -> None:
    import msgspec

    cells = [
        {"agent": cell.agent, "suite": cell.suite, "score": cell.score, "low": cell.low, "high": cell.high}
        | {
            "instances": len(cell.values),
            "remaining": cell.remaining,
            "cost_usd": usd_number(cell.cost),
            "served": cell.served,
        }
        | {"visible_fall": None if cell.visible is None else 100 * cell.visible}
        | {"refused": sum(cell.gone.values()), "unmeasured": cell.why_unmeasured}
        for cell in last.cells
    ]
    more = {
        "measured": last.measured,
        "episodes": last.planned,
        "remaining": last.remaining,
        "spent_usd": usd_number(last.spent),
        "messages": lines,
    }
    print(msgspec.json.encode({**about, **more, "cells": cells}).decode())


def _rule(args: argparse.Namespace) -> Rule:
    if not 0 <= args.tolerance <= MOST_TOLERANCE:
        raise UsageError(f"--tolerance: must be 0 to {MOST_TOLERANCE:g}, not {args.tolerance:g}.")
    return Rule(tolerance=args.tolerance / 100)
