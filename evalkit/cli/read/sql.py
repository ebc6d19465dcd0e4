"""`evalkit sql`: query a run's views; the answer is a table, JSON or CSV."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.api.runs import asked
from evalkit.errors import UsageError
from evalkit.playing.specs import run_directory
from evalkit.report.views import VIEWS, answer_csv, numbers, open_views, plain, rows_of
from evalkit.text import visible

MOST_ROWS = 1_000
"""Of a table that is set for reading: its columns are as wide as all of them need."""


def sql(args: argparse.Namespace) -> int:
    """Print the answer to a query; without a query, the views and their columns."""
    views = open_views(run_directory(args.run))
    if args.query is None:
        for name, words in VIEWS.items():
            columns = views.sql(f"describe {name}").to_pylist()
            print(f"{name}: {words}")
            print("    " + ", ".join(f"{column['column_name']} {column['column_type'].lower()}" for column in columns))
        return 0
    answer = asked(views, args.query)
    try:
        _tell(answer, args)
    except (OverflowError, ValueError, TypeError) as flaw:  # Arrow's too: dates after 9999, lists as keys of maps
        raise UsageError(
            f"The answer holds a value that cannot be printed ({flaw}). Cast it in the query: `COLUMN::varchar`."
        ) from flaw
    return 0


def _tell(answer: Any, args: argparse.Namespace) -> None:
    if args.json:
        import orjson

        form = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
        print(orjson.dumps(rows_of(answer), option=form, default=plain).decode())
    elif args.csv:
        print(answer_csv(answer).decode(), end="")
    else:
        _print(rows_of(answer.slice(0, MOST_ROWS)), numbers(answer))
        if answer.num_rows > MOST_ROWS:
            more = f"{answer.num_rows - MOST_ROWS:,} more rows: --csv and --json print all {answer.num_rows:,}."
            print(f"evalkit: {more}", file=sys.stderr)


def _print(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, bool]) -> None:
    from rich.table import Table
    from rich.text import Text

    from evalkit.report.render.terminal import console as console_of

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for name, number in columns.items():
        table.add_column(Text(visible(name)), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row.values()))
    console_of().print(table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value))
