"""A sweep's nights on one page: scores by night, alarms, what nights took. Served, or in one file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from evalkit.money import show_usd
from evalkit.nightly.history_files import accepted, nights, read_history, read_journal
from evalkit.nightly.hook import unmeasured
from evalkit.report.nights.history import NightRecord, taken
from evalkit.report.nights.trends import NO_MEASUREMENT, alarms_table, changes, nights_table, trend_figure, trend_table
from evalkit.view.grid import Href, grid, plot, sql_command
from evalkit.view.overview import Fact, Overview, overview_frame
from evalkit.view.render import render
from evalkit.view.run_cache import night_name

REGRESSION = "regression"
"""The state of nights whose last one raised an alarm."""


def known_nights(folder: Path) -> list[NightRecord]:
    """The nights of a history, oldest first, the last one without alarms that were accepted. Raises CorruptLogError."""
    history = read_history(folder)
    return [*history[:-1], *(taken(record, accepted(read_journal(folder))) for record in history[-1:])]


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
    tables = [grid(trend_table(history), run, href=_to_last(name, last.night, night_names), marks=_marks)]
    if any(record.raised for record in history):
        tables.append(grid(alarms_table(history), run, href=_to_compared(name, night_names), marks=_marks))
    tables.append(grid(costs, run, href=_to_night(name, night_names), marks=_marks))
    return Overview(
        name=f"{name}: nights",
        word="running" if running else state_of(last),
        began=history[0].night,
        facts=_facts(history),
        query=costs.query,
        command=sql_command(run, costs.query),
        warnings=_warnings(history),
        figures=[] if figure is None else [plot(figure, run)],
        tables=tables,
    )


def state_of(last: NightRecord) -> str:
    """The state of nights of which this is the last, in a word or two."""
    if not last.measured:
        return NO_MEASUREMENT
    return REGRESSION if last.raised else "partial" if last.owed else "complete"


def _marks(row: Mapping[str, Any], key: str) -> str:
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


def _to_compared(name: str, night_names: Sequence[str]) -> Href:
    """From an alarm to the comparison of its night with the last one before the fall."""

    def href(row: Mapping[str, Any], key: str) -> str:
        before = [night for night in night_names if night < row["since"]]
        if key != "agent" or not before or row["night"] not in night_names:
            return ""
        first, second = night_name(name, before[-1]), night_name(name, row["night"])
        parameters = {"first": first, "second": second, "first_agent": row["agent"], "second_agent": row["agent"]}
        return f"/compare?{urlencode(parameters)}"

    return href


def _facts(history: Sequence[NightRecord]) -> list[Fact]:
    last = history[-1]
    ended = last.planned - last.owed
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
    if last.owed:
        warnings.append(f"{last.owed:,} episodes of the last night remain; the next night starts with them.")
    return warnings
