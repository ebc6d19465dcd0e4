"""`evalkit ls`: the runs in `runs/`, the newest first."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from evalkit.envs.table import is_litmus
from evalkit.errors import EvalkitError
from evalkit.frozen.manifests import read_manifest, runs_in
from evalkit.frozen.void import read_voids
from evalkit.money import money_words
from evalkit.nightly.history_files import FOLDER as NIGHTS
from evalkit.nightly.history_files import nights
from evalkit.report.tables import Column, Table, columns_of
from evalkit.results.cells import Cell, cells
from evalkit.results.derived import read_run
from evalkit.store.events import budget_of, last_session
from evalkit.store.lock import holder
from evalkit.store.reading.index import read_index

FOLDER = Path("runs")


def ls(args: argparse.Namespace) -> int:
    """Print them."""
    rows = [_row(run) for run in _runs()]
    rows.sort(key=lambda row: row["began"] or "", reverse=True)
    table = Table(
        name="runs",
        title="",
        columns=(
            *columns_of(run="Run", state="State"),
            *columns_of("count", ended="Ended", planned="Planned"),
            *columns_of(money="Money", began="Began (UTC)", best="Best agent"),
        ),
        rows=tuple(rows),
        packs=("",),
        notes=("best agent: by the mean over its suites, the optimum's own policy left out; 100 = optimum",),
    )
    if args.json:
        listed = replace(table, columns=(*table.columns, Column(key="spent_pico_usd", title="Spent", kind="usd")))
        print(orjson.dumps({"version": 1, "runs": listed.to_json()["rows"]}, option=orjson.OPT_INDENT_2).decode())
    elif not rows:
        print("There is no run in runs/ here. Start one: evalkit run quickstart")
    else:
        from evalkit.report.render.terminal import console, print_bare

        to = console()
        print_bare(table, to)
        to.print(f" {table.notes[0]}", style="dim")
    return 0


def _runs() -> list[Path]:
    """Runs, and of the sweeps that are played every night the last night."""
    found = runs_in(FOLDER)
    for folder in sorted(FOLDER.glob(f"*/{NIGHTS}")):
        found += [folder / night for night in nights(folder)[-1:]]
    return found


def _row(run: Path) -> dict[str, Any]:
    """A run that cannot be read is listed with the reason."""
    name = run.relative_to(FOLDER).as_posix()
    row: dict[str, Any] = {"run": name, "state": "damaged", "began": None}
    try:
        manifest = read_manifest(run)
        row["began"] = datetime.fromtimestamp(manifest.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        index = read_index(run)
        paid = index.spent
        found = cells(manifest, read_run(run)[2], read_voids(run))
    except EvalkitError as flaw:
        return {**row, "best": str(flaw)}
    ended, planned = sum(cell.ended for cell in found), sum(cell.planned for cell in found)
    started, stopped = last_session(run)
    over = "complete" if ended == planned else "decided" if stopped.get("reason") == "decided" else "partial"
    return {
        **row,
        "state": over if holder(run) is None else "running",
        "ended": ended,
        "planned": planned,
        "money": money_words(paid, budget_of(started), manifest.simulated),
        "spent_pico_usd": paid,
        "best": _best(found),
    }


def _best(found: Sequence[Cell]) -> str | None:
    """The agent with the best mean over its suites, and that mean."""
    means: dict[str, list[float]] = {}
    for cell in found:
        if cell.prefix and not cell.exact and not is_litmus(cell.suite.environment):
            by_instance: dict[str, list[float]] = {}
            for episode in cell.prefix:
                by_instance.setdefault(episode.instance, []).append(episode.score or 0.0)
            means.setdefault(cell.agent, []).append(fmean(fmean(scores) for scores in by_instance.values()))
    if not means:
        return None
    agent, scores = max(means.items(), key=lambda pair: fmean(pair[1]))
    return f"{agent} {100 * fmean(scores):.1f}"
