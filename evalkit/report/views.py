"""A run as SQL: DuckDB views over its log, and over what is derived of it. Documented in `docs/sql.md`.

What only some runs have comes after all other columns, so that these keep their places.

`steps`, `log` and `calls` are read from the log's files as they lie there (`log_rows.py`). `episodes` and
`scores` are made by folding the environments' scores over the logged facts, only where a query names them, and kept
(`derived.py`); `periods` is made again (`periods.py`), and so is `instances`, for which every suite is read whole. A
query reads these views and nothing else: it has neither the disk nor the network, and cannot change that.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyarrow import csv

from evalkit.errors import RunError, UsageError
from evalkit.frozen.manifests import read_manifest
from evalkit.report.periods import VIEW as PERIODS
from evalkit.report.periods import period_scores
from evalkit.report.run_data import ASKED_AT, ROLE, SCORES
from evalkit.report.tables import as_cell
from evalkit.results.cells import Cell
from evalkit.results.derived import read_cells
from evalkit.results.rows import agent_table, cell_table, episode_table, instance_table
from evalkit.store.files.schema import UNASKED, ledger_table
from evalkit.store.reading.reader import read_ledger, step_segments, superseded

if TYPE_CHECKING:
    import duckdb

    from evalkit.report.log_rows import LogRows


ATTEMPTS = 4
"""How often a query is tried while the run's files move under it."""

VIEWS: Mapping[str, str] = {
    "steps": "one row a step in effect: the columns of the log, `usd`, and `asked_at` as a timestamp",
    "calls": "one row a tool call, with what became of it",
    "log": "steps and asks, with those too that a later take superseded: what was paid for",
    "cells": "one row an agent and suite, with how many episodes are planned",
    "episodes": "one row an episode that the log knows: how it ended, its score and metrics, what it took",
    "scores": "one row an episode and metric",
    "periods": "one row an episode and period, with score, regret, cost and calls",
    "ledger": "one row a movement of money that is no step",
    "agents": "one row an agent of the manifest, with its tags and prices",
    "instances": "one row an instance of the manifest, with the suite's line as JSON",
    "asks": "one row a request of an agent that is code, with its `role`: a step that it led to costs nothing itself",
}
"""All views by name, with what they hold."""

_LOG = """
create view log as
select s.* exclude ({of_asks}), s.cost / 1e12 as usd, {asked_at},
    {of_asks}
from log_rows s
"""

_STEPS = "create view steps as select * from log{filter}"

_ASKS = """
create view asks as
select episode, environment, suite, instance, agent, replicate, take, step,
    base_take as line, ask_key as key, ask_n as n, {role}, reply, raw, request_digest,
    columns('tokens_.*'), cost, usd, latency_s, queue_s, attempts, started_at, asked_at, served_model, fingerprint,
    response_id, finish, worker
from log where row_kind = 'ask'
"""

_CALLS = """
create view calls as
select episode, environment, suite, instance, agent, replicate, period, turn, step, call,
    fact->>'$.tool' as tool, fact->>'$.outcome' as outcome,
    ((reply->'$.calls')::json[])[call + 1]->>'$[2]' as arguments, fact as facts
from (
    select *, unnest(coalesce((facts->'$.calls')::json[], [])) as fact,
        generate_subscripts(coalesce((facts->'$.calls')::json[], []), 1) - 1 as call
    from steps
)
"""


class Views:
    """The views of one run. Each query sees the log as it is then."""

    def __init__(self, run: Path, results: Callable[[], Sequence[Cell]]) -> None:
        """`results`: makes the cells of the run as it is now; called once, by the first query that needs them."""
        self._run = run
        self._results = results
        self._cells: Sequence[Cell] | None = None
        self._episodes: pa.Table | None = None
        self._periods: pa.Table | None = None
        self._asking: list[duckdb.DuckDBPyConnection] = []

    def sql(self, query: str) -> pa.Table:
        """What a query gives. Raises UsageError with DuckDB's words for a query that it refuses, CorruptLogError."""
        import duckdb

        for _ in range(ATTEMPTS):
            with self._connected() as connection:
                log = self._open(connection, query)
                try:
                    found = connection.sql(query)
                    # None of a statement that gives no rows, as a comment.
                    return pa.table({}) if found is None else found.to_arrow_table()
                except duckdb.Error as flaw:
                    if isinstance(log.flaw, FileNotFoundError):
                        continue  # compaction has moved the file: look again
                    if log.flaw is not None:
                        raise log.flaw from flaw
                    raise UsageError(f"The query could not be answered: {flaw}\n{_hint(flaw)}") from flaw
        raise RunError(f"{self._run}: its files keep moving while they are read. Ask again.")

    @contextmanager
    def _connected(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A connection that holds nothing yet, and has nothing else from the beginning: to take a query apart DuckDB
        opens the files that it names."""
        import duckdb

        with duckdb.connect() as connection, TemporaryDirectory(prefix="evalkit-") as room:
            _shut(connection, room)
            self._asking.append(connection)
            try:
                yield connection
            finally:
                self._asking.remove(connection)

    def interrupt(self) -> None:
        """End the queries that are being answered, from another thread: they raise UsageError."""
        for connection in tuple(self._asking):
            connection.interrupt()

    def _open(self, connection: "duckdb.DuckDBPyConnection", query: str) -> "LogRows":
        periods, instances = (_names_view(connection, query, name) for name in ("periods", "instances"))
        manifest = read_manifest(self._run)
        log = _make_steps(connection, self._run)
        derived = _DERIVED.search(query) and not query.lstrip().lower().startswith("describe")  # columns are known
        if self._episodes is None and (periods or derived):
            self._cells = self._results()
            self._episodes = episode_table(self._cells, manifest)
        if self._periods is None and periods:
            self._periods = period_scores(self.sql, self._cells or ())
        tables = {
            "ledger": _ledger(self._run),
            "agents": agent_table(manifest),
            "instances": instance_table(manifest.suites.values() if instances else ()),
            "cells": cell_table(manifest),
            "episodes": episode_table((), manifest) if self._episodes is None else self._episodes,
            "period_scores": period_scores(self.sql, ()) if self._periods is None else self._periods,
        }
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(SCORES)
        connection.execute(PERIODS)
        return log


def open_views(run: Path) -> Views:
    """The views of a run directory. Raises RunError if it is none."""

    def results() -> Sequence[Cell]:
        return read_cells(run)[1]

    read_manifest(run)
    return Views(run, results)


_DERIVED = re.compile(r"\b(episodes|scores)\b", re.IGNORECASE)


def _names_view(connection: "duckdb.DuckDBPyConnection", query: str, view: str) -> bool:
    """Whether a query reads a view, whose name may be that of a column too. `connection`: without views yet."""
    import duckdb

    if view not in query.lower() or query.lstrip().lower().startswith("describe"):
        return False
    try:
        return any(name.lower() == view for name in connection.get_table_names(query))
    except duckdb.Error:
        # Not a single statement that DuckDB can take apart; answering says what is wrong with it.
        return True


def rows_of(answer: pa.Table) -> list[dict[str, Any]]:
    """The rows of what a query gave, by column; a map is a dict."""
    rows: list[dict[str, Any]] = answer.to_pylist(maps_as_pydicts="lossy")
    return rows


def plain(value: object) -> str:
    """What JSON has no word for, as text: bytes in hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else str(value)


def answer_csv(answer: pa.Table) -> bytes:
    """What a query gave as CSV, with a line of names; lists, structs and maps as JSON, bytes in hexadecimal digits,
    texts as in every CSV file (`as_cell`)."""
    out, names = pa.BufferOutputStream(), [as_cell(name) for name in answer.column_names]
    csv.write_csv(pa.table([_flat(column) for column in answer.columns], names=names), out)
    return bytes(out.getvalue())


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column as CSV can hold it."""
    kind = column.type
    if pa.types.is_nested(kind):
        values = column.to_pylist(maps_as_pydicts="lossy")
        return pa.array(
            [
                None if value is None else orjson.dumps(value, plain, orjson.OPT_NON_STR_KEYS).decode()
                for value in values
            ],
            pa.string(),
        )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return pa.array([None if value is None else as_cell(str(value)) for value in column.to_pylist()], pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_interval(kind):
        return pa.array([None if value is None else plain(value) for value in column.to_pylist()], pa.string())
    return column


def numbers(answer: pa.Table) -> dict[str, bool]:
    """The columns of what a query gave: whether each holds numbers."""
    kinds = pa.types
    return {
        field.name: kinds.is_integer(field.type) or kinds.is_floating(field.type) or kinds.is_decimal(field.type)
        for field in answer.schema
    }


def _shut(connection: "duckdb.DuckDBPyConnection", room: str) -> None:
    """Leave a connection nothing but what it holds; `room`: a folder for what outgrows the memory."""
    connection.execute("set temp_directory = '{}'".format(room.replace("'", "''")))
    connection.execute("set timezone = 'UTC'")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _hint(flaw: Exception) -> str:
    import duckdb

    if isinstance(flaw, duckdb.PermissionException) or "configuration has been locked" in str(flaw):
        return (
            "A query reads the run's views and nothing else: it opens and writes no file, loads nothing and sets "
            "nothing. To keep an answer, send it to a file: `--csv > FILE` or `--json > FILE`."
        )
    return f"The views are {', '.join(VIEWS)}."


def _make_steps(connection: "duckdb.DuckDBPyConnection", run: Path) -> "LogRows":
    from evalkit.report.log_rows import LogRows  # pyarrow's data sets import pandas, where it is installed

    log = LogRows(step_segments(run))
    gone = superseded(run)
    connection.register("log_rows", log)
    connection.register("superseded", gone)
    keep = " anti join superseded using (episode, take, step)" if gone.num_rows else ""
    connection.execute(_LOG.format(of_asks=", ".join(UNASKED), asked_at=ASKED_AT))
    connection.execute(_STEPS.format(filter=keep + " where row_kind = 'step'"))
    connection.execute(_ASKS.format(role=ROLE))
    connection.execute(_CALLS)
    return log


def _ledger(run: Path) -> pa.Table:
    return ledger_table(read_ledger(run))
