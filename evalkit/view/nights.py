"""A sweep's nights on one page, in one file: scores by night, alarms, what nights took."""

from collections.abc import Sequence
from pathlib import Path

from evalkit.money import show_usd
from evalkit.report.figures.trend import trend_figure
from evalkit.report.history import NightRecord
from evalkit.report.trends import alarms_table, changes, nights_table, trend_table
from evalkit.view.grid import grid, plot, sql_command
from evalkit.view.overview import Fact, Overview, overview_frame
from evalkit.view.render import render


def nights_page(name: str, folder: Path, history: Sequence[NightRecord]) -> str:
    """The page as HTML that needs nothing else.

    `folder`: where the nights lie; `history`: oldest first, at least one.
    """
    last = history[-1]
    run = str(folder / last.night)
    figure = trend_figure(history)
    costs = nights_table(history)
    tables = [trend_table(history), *([alarms_table(history)] if any(one.raised for one in history) else []), costs]
    page = Overview(
        name=f"{name}: nights",
        word="partial" if last.owed else "complete",
        began=history[0].night,
        facts=_facts(history),
        query=costs.query,
        command=sql_command(run, costs.query),
        warnings=_warnings(history),
        figures=[] if figure is None else [plot(figure, run)],
        tables=[grid(one, run) for one in tables],
    )
    return render("run.html", overview_frame(page, name, offline=True), page=page)


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
        Fact(title="Spent in all nights", value=show_usd(sum(one.spent for one in history))),
        Fact(title="Alarms last night", value=f"{len(last.raised):,}"),
    ]


def _warnings(history: Sequence[NightRecord]) -> list[str]:
    last = history[-1]
    found = [
        f"Regression since {cell.alarm.since}: {cell.agent} on {cell.suite}: {cell.why}."
        for cell in last.raised
        if cell.alarm is not None
    ]
    anew = changes(history, len(history) - 1)
    if anew:
        found.append(f"The provider served another model than before as {', '.join(anew)}.")
    if last.owed:
        found.append(f"{last.owed:,} episodes of the last night are owed; the next night begins with them.")
    return found
