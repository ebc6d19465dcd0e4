"""`evalkit export`: a run in the formats of others' tools."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from evalkit.cli.choosing import choice_of
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.frozen.manifests import read_manifest
from evalkit.playing.specs import run_directory
from evalkit.report.exports.episodes import ExportChoice, choose, write_sheets
from evalkit.text import many

WHOLE = "archive"
"""The format that holds all of a run, also what is not ended or void; then no part of it can be chosen."""


def export(args: argparse.Namespace) -> int:
    """Write the export; say what it contains and what it does not."""
    if args.format not in EXPORTERS:
        raise UsageError(f"--format: there is no exporter {args.format!r}.{nearest(args.format, EXPORTERS)}")
    directory, whole = run_directory(args.run), args.format == WHOLE
    if whole and args.only:
        raise UsageError(f"--only: `--format {args.format}` holds a whole run. Leave --only out.")
    choice = choice_of(args.only, read_manifest(directory))
    chosen = choose(directory, choice.agents, choice.suites)
    if not chosen.episodes:
        raise UsageError(f"{directory}: none of the chosen episodes has ended, so there is nothing to export.")
    out = Path(args.out)
    differing = EXPORTERS[args.format](chosen, out)
    print(f"Wrote {out}: {many(chosen.episodes, 'episode')} from {many(len(chosen.cells), 'pair')} of agent and suite.")
    if not whole and (chosen.remaining or chosen.voided):
        print(f"Not included: {chosen.remaining:,} remaining episodes, {chosen.voided:,} void episodes.")
    if differing:
        print(
            f"warning: {many(differing, 'episode replays', 'episodes replay')} differently from the log: the texts "
            "may differ from what the agent read (`reproduced` is false there). `evalkit verify` shows where.",
            file=sys.stderr,
        )
    return 0


def _jsonl(chosen: ExportChoice, out: Path) -> int:
    from evalkit.report.exports.chats import write_transcripts

    return write_transcripts(chosen, ENVIRONMENTS, out)


def _inspect(chosen: ExportChoice, out: Path) -> int:
    from evalkit.report.exports.inspect_log import write_inspect

    return write_inspect(chosen, ENVIRONMENTS, out)


def _csv(chosen: ExportChoice, out: Path) -> int:
    write_sheets(chosen, out)
    return 0


def _archive(chosen: ExportChoice, out: Path) -> int:
    from evalkit.report.exports.archive import write_archive

    return write_archive(chosen, out)


EXPORTERS: Mapping[str, Callable[[ExportChoice, Path], int]] = {
    "jsonl": _jsonl,
    "inspect": _inspect,
    "csv": _csv,
    WHOLE: _archive,
}
"""By what `--format` calls it: (what is chosen of a run, `--out`) -> how many episodes this evalkit does not reproduce.
What it writes must not exist yet, and is there whole or not at all (`store/folder.py`). Raises UsageError,
StorageError, CorruptLogError."""
