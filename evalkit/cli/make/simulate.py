"""`evalkit simulate`: serve the policies as models over real HTTP, with limits, faults and a bill."""

import argparse

from evalkit.serve.options import add_arguments


def add_options(parser: argparse.ArgumentParser, *_: object) -> None:
    """All flags of the provider."""
    add_arguments(parser)


def simulate(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from evalkit.serve.server import simulate as serve

    return serve(args)
