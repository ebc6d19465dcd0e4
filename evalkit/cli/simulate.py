"""`evalkit simulate`: the policies as models behind real HTTP, with limits, faults and a bill."""

import argparse

from evalkit.serve.server import main


def simulate(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    return main(args.rest)
