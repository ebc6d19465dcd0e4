"""`evalkit show`: one trajectory, readable; without a name, some episodes to choose from."""

import argparse
import shlex
from pathlib import Path

from evalkit.cli.choosing import run_of
from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifests import runs_in
from evalkit.text import many

CELLS = 12
"""Agents on suites whose episodes are listed."""


def show(args: argparse.Namespace) -> int:
    """Print the episode, or list some."""
    run, episode = _named(args.run, args.episode)
    if episode is None:
        if args.period is not None or args.full:
            raise UsageError("--period and --full show parts of one episode: name it.")
        return _list(run, args.run or str(run))
    from evalkit.report.render.terminal import print_trajectory
    from evalkit.results.show import show as render

    print_trajectory(render(run, episode, period=args.period, full=args.full))
    return 0


def _named(run: str | None, episode: str | None) -> tuple[Path, str | None]:
    """(the run, the episode). A single word that names no run is an episode of the newest one. Raises RunError."""
    try:
        return run_of(run), episode
    except RunError:
        if run is None or episode is not None or not runs_in(Path("runs")):
            raise
        return run_of(None), run


def _list(run: Path, name: str) -> int:
    """The worst and the best episode of each agent on each suite."""
    from evalkit.frozen.void import read_voids
    from evalkit.results.cells import cells
    from evalkit.results.derived import read_run

    manifest, _, results = read_run(run)
    played = [cell for cell in cells(manifest, results, read_voids(run)) if cell.ended]
    if not played:
        raise RunError("No episode of the run has ended yet, so there is none to list.")
    ended = many(sum(cell.ended for cell in played), "episode has", "episodes have")
    print(f"{ended} ended. The worst and the best of each agent on a suite:")
    example = ""
    for cell in played[:CELLS]:
        scored = sorted((one for one in cell.episodes if one.score is not None), key=lambda one: one.score or 0.0)
        ends = [scored[0], scored[-1]] if scored and scored[0].score != scored[-1].score else scored[:1]
        for episode in ends:
            place = f"{episode.agent}:{episode.suite}:{episode.instance}:{episode.replicate}"
            example = example or place
            print(f"  {100 * (episode.score or 0.0):6.1f}  {place}")
    if len(played) > CELLS:
        print(f"  and {len(played) - CELLS:,} more agents on suites")
    print(f"Show one: evalkit show {shlex.quote(name)} {shlex.quote(example)}")
    print(f"All of them, in the browser: evalkit view {shlex.quote(name)}")
    return 0
