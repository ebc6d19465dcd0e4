"""`evalkit show`: one trajectory, readable."""

import argparse

from evalkit.cli.choosing import run_directory


def show(args: argparse.Namespace) -> int:
    """Print the episode."""
    from evalkit.report.show import show as render

    print(render(run_directory(args.run), args.episode, period=args.period))
    return 0
