"""All runs on one page, and the sweeps that are played every night: what each holds and owes, what it has spent, how
its agents did."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from evalkit.envs.table import OPTIMUM_UNIT
from evalkit.errors import EvalkitError
from evalkit.frozen.manifests import read_manifest
from evalkit.money import show_usd
from evalkit.nightly.history_files import accepted, nights, read_history, read_journal
from evalkit.nightly.hook import compared, unmeasured
from evalkit.report.nights.history import NightRecord, taken
from evalkit.report.nights.trends import NO_MEASUREMENT, alarms_table, changes, nights_table, trend_figure, trend_table
from evalkit.report.tables import Column, Table, columns_of
from evalkit.store.events import last_session
from evalkit.store.live import read_live
from evalkit.store.lock import holder
from evalkit.text import bounded, many
from evalkit.view.grid import Grid, Href, grid, plot, sql_command
from evalkit.view.overview import Fact, Overview, overview_frame
from evalkit.view.reading import BEST, Glance
from evalkit.view.render import render
from evalkit.view.run_cache import RunCache, night_name

# A sweep's nights on one page: scores by night, alarms, what nights took. Served, or in one file.

REGRESSION = "regression"
"""The state of nights whose last one raised an alarm."""


def known_nights(folder: Path) -> list[NightRecord]:
    """The nights of a history, oldest first, the last one without alarms that were accepted. Raises CorruptLogError."""
    history = read_history(folder)
    return [*history[:-1], *(taken(record, accepted(read_journal(folder))) for record in history[-1:])]


def nights_address(sweep: str) -> str:
    """Where the page of a sweep's nights is."""
    return f"/nights/{quote(sweep, safe='')}"


def nights_page(name: str, folder: Path, history: Sequence[NightRecord]) -> str:
    """The page as HTML that needs nothing else; arguments as of `nights_overview`."""
    page = nights_overview(name, folder, history, offline=True)
    return render("run.html", overview_frame(page, name, offline=True), page=page)


def nights_overview(
    name: str, folder: Path, history: Sequence[NightRecord], *, offline: bool = False, running: bool = False
) -> Overview:
    """What the page shows.

    `name`: the sweep's; `folder`: where the nights lie; `history`: oldest first, at least one; `offline`: nothing leads
    to other pages; `running`: a night is being played.
    """
    last = history[-1]
    run = str(folder / last.night)
    figure = trend_figure(history)
    costs = nights_table(history)
    night_names = [] if offline else nights(folder)
    tables = [grid(trend_table(history), run, href=_to_last(name, last.night, night_names), marks=_night_marks)]
    if any(record.raised for record in history):
        tables.append(
            grid(alarms_table(history), run, href=_to_compared(name, history, night_names), marks=_night_marks)
        )
    tables.append(grid(costs, run, href=_to_night(name, night_names), marks=_night_marks))
    return Overview(
        name=f"{name}: nights",
        word="running" if running else state_of(last),
        began=history[0].night,
        facts=_facts(history),
        query=costs.query,
        command=sql_command(run, costs.query),
        warnings=_warnings(history),
        simulated=_simulated(folder / last.night),
        figures=[] if figure is None else [plot(figure, run)],
        tables=tables,
    )


def _simulated(night: Path) -> str:
    """Whether a night's money is real, as of its manifest; where that is gone, nothing is said."""
    try:
        return read_manifest(night).simulated
    except EvalkitError:
        return ""


def state_of(last: NightRecord) -> str:
    """The state of nights of which this is the last, in a word or two."""
    if not last.measured:
        return NO_MEASUREMENT
    return REGRESSION if last.raised else "partial" if last.remaining else "complete"


def _night_marks(row: Mapping[str, Any], key: str) -> str:
    """An alarm is red, wherever it stands."""
    return "bad" if key in ("alarm", "alarms", "since") and row[key] not in ("", 0, NO_MEASUREMENT) else ""


def _run(name: str, night: str) -> str:
    return f"/run/{quote(night_name(name, night), safe='')}"


def _to_night(name: str, night_names: Sequence[str]) -> Href:
    """From a night's row to its run, while that is there."""
    return lambda row, key: f"{_run(name, row['night'])}/" if key == "night" and row["night"] in night_names else ""


def _to_last(name: str, night: str, night_names: Sequence[str]) -> Href:
    """From a cell's row to its episodes in the last night."""

    def href(row: Mapping[str, Any], key: str) -> str:
        if key != "score" or night not in night_names:
            return ""
        return f"{_run(name, night)}/episodes?{urlencode({'agent': row['agent'], 'suite': row['suite']})}"

    return href


def _to_compared(name: str, history: Sequence[NightRecord], night_names: Sequence[str]) -> Href:
    """From an alarm to the comparison of the nights that it compares."""
    alarms = {(record.night, *cell.cell): cell.alarm for record in history for cell in record.raised if cell.alarm}

    def href(row: Mapping[str, Any], key: str) -> str:
        sides = compared(alarms[row["night"], row["agent"], row["suite"]], night_names)
        if key != "agent" or not all(sides):
            return ""
        first, second = (night_name(name, side) for side in sides)
        parameters = {"first": first, "second": second, "first_agent": row["agent"], "second_agent": row["agent"]}
        return f"/compare?{urlencode(parameters)}"

    return href


def _facts(history: Sequence[NightRecord]) -> list[Fact]:
    last = history[-1]
    ended = last.planned - last.remaining
    return [
        Fact(title="Nights", value=f"{len(history):,}", note=f"to {last.night}"),
        Fact(
            title="Ended last night",
            value=f"{ended:,}",
            note=f"of {last.planned:,}",
            share=ended / last.planned if last.planned else None,
        ),
        Fact(title="Spent last night", value=show_usd(last.spent)),
        Fact(title="Spent in all nights", value=show_usd(sum(record.spent for record in history))),
        Fact(title="Alarms last night", value=f"{len(last.raised):,}"),
    ]


def _warnings(history: Sequence[NightRecord]) -> list[str]:
    last = history[-1]
    warnings = [
        f"{cell.alarm_word.capitalize()} since {cell.alarm.since}: {cell.agent} on {cell.suite}: {cell.why}."
        for cell in last.raised
        if cell.alarm is not None
    ]
    warnings += [f"{line[0].upper()}{line[1:]}." for line in unmeasured(last)]
    anew = changes(history, len(history) - 1)
    if anew:
        warnings.append(f"The provider served a different model than before as {', '.join(anew)}.")
    if last.remaining:
        warnings.append(f"{many(last.remaining, 'episode')} of the last night to go; the next night starts with them.")
    return warnings


# What a running sweep says of itself, as its page polls it.

MOST_TEXT = 300
"""Characters of any one text."""

SILENT_S = 10.0
"""A process that has said nothing for so long, and holds the lock, is said to be silent."""


def progress(directory: Path) -> dict[str, Any]:
    """`running`: whether a process writes the run; `silent_s`: for how long it has said nothing, if that is long;
    `live`: what it published last (`docs/run-directory.md`), or null; `ended`: of a run that nobody writes, when its
    last process ended and why, in words, if its events say so.

    Texts in it (names, a provider's words) are safe to show.
    """
    writer = holder(directory)
    if writer is None:
        return {"running": False, "silent_s": None, "live": None, "ended": _ended(directory)}
    live = read_live(directory)
    # A file that an earlier process left behind says nothing of this one.
    written_at = live.get("at") if live is not None else None
    if not isinstance(written_at, int | float) or written_at < writer.started_at:
        return {"running": True, "silent_s": None, "live": None, "ended": ""}
    silent = time.time() - written_at
    return {
        "running": True,
        "silent_s": round(silent) if silent > SILENT_S else None,
        "live": _shown(live),
        "ended": "",
    }


def _ended(directory: Path) -> str:
    started, ended = last_session(directory)
    at = (ended or started).get("time")
    if not isinstance(at, int | float):
        return ""
    try:
        when = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return ""
    if not ended:
        return f"began {when} and did not say how it ended"
    return bounded(f"ended {when}: {ended.get('reason')}", MOST_TEXT)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return bounded(value, MOST_TEXT)
    if isinstance(value, dict):
        return {bounded(str(key), MOST_TEXT): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


COLUMNS = (
    *columns_of(run="Run", state="State", scores="Scores"),
    *columns_of("count", "episodes", ended="Ended", planned="Planned"),
    *columns_of("usd", spent="Spent", budget="Budget"),
    Column(key="money", title="Money"),
    *columns_of("count", agents="Agents", suites="Suites"),
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
    *columns_of(sweep="Sweep", state="State"),
    Column(key="nights", title="Nights", kind="count"),
    Column(key="last", title="Last night"),
    *columns_of("count", "episodes of the last night", ended="Ended", planned="Planned"),
    Column(key="spent", title="Spent", kind="usd", unit="in the last night"),
    *columns_of(money="Money", alarms="Alarms"),
)

QUERY = """\
-- asked of each run
select agent, avg(mean) as score from (
    select agent, suite, avg(by_instance) as mean from (
        select agent, suite, instance, 100 * avg(score) as by_instance from episodes where used group by all
    ) group by all
) group by agent order by score desc, count(*) desc, agent
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
        yield (
            f"scores: {OPTIMUM_UNIT}; mean of an agent's suites, of each the mean over instances; the best {BEST}; "
            "on 1 of 5: an agent that has a score on so many of the suites"
        )
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
        href=lambda row, key: nights_address(row["sweep"]) if key == "sweep" else "",
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
        "ended": last.planned - last.remaining,
        "planned": last.planned,
        "spent": last.spent,
        "money": _simulated(folder / last.night) or None,
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
        "money": manifest.simulated or None,
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
