"""`--format csv`: the report's tables, and every episode and score, one file each."""

from dataclasses import replace
from pathlib import Path

from evalkit.report.exports.episodes import Chosen
from evalkit.report.report import Report, report
from evalkit.report.tables import as_csv
from evalkit.report.views import answer_csv, open_views
from evalkit.store.disk import storage_errors
from evalkit.store.folder import new_folder

# A cell of a sheet has several values as JSON.
_EPISODES = """
select * replace (
    to_json(tags) as tags, to_json(metrics) as metrics, to_json(path) as path, to_json(outcomes) as outcomes
) from episodes e
where exists (from chosen c where c.agent = e.agent and c.suite = e.suite) order by suite, agent, place, episode
"""
_SCORES = """
select * from scores s
where exists (from chosen c where c.agent = s.agent and c.suite = s.suite)
order by suite, agent, replicate, instance, metric
"""


def write_sheets(chosen: Chosen, out: Path) -> None:
    """Write a folder of sheets, whole or not at all; the tables have the chosen cells' rows, and all of other tables.

    `episodes.csv` has the void episodes and the remaining ones too, marked. Raises UsageError if the folder exists,
    StorageError, CorruptLogError.
    """
    made = sheets(chosen, report(chosen.run))
    with new_folder(out) as folder:
        for name, data in made.items():
            with storage_errors(folder):
                (folder / f"{name}.csv").write_bytes(data)


def sheets(chosen: Chosen, tables: Report) -> dict[str, bytes]:
    """The sheets by name; `tables`: the run's report. Raises CorruptLogError."""
    cells = ", ".join(f"({_text(cell.agent)}, {_text(cell.suite.name)})" for cell in chosen.cells)
    with_cells = f"with chosen(agent, suite) as (values {cells}) "
    views = open_views(chosen.run)
    made = {
        "episodes": answer_csv(views.sql(with_cells + _EPISODES)),
        "scores": answer_csv(views.sql(with_cells + _SCORES)),
    }
    agents = {cell.agent for cell in chosen.cells}
    for table in tables.tables:
        rows = tuple(row for row in table.rows if row.get("agent") is None or row["agent"] in agents)
        made[f"table_{table.name}"] = as_csv(replace(table, rows=rows)).encode()
    return made


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
