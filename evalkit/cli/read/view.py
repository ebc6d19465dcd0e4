"""`evalkit view`: serve pages of runs to this machine's browser, until Ctrl-C."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifests import is_run, read_manifest, runs_in
from evalkit.nightly.history_files import FOLDER as NIGHTS
from evalkit.playing.specs import newest_run, run_directory

if TYPE_CHECKING:
    from evalkit.view.run_cache import RunCache

FOLDER = Path("runs")


def view(args: argparse.Namespace) -> int:
    """Serve, and say where."""
    from evalkit.view.run_cache import RunCache
    from evalkit.view.server import serve_until_signal

    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port: must be 0 to 65535, not {args.port}.")
    runs, sweeps = _named(args.runs)
    if not args.runs and not FOLDER.is_dir():
        raise RunError("There is no folder runs/ here. Name a run: evalkit view RUN")
    cache = RunCache(runs, None if args.runs else FOLDER, sweeps)
    page = first_page(cache) if args.runs else _newest_page(cache)
    ready = partial(_tell, page=page, opens=not args.no_open)
    asyncio.run(serve_until_signal(cache, port=args.port, ready=ready))
    if cache.busy:
        # The interpreter would wait for the reading thread, for seconds if a run is long. The thread only reads, and
        # derived files are written completely or not at all.
        os._exit(0)
    return 0


def _named(names: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Split names into (runs, sweeps with nights). A sweep and its folder of nights both mean the nights. Raises
    RunError.

    Files are ignored, so that `runs/nightly/nights/*` means the nights and not the history file next to them.
    """
    runs, sweeps = list[Path](), list[Path]()
    for name in names:
        if Path(name).is_file():
            continue
        directory = run_directory(name)
        sweep = directory.resolve().parent if directory.resolve().name == NIGHTS else directory
        if (sweep / NIGHTS).is_dir():
            sweeps.append(sweep)
        if sweep is directory and (is_run(directory) or directory not in sweeps):
            read_manifest(directory)
            runs.append(directory)
    if names and not runs and not sweeps:
        raise RunError(f"{names[0]} is a file, not a run directory.")
    return runs, sweeps


def first_page(cache: "RunCache") -> str:
    """The address below the server's: of the only run or sweep that is shown, else of the list of runs."""
    from evalkit.view.home import nights_address
    from evalkit.view.overview import run_address

    pages = [*(f"{run_address(name)}/" for name in cache.runs()), *map(nights_address, cache.sweeps())]
    return pages[0] if len(pages) == 1 else ""


def _newest_page(cache: "RunCache") -> str:
    """The address of the newest run's page below the server's; empty, which is that of all runs, if there is none."""
    from evalkit.view.overview import run_address

    newest = newest_run().resolve() if runs_in(FOLDER) else None
    return next((f"{run_address(name)}/" for name, path in cache.runs().items() if path.resolve() == newest), "")


def _tell(url: str, *, page: str, opens: bool) -> None:
    """Say where, and open the browser of who sits at this machine."""
    print(f"Pages at {url}{page} (Ctrl-C stops the server)", flush=True)
    has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if opens and has_screen and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(url + page)
