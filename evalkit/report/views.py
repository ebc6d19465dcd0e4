"""A run as SQL: DuckDB views over its log, and over what is derived of it. Documented in `docs/sql.md`.

`steps` and `calls` are read from the log's files as they lie there. `episodes` and `scores` are made anew by folding
the environments' scores over the logged facts, and only where a query names them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evalkit.errors import UsageError
from evalkit.report.cells import Cell
from evalkit.store.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

ATTEMPTS = 4
"""How often a query is tried while the run's files move under it."""

VIEWS: Mapping[str, str] = {
    "steps": "one row a step in effect: the columns of the log, `usd`, and `asked_at` as a timestamp",
    "calls": "one row a tool call, with what became of it",
    "episodes": "one row an episode that the log knows: how it ended, its score, what it took",
    "scores": "one row an episode and metric",
    "ledger": "one row a movement of money that is no step",
    "agents": "one row an agent of the manifest, with its tags",
    "instances": "one row an instance of the manifest, with the suite's line as JSON",
}
"""All views by name, with what they hold."""

_STEPS = """
create view steps as
select s.*, s.cost / 1e12 as usd, make_timestamp((s.started_at * 1e6)::bigint) as asked_at
from {source} s{filter}
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
        self._derived: dict[str, pa.Table] = {}

    def sql(self, query: str) -> "pa.Table":
        """What a query gives. Raises UsageError with DuckDB's words for a query that it refuses."""
        import duckdb

        for attempt in range(1, ATTEMPTS + 1):
            try:
                with duckdb.connect() as connection:
                    self._open(connection, query)
                    return _answer(connection.sql(query))
            except duckdb.IOException as flaw:
                if attempt == ATTEMPTS:
                    raise UsageError(f"The query could not be answered: {flaw}") from flaw
            except duckdb.Error as flaw:
                known = ", ".join(VIEWS)
                raise UsageError(f"The query could not be answered: {flaw}\nThe views are {known}.") from flaw
        raise AssertionError("neither answered nor raised")

    def _open(self, connection: "duckdb.DuckDBPyConnection", query: str) -> None:
        connection.execute("set timezone = 'UTC'")
        _make_steps(connection, self._run)
        manifest = read_manifest(self._run)
        tables = {"ledger": _ledger(self._run), "agents": _agents(manifest), "instances": _instances(manifest)}
        tables |= self._derived or {"episodes": _episode_rows(()), "scores": _score_rows(())}
        for name, table in tables.items():
            connection.register(name, table)
        if not self._derived and _needs_results(query):
            cells = self._results()
            self._derived = {"episodes": _episode_rows(cells), "scores": _score_rows(cells)}
            for name, table in self._derived.items():
                connection.register(name, table)


def open_views(run: Path) -> Views:
    """The views of a run directory. Raises RunError if it is none."""

    def results() -> Sequence[Cell]:
        from evalkit.report.report import report

        return report(run).cells

    read_manifest(run)
    return Views(run, results)


_DERIVED = re.compile(r"\b(episodes|scores)\b", re.IGNORECASE)


def answer_csv(answer: "pa.Table") -> bytes:
    """What a query gave as CSV, with a line of names."""
    import pyarrow as pa
    from pyarrow import csv

    out = pa.BufferOutputStream()
    csv.write_csv(answer, out)
    return bytes(out.getvalue())


def numbers(answer: "pa.Table") -> dict[str, bool]:
    """The columns of what a query gave: whether each holds numbers."""
    import pyarrow as pa

    kinds = pa.types
    return {
        field.name: kinds.is_integer(field.type) or kinds.is_floating(field.type) or kinds.is_decimal(field.type)
        for field in answer.schema
    }


def _needs_results(query: str) -> bool:
    """Whether a query may read what must be made first; its columns are known without."""
    return bool(_DERIVED.search(query)) and not query.lstrip().lower().startswith("describe")


def _answer(relation: "duckdb.DuckDBPyRelation | None") -> "pa.Table":
    """The rows; none of a statement that gives none, as `copy ... to`."""
    import pyarrow as pa

    return pa.table({}) if relation is None else relation.to_arrow_table()


def _make_steps(connection: "duckdb.DuckDBPyConnection", run: Path) -> None:
    from evalkit.store.reader import step_files, superseded
    from evalkit.store.schema import steps_table

    files = [str(path) for path in step_files(run)]
    gone = superseded(run)
    connection.register("superseded", gone)
    if files:
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
        source = f"read_parquet([{listed}])"
    else:
        connection.register("no_steps", steps_table([]))
        source = "no_steps"
    keep = " anti join superseded using (episode, take, step)" if gone.num_rows else ""
    connection.execute(_STEPS.format(source=source, filter=keep))
    connection.execute(_CALLS)


def _ledger(run: Path) -> "pa.Table":
    from evalkit.store.reader import read_ledger
    from evalkit.store.schema import ledger_table

    return ledger_table(read_ledger(run))


def _agents(manifest: Manifest) -> "pa.Table":
    import pyarrow as pa

    names = ("name", "lane", "provider", "model", "policy", "pack", "notes", "tags", "marks", "price_source")
    rows = [{name: getattr(agent, name) for name in names} for agent in manifest.agents.values()]
    return _table(rows, tags=pa.list_(pa.string()), marks=pa.list_(pa.string()))


def _instances(manifest: Manifest) -> "pa.Table":
    return _table(
        [
            {
                "suite": suite.name,
                "base": suite.base,
                "axes": orjson.dumps(suite.axes).decode(),
                "environment": suite.environment,
                "instance": one.id,
                "stratum": one.stratum,
                "digest": one.digest,
                "line": orjson.dumps(one.line).decode(),
            }
            for suite in manifest.suites.values()
            for one in suite.instances
        ]
    )


def _table(rows: Sequence[Mapping[str, Any]], **kinds: "pa.DataType") -> "pa.Table":
    """Rows of texts and flags; `kinds`: of the columns that may hold nothing."""
    import pyarrow as pa

    table = pa.Table.from_pylist(list(rows))
    for name, kind in kinds.items():
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(kind))
    return table


def _episode_rows(cells: Iterable[Cell]) -> "pa.Table":
    """The view `episodes`."""
    import pyarrow as pa

    text, count, number, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    kinds = {
        **dict.fromkeys(("episode", "environment", "suite", "base", "axes", "instance", "stratum", "agent"), text),
        "replicate": count,
        "ending": text,
        **dict.fromkeys(("finished", "used"), flag),
        "score": number,
        "solved": flag,
        **dict.fromkeys(("steps", "periods", "no_action", "without_call"), count),
        **dict.fromkeys(("cost", "tokens_in", "tokens_out", "tokens_cached_read"), count),
        "latency_s": number,
        "path": pa.list_(text),
    }
    same = [name for name in kinds if name not in {"episode", "base", "axes", "used", "path"}]
    rows = [
        {
            **{name: getattr(episode, name) for name in same},
            "episode": episode.id,
            "base": cell.suite.base,
            "axes": orjson.dumps(episode.axes).decode(),
            "used": used,
            "path": list(episode.path),
        }
        for cell, episode, used in _used(cells)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def _score_rows(cells: Iterable[Cell]) -> "pa.Table":
    """The view `scores`."""
    import pyarrow as pa

    rows: dict[str, list[Any]] = {name: [] for name in (*_SCORED, "used", "metric", "value")}
    for _, episode, used in _used(cells):
        if episode.score is None:
            continue
        values = {"score": episode.score, "solved": float(episode.solved), **episode.metrics}
        place = (episode.id, *(getattr(episode, name) for name in _SCORED[1:]), used)
        for metric, value in values.items():
            for column, part in zip(rows.values(), (*place, metric, float(value)), strict=True):
                column.append(part)
    kinds = [pa.string()] * 6 + [pa.int64(), pa.bool_(), pa.string(), pa.float64()]
    return pa.table({name: pa.array(column, kind) for (name, column), kind in zip(rows.items(), kinds, strict=True)})


_SCORED = ("episode", "environment", "suite", "instance", "stratum", "agent", "replicate")


def _used(cells: Iterable[Cell]) -> Iterable[tuple[Cell, Any, bool]]:
    """Every episode with its cell, and whether estimates stand on it."""
    for cell in cells:
        prefix = {episode.id for episode in cell.prefix}
        for episode in cell.episodes:
            yield cell, episode, episode.id in prefix
