"""`evalkit show`: one trajectory, readable."""

import argparse

from evalkit.cli.choosing import run_directory


def show(args: argparse.Namespace) -> int:
    """Print the episode."""
    from evalkit.report.show import show as render
    from evalkit.report.terminal import print_trajectory

    print_trajectory(render(run_directory(args.run), args.episode, period=args.period, full=args.full))
    return 0
