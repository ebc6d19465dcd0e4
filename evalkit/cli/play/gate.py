"""`evalkit gate`: play what is needed to know whether a sweep's agents are worse than old ones; stop when it is known.

Exit codes are those of `run`, except: 0 pass, 4 fail, 3 undecided, as far as the policy does not count that otherwise.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from evalkit.cli.choosing import program, sweep_of
from evalkit.cli.display import display
from evalkit.cli.pipes import unread
from evalkit.cli.play.run import announce
from evalkit.engine.loop import finish
from evalkit.errors import UsageError
from evalkit.files import write_whole
from evalkit.gating.baseline import paired, read_baseline
from evalkit.gating.gate import GateOutcome, play_gate
from evalkit.playing.call import call_of
from evalkit.store.bucket import place_of

MOST_MARGIN = 100.0


def gate(args: argparse.Namespace) -> int:
    """Play, and print the verdict; exit codes as above."""
    import msgspec

    sweep = sweep_of(args)
    policy = sweep.gate
    if args.margin is not None:
        if not 0 < args.margin < MOST_MARGIN:
            raise UsageError(f"--margin: must be above 0 and below {MOST_MARGIN:g} points, not {args.margin:g}.")
        policy = msgspec.structs.replace(policy, margin=args.margin, margins={})
    for option in ("junit", "markdown"):
        path = getattr(args, option)
        if path is not None and not Path(path).parent.is_dir():
            raise UsageError(f"--{option}: {path} cannot be written: there is no folder {Path(path).parent}.")
    if not args.name:
        sweep = replace(sweep, name=f"{sweep.name}-gate")
    with display(json_lines=args.json) as show:
        show.phase("reading the sweep, its suites and the old scores")
        call = call_of(sweep, mark="--")
        baseline = read_baseline(args.against, call.resolved, scores=not args.again)
        if (
            baseline.manifest is not None
            and Path(args.against).exists()
            and place_of(args.against) == call.options.directory
        ):
            raise UsageError(f"--against: {args.against} is where this gate's own run is. Name its run with --name.")
        pairs = paired(baseline, call.resolved, args.agent)
        options = replace(call.options, announce=announce, phase=show.phase)
        gated = finish(
            lambda stop: play_gate(
                call.resolved, baseline, pairs, policy, replace(options, stop=stop), show, again=args.again
            )
        )
    with unread():
        _tell(gated, args)
    _write(gated, args)
    return gated.exit_code


def _tell(gated: GateOutcome, args: argparse.Namespace) -> None:
    if args.json:
        import orjson

        print(orjson.dumps(gated.to_json()).decode())
        return
    from evalkit.gating.told import figure_lines, gate_table, money_line
    from evalkit.report.render.terminal import console, print_table
    from evalkit.text import visible

    if gated.checks:
        to = console()
        print_table(gate_table(gated), to)
        lines = figure_lines(gated.checks)
        if lines and max(map(len, lines)) <= to.width:
            print("", *lines, sep="\n")
        print()
    for line in gated.outcome.messages if gated.verdict == "undecided" else ():
        print(line)
    if gated.outcome.episodes:
        print(money_line(gated))
        print(f"The run is in {gated.outcome.directory}: `{program()} report`, `show` and `verify` read it.")
    counts = gated.policy.undecided
    print(visible(gated.sentence) + f" This counts as {counts}." * (gated.verdict == "undecided" != counts))


def _write(gated: GateOutcome, args: argparse.Namespace) -> None:
    """The files that were asked for; a failure is told and changes no exit code."""
    from evalkit.gating.told import gate_markdown, junit

    for option, made in (("junit", junit), ("markdown", gate_markdown)):
        path = getattr(args, option)
        if path is None:
            continue
        try:
            write_whole(Path(path), made(gated))
        except OSError as flaw:
            print(f"evalkit: --{option}: {path} cannot be written: {flaw.strerror}.", file=sys.stderr)
