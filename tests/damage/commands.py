"""Every command on a run directory, in this process: its exit code, what it said, and what it raised."""

import contextlib
import io
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evalkit.cli.main import main
from evalkit.errors import EvalkitError
from evalkit.report.views import VIEWS
from evalkit.store.lock import hold_run
from evalkit.view.episode import episode_page
from evalkit.view.home import home, progress
from evalkit.view.overview import overview
from evalkit.view.reading import completed, read_run
from evalkit.view.run_cache import RunCache


@dataclass(frozen=True, slots=True)
class Said:
    """What became of a call."""

    code: int
    out: str
    err: str
    raised: BaseException | None = None


def run(*words: str) -> Said:
    """One command."""
    return _told(lambda: main(words))


def _told(call: Callable[[], int]) -> Said:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code, raised = call(), None
        except SystemExit as leaving:
            code, raised = int(leaving.code or 0), None
        except BaseException as flaw:  # noqa: BLE001 (whatever it is, it is what the test is about)
            code, raised = -1, flaw
    out.flush()
    return Said(code, out.buffer.getvalue().decode(), err.getvalue(), raised)


def pages(name: str) -> Said:
    """The pages of a run: what the server calls, without the server."""

    def call() -> int:
        directory = Path(name)
        try:
            with hold_run(directory):
                progress(directory)
                home(RunCache([directory]))
            reading = completed(read_run(directory))
            overview(reading, name)
            for cell in reading.report.cells[:2]:
                for episode in cell.episodes[:1]:
                    episode_page(directory, name, episode.id)
        except EvalkitError as flaw:
            print(flaw)
            return 2
        return 0

    return _told(call)


def reading(name: str, other: str, episode: str) -> Mapping[str, Callable[[], Said]]:
    """Commands that change nothing in the run."""
    out = Path(f"{name}-out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    # A row's hash reads all of its columns.
    each = (f"select '{view}' as v, count(*) as n, max(hash(r)) as all_of_it from {view} as r" for view in VIEWS)
    query = " union all ".join(each)
    return {
        "status": lambda: run("status", name),
        "budget": lambda: run("status", name, "--money"),
        "report": lambda: run("report", name, "--json"),
        "sql": lambda: run("sql", name, query, "--json"),
        "show": lambda: run("show", name, episode),
        "compare": lambda: run("compare", name, other),
        "export": lambda: run("export", name, "--format", "jsonl", "--out", str(out / "e.jsonl")),
        "plan": lambda: run("plan", "small.toml", "--dir", name),
        "pages": lambda: pages(name),
    }


def writing(name: str) -> Mapping[str, Callable[[], Said]]:
    """Commands that change it: each is for a copy of its own."""
    return {
        "void": lambda: run("tools", "void", name, "--only", "agent=random", "--reason", "test"),
        "run": lambda: run("run", "small.toml", "--dir", name, "--json"),
        "repair": lambda: run("run", "small.toml", "--dir", name, "--repair", "--json"),
    }
