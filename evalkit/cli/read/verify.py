"""`evalkit verify`: replay every episode and compare it with the log."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.api.specs import run_directory
from evalkit.errors import CorruptLogError, StorageError

if TYPE_CHECKING:
    from evalkit.results.verify import Finding

SHOWN = 50


def verify(args: argparse.Namespace) -> int:
    """Print what differs; return 0 if nothing does, else 1."""
    from evalkit.results.verify import verify as check

    directory = run_directory(args.run)
    findings = [*check(directory), *_beside(directory)]
    if args.json:
        import orjson

        print(orjson.dumps({"version": 1, "findings": findings}, option=orjson.OPT_INDENT_2).decode())
    else:
        for finding in findings[:SHOWN]:
            print(finding)
        if len(findings) > SHOWN:
            print(f"... and {len(findings) - SHOWN:,} more.")
        print(
            f"{directory}: {'every episode replays to what the log holds.' if not findings else 'the log is damaged.'}"
        )
    return 1 if findings else 0


def _beside(run: Path) -> "Iterator[Finding]":
    """Findings in files next to the log, which other commands read or write."""
    from evalkit.engine import forecast
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.results.frozen import frozen_flaws
    from evalkit.results.verify import Finding
    from evalkit.store import events, live, lock, manifests

    for flaw in frozen_flaws(manifests.read_manifest(run), ENVIRONMENTS):
        yield Finding(segment=manifests.manifest_name(run), problem=flaw)
    try:
        forecast.read_priors(run)
    except (CorruptLogError, StorageError) as damage:
        yield Finding(segment=forecast.FILE, problem=str(damage))
    for name in (events.FILE, live.FILE, lock.FILE):
        if (run / name).exists() and not (run / name).is_file():
            yield Finding(segment=name, problem="is not a file: move it elsewhere")
