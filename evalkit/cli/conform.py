"""`evalkit conform`: evalkit beside golden files of the reference implementations."""

import argparse
import sys
from pathlib import Path


def conform(args: argparse.Namespace) -> int:
    """Print what was compared; 0 only without an unexplained difference."""
    from evalkit.conform.command import run

    return run(Path(args.goldens), Path(args.data) if args.data else None, out=sys.stdout)
