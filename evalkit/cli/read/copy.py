"""`evalkit copy`: copy a run between disks and buckets."""

import argparse
import shlex

from evalkit.api.specs import run_directory
from evalkit.cli.choosing import program
from evalkit.store.bucket import place_of


def copy(args: argparse.Namespace) -> int:
    """Copy, and say what was copied."""
    from evalkit.store.copying import copy_run

    target = place_of(args.to)
    done = copy_run(run_directory(args.run), target)
    print(f"Copied {done.files:,} files, {done.bytes / 1e6:,.1f} MB, to {target}. Each was read back, and is the same.")
    print(f"Next: {program()} report {shlex.quote(str(target))}")
    return 0
