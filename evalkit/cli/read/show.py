"""`evalkit show`: one trajectory, readable."""

import argparse

from evalkit.api.specs import run_directory


def show(args: argparse.Namespace) -> int:
    """Print the episode."""
    from evalkit.report.render.terminal import print_trajectory
    from evalkit.results.show import show as render

    print_trajectory(render(run_directory(args.run), args.episode, period=args.period, full=args.full))
    return 0
