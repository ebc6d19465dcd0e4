"""`evalkit view`: serve pages of runs to this machine's browser, until Ctrl-C."""

import argparse
import asyncio
from pathlib import Path

from evalkit.cli.choosing import run_directory
from evalkit.errors import RunError, UsageError
from evalkit.store.manifest import read_manifest

FOLDER = Path("runs")


def view(args: argparse.Namespace) -> int:
    """Serve, and say where."""
    from evalkit.view.server import serve_until_signal
    from evalkit.view.shelf import Shelf

    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port: must be 0 to 65535, not {args.port}.")
    runs = [run_directory(name) for name in args.runs]
    for run in runs:
        read_manifest(run)
    if not runs and not FOLDER.is_dir():
        raise RunError("There is no folder runs/ here. Say which: evalkit view RUN")
    shelf = Shelf(runs, None if runs else FOLDER)
    asyncio.run(serve_until_signal(shelf, port=args.port, ready=_tell))
    return 0


def _tell(url: str) -> None:
    print(f"Pages at {url} (Ctrl-C ends)", flush=True)
