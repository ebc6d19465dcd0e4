"""All runs on one page, and the sweeps that are played every night: what each holds and owes, what it has spent, how
its agents did."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evalkit.envs.known import OPTIMUM_UNIT
from evalkit.errors import EvalkitError
from evalkit.report.nights.trends import NO_MEASUREMENT
from evalkit.report.tables import Column, Table
from evalkit.store.live import read_live
from evalkit.store.lock import holder
from evalkit.store.manifests import read_manifest
from evalkit.text import bounded
from evalkit.view.grid import Grid, grid
from evalkit.view.nights import REGRESSION, known_nights, state_of
from evalkit.view.reading import BEST, Glance
from evalkit.view.run_cache import RunCache

# What a running sweep says of itself, as its page polls it.

MOST_TEXT = 300
"""Characters of any one text."""

SILENT_S = 10.0
"""A process that has said nothing for so long, and holds the lock, is said to be silent."""


def progress(directory: Path) -> dict[str, Any]:
    """`running`: whether a process writes the run; `silent_s`: for how long it has said nothing, if that is long;
    `live`: what it published last (`docs/run-directory.md`), or null.

    Texts in it (names, a provider's words) are safe to show.
    """
    writer = holder(directory)
    if writer is None:
        return {"running": False, "silent_s": None, "live": None}
    live = read_live(directory)
    # A file that an earlier process left behind says nothing of this one.
    written_at = live.get("at") if live is not None else None
    if not isinstance(written_at, int | float) or written_at < writer.started_at:
        return {"running": True, "silent_s": None, "live": None}
    silent = time.time() - written_at
    return {"running": True, "silent_s": round(silent) if silent > SILENT_S else None, "live": _shown(live)}


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return bounded(value, MOST_TEXT)
    if isinstance(value, dict):
        return {bounded(str(key), MOST_TEXT): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


COLUMNS = (
    Column(key="run", title="Run"),
    Column(key="state", title="State"),
    Column(key="scores", title="Scores"),
    Column(key="ended", title="Ended", kind="count", unit="episodes"),
    Column(key="planned", title="Planned", kind="count", unit="episodes"),
    Column(key="spent", title="Spent", kind="usd"),
    Column(key="budget", title="Budget", kind="usd"),
    Column(key="agents", title="Agents", kind="count"),
    Column(key="suites", title="Suites", kind="count"),
    Column(key="began", title="Began (UTC)"),
)

STATES = {
    "complete": "good",
    "running": "going",
    "partial": "warn",
    "damaged": "warn",
    NO_MEASUREMENT: "warn",
    REGRESSION: "bad",
}
"""What a state is marked as."""

NIGHTS_COLUMNS = (
    Column(key="sweep", title="Sweep"),
    Column(key="state", title="State"),
    Column(key="nights", title="Nights", kind="count"),
    Column(key="last", title="Last night"),
    Column(key="ended", title="Ended", kind="count", unit="episodes of the last night"),
    Column(key="planned", title="Planned", kind="count", unit="episodes of the last night"),
    Column(key="spent", title="Spent", kind="usd", unit="in the last night"),
    Column(key="alarms", title="Alarms"),
)

QUERY = """\
-- asked of each run
select agent, avg(mean) as score from (
    select agent, suite, avg(by_instance) as mean from (
        select agent, suite, instance, 100 * avg(score) as by_instance from episodes where used group by all
    ) group by all
) group by agent order by count(*) desc, score desc
-- ended, planned and spent: the summary of the run's page"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What the page's template shows."""

    grid: Grid
    nights: Grid | None
    """The sweeps that are played every night; None: there is none."""
    waiting: bool
    """Whether a run is still being read, or is running: the page is asked for again."""


def home(cache: RunCache) -> Home:
    """The page, of what has been read so far."""
    rows, glances, waiting = [], list[Glance](), False
    for name, directory in cache.runs().items():
        glance = cache.glance(directory)
        glances += [glance] if glance is not None else []
        row = _row(name, directory, glance, cache.flaw(directory))
        waiting = waiting or row["state"] in ("running", "computing")
        rows.append(row)
    table = Table(
        name="runs",
        title="Runs",
        columns=COLUMNS,
        rows=tuple(rows),
        packs=("",),
        notes=tuple(_scores_notes(glances)),
        query=QUERY,
    )
    runs_grid = grid(
        table,
        "RUN",
        href=lambda row, key: f"/run/{quote(row['run'], safe='')}/" if key == "run" else "",
        marks=_marks,
        every=True,  # scores are computed while the page is open
    )
    nights = [_sweep_row(name, folder) for name, folder in cache.sweeps().items()]
    waiting = waiting or any(row["state"] == "running" for row in nights)
    return Home(grid=runs_grid, nights=_nights_grid(nights) if nights else None, waiting=waiting)


def _scores_notes(glances: Sequence[Glance]) -> Iterator[str]:
    """What the scores of these runs are, and why some have none."""
    if not glances or not all(glance.litmus for glance in glances):
        yield f"scores: {OPTIMUM_UNIT}; mean of an agent's suites, of each the mean over instances; the best {BEST}"
    if any(glance.litmus for glance in glances):
        yield "scores of litmus tests are on the run's page: none of theirs is better than another"


def _nights_grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    table = Table(
        name="nights",
        title="Nights",
        columns=NIGHTS_COLUMNS,
        rows=tuple(rows),
        packs=("",),
        notes=("ended, planned, spent, alarms: of the last night, from history.jsonl",),
    )
    return grid(
        table,
        "",
        href=lambda row, key: f"/nights/{quote(row['sweep'], safe='')}" if key == "sweep" else "",
        marks=_marks,
    )


def _marks(row: Mapping[str, Any], key: str) -> str:
    """A regression is red."""
    if key == "alarms":
        return "bad" if row["state"] == REGRESSION else ""
    return f"badge {STATES.get(row['state'], '')}" if key == "state" and row["state"] else ""


def _sweep_row(name: str, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"sweep": name, "state": "running" if holder(folder) is not None else "", "alarms": None}
    try:
        history = known_nights(folder)
    except EvalkitError as flaw:
        return row | {"state": "damaged", "alarms": str(flaw)}
    if not history:
        return row | {"state": row["state"] or "no history"}
    last = history[-1]
    return row | {
        "state": row["state"] or (state_of(last)),
        "nights": len(history),
        "last": last.night,
        "ended": last.planned - last.owed,
        "planned": last.planned,
        "spent": last.spent,
        "alarms": ", ".join(f"{cell.agent} on {cell.suite}" for cell in last.raised) or "none",
    }


def _row(name: str, directory: Path, glance: Glance | None, flaw: str) -> dict[str, Any]:
    row: dict[str, Any] = {"run": name, "state": "computing"}
    if glance is not None:
        row |= {
            "state": glance.word,
            "ended": glance.ended,
            "planned": glance.planned,
            "spent": glance.spent,
            "budget": glance.budget,
            "scores": glance.scores or None,
        }
    if flaw:
        row |= {"state": "damaged", "scores": flaw}
    try:
        manifest = read_manifest(directory)
    except EvalkitError:
        return row
    row |= {
        "agents": len(manifest.agents),
        "suites": len(manifest.suites),
        "began": datetime.fromtimestamp(manifest.created_at, UTC).strftime("%Y-%m-%d %H:%M"),
    }
    live = read_live(directory) if holder(directory) is not None else None
    return row if live is None else row | _live(live)


def _live(live: Mapping[str, Any]) -> dict[str, Any]:
    """What a running process says of itself is newer than what its log was when it was read."""
    try:
        budget = live["budget_usd"]
        return {
            "state": "running",
            "ended": int(live["done"]),
            "planned": int(live["episodes"]),
            "spent": round(live["spent_usd"] * 1e12),
            "budget": None if budget is None else round(budget * 1e12),
        }
    except (KeyError, TypeError, ValueError):
        return {"state": "running"}
