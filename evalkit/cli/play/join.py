"""`evalkit join`: work for a run whose coordinator is on this or on another machine."""

import argparse
import sys
from pathlib import Path

from evalkit.cli.pipes import unread
from evalkit.engine.listen import workers_token
from evalkit.engine.loop import run_loop
from evalkit.engine.machines.join import JoinOutcome, join_run
from evalkit.engine.machines.messages import JoinSettings
from evalkit.engine.machines.tcp import address_of, client_context
from evalkit.errors import UsageError
from evalkit.spec.reading import parse_span
from evalkit.spec.sweep import parse_workers
from evalkit.store.bucket import place_of

REMAINS = 3


def join(args: argparse.Namespace) -> int:
    """Work until the run ends; 0 if it has ended, 3 if its coordinator is gone or workers were lost."""
    directory = place_of(args.place)
    workers = parse_workers(args.workers, "--workers")
    if args.coordinator:
        address_of(args.coordinator, "--coordinator")
    authority = Path(args.authority).absolute() if args.authority else None
    if authority is not None:
        client_context(authority)
    token_file = Path(args.token_file).absolute() if args.token_file else None
    workers_token(directory, token_file)  # one that cannot be read is told now
    try:
        wait_s = parse_span(args.wait)
    except ValueError as flaw:
        raise UsageError(f"--wait: {flaw}.") from flaw
    settings = JoinSettings(
        token_file=str(token_file) if token_file else "",
        coordinator=args.coordinator,
        authority="" if authority is None else str(authority),
        wait_s=wait_s,
    )
    _tell(f"{workers} {'worker joins' if workers == 1 else 'workers join'} {directory}.")
    return _said(run_loop(join_run(directory, settings, workers, _tell)), args.place)


def _said(joined: JoinOutcome, place: str) -> int:
    """Say how it ended; the exit code."""
    if joined.orphaned:
        _tell(
            f"The coordinator of {place} is gone ({joined.orphaned}). What was committed is valid. Unless `evalkit "
            f"status {place}` says that the run is complete, start `evalkit run ... --on join` again, then join again."
        )
        return REMAINS
    if joined.refused and not joined.done:
        raise UsageError(joined.refused)
    if joined.lost:
        _tell(f"{joined.lost} of the workers ended on their own, again and again. `evalkit status {place}` says more.")
        return REMAINS
    _tell("The workers have left; others go on." if joined.left else "The run has ended.")
    return 0


def _tell(line: str) -> None:
    with unread(sys.stderr):
        print(line, file=sys.stderr, flush=True)
