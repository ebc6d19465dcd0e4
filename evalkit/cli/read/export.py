"""`evalkit export`: a run in the formats of others' tools."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from evalkit.cli.choosing import choice_in, run_directory
from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.report.exports.episodes import Chosen, choose
from evalkit.store.manifests import read_manifest


def export(args: argparse.Namespace) -> int:
    """Write the export; say what is in it and what is not."""
    directory = run_directory(args.run)
    choice = choice_in(args.only, read_manifest(directory))
    chosen = choose(directory, choice.agents, choice.suites)
    if not chosen.episodes:
        raise UsageError(f"{directory}: no episode of this choice has ended, so there is nothing to export yet.")
    out = Path(args.out)
    differing = _WRITERS[args.format](chosen, out)
    print(f"Wrote {out}: {chosen.episodes:,} episodes, of {len(chosen.cells):,} pairs of agent and suite.")
    if chosen.owed or chosen.voided:
        print(f"Not in it: {chosen.owed:,} episodes that are owed, {chosen.voided:,} that are void.")
    if differing:
        print(
            f"warning: {differing:,} episodes are replayed differently than they were played: their texts may not be "
            "those that the agent read (`reproduced` is false there). `evalkit verify` says where.",
            file=sys.stderr,
        )
    return 0


def _jsonl(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.transcripts import write_transcripts

    return write_transcripts(chosen, ENVIRONMENTS, out)


def _inspect(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.inspect_log import write_inspect

    return write_inspect(chosen, ENVIRONMENTS, out)


def _dataset(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.dataset import write_dataset

    return write_dataset(chosen, ENVIRONMENTS, out)


def _csv(chosen: Chosen, out: Path) -> int:
    from evalkit.report.exports.sheets import write_sheets

    write_sheets(chosen, out)
    return 0


_WRITERS: dict[str, Callable[[Chosen, Path], int]] = {
    "jsonl": _jsonl,
    "inspect": _inspect,
    "dataset": _dataset,
    "csv": _csv,
}
