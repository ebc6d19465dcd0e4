"""`evalkit export`: a run in the formats of others' tools."""

import argparse
import sys
from pathlib import Path

from evalkit.api.specs import run_directory
from evalkit.cli.choosing import choice_of
from evalkit.errors import UsageError, nearest
from evalkit.report.exports.episodes import choose
from evalkit.report.exports.exporter import EXPORTERS
from evalkit.store.manifests import read_manifest


def export(args: argparse.Namespace) -> int:
    """Write the export; say what it contains and what it does not."""
    if args.format not in EXPORTERS:
        raise UsageError(f"--format: there is no exporter {args.format!r}.{nearest(args.format, EXPORTERS)}")
    exporter, directory = EXPORTERS[args.format], run_directory(args.run)
    if exporter.whole and args.only:
        raise UsageError(f"--only: `--format {args.format}` holds a whole run. Leave --only out.")
    choice = choice_of(args.only, read_manifest(directory))
    chosen = choose(directory, choice.agents, choice.suites)
    if not chosen.episodes:
        raise UsageError(f"{directory}: none of the chosen episodes has ended, so there is nothing to export.")
    out = Path(args.out)
    differing = exporter.write(chosen, out)
    print(f"Wrote {out}: {chosen.episodes:,} episodes from {len(chosen.cells):,} pairs of agent and suite.")
    if not exporter.whole and (chosen.owed or chosen.voided):
        print(f"Not included: {chosen.owed:,} remaining episodes, {chosen.voided:,} void episodes.")
    if differing:
        print(
            f"warning: {differing:,} episodes replay differently from the log: their texts may differ from "
            "what the agent read (`reproduced` is false there). `evalkit verify` shows where.",
            file=sys.stderr,
        )
    return 0
