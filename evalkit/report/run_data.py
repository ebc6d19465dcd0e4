"""What a report's tables are made of: a run's views in one DuckDB connection, asked by each table's own query.

A table that shows its SQL is made by that SQL: its builder asks `RunData.rows`, and adds what SQL cannot say, intervals
and tests. Sums of fractions state their order (`favg(score order by replicate)`), and all others are of integers: so
neither the number of threads nor the order of rows reaches a figure.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evalkit.errors import UsageError
from evalkit.frozen.manifest import Manifest
from evalkit.results.cells import Cell
from evalkit.results.rows import agent_table, cells_view, episode_table

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

SCORES = """
create view scores as
select episode, environment, suite, base, axes, instance, stratum, agent, prompts, replicate, used,
    unnest(['score', 'solved'] || map_keys(metrics)) as metric,
    unnest([score, solved::double] || map_values(metrics)) as value
from episodes where finished
"""
"""The view `scores`, over `episodes`."""

ROLE = "facts->>'$.model' as role"
"""A column of `asks`."""

ASKED_AT = "make_timestamp(try_cast(started_at * 1e6 as bigint)) as asked_at"
"""A column of `steps` and `log`."""


class RunData:
    """A run at one moment, as SQL sees it and as tests and intervals need it."""

    def __init__(
        self,
        manifest: Manifest,
        cells: Sequence[Cell],
        logged: "Mapping[str, pa.Table]" = MappingProxyType({}),
        judged: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
        threads: int = 1,
    ) -> None:
        """`logged`: the views `steps`, `log`, `ledger`, `asks`, as far as queries ask for them, with the columns that
        these name. `judged`: how many paths judges counted in a visible plan, by what they counted and by episode id.
        `threads`: of DuckDB; figures do not depend on it.
        """
        import duckdb

        self.manifest = manifest
        self.coded = any(agent.code is not None for agent in manifest.agents.values())
        """Whether agents are code, so that requests are `asks`."""
        self.cells = tuple(cells)
        self.judged = judged
        self._connection = duckdb.connect()
        self._connection.execute(f"set timezone = 'UTC'; set threads = {threads}; set temp_directory = ''")
        tables = {
            **logged,
            "agents": agent_table(manifest),
            "cells": cells_view(self.cells),
            "episodes": episode_table(self.cells, manifest),
        }
        for name, table in tables.items():
            self._register(name, table)
        # DuckDB converts the map of metrics of an Arrow table anew for each query, which takes longer than the query.
        self._connection.execute("create table kept as select * from episodes")
        self._connection.unregister("episodes")
        self._connection.execute("alter table kept rename to episodes")
        self._connection.execute(SCORES)
        self._connection.execute("set enable_external_access = false; set lock_configuration = true")

    def _register(self, name: str, table: "pa.Table") -> None:
        made = [ASKED_AT] if "started_at" in table.column_names else []
        if name == "asks" and "facts" in table.column_names:
            made += [ROLE, "base_take as line"]
        if not made:
            self._connection.register(name, table)
            return
        self._connection.register(f"{name}_rows", table)
        self._connection.execute(" ".join((f"create view {name} as select *,", ", ".join(made), f"from {name}_rows")))

    def rows(self, query: str) -> list[Row]:
        """What a query over the views gives, in its order. Raises UsageError with DuckDB's words where it refuses."""
        names, answers = self._answers(query)
        return [dict(zip(names, row, strict=True)) for row in answers]

    def _answers(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """(names of the columns, rows)."""
        import duckdb

        try:
            answer = self._connection.execute(query)
            return [column[0] for column in answer.description], answer.fetchall()
        except duckdb.Error as flaw:
            raise UsageError(f"The query of a table could not be answered: {flaw}\n{query}") from flaw

    def values(self, value: str, keep: str = "true", among: str = "episodes") -> dict[str, float]:
        """By episode id: what `value` is of those that `keep` keeps, without those of which it is null."""
        query = " ".join(("select episode,", value, "as value from", among, "where", keep))
        return {episode: figure for episode, figure in self._answers(query)[1] if figure is not None}

    def by_cell(self, query: str, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Row]]:
        """Cells with their rows, of a query that gives one for each of these, in their order.

        A row's axes are as the sweep had them: SQL gives them as text.
        """
        for cell, row in zip(cells, self.rows(query), strict=True):
            figures = {key: value for key, value in row.items() if not key.startswith("axis:")}
            yield cell, {**place(cell), **figures, "suite": place(cell)["suite"]}


def place(cell: Cell) -> dict[str, Any]:
    """Which cell: its suite, what the sweep varied of it, its agent."""
    axes = {f"axis:{axis}": value for axis, value in cell.suite.axes.items()}
    return {"suite": cell.suite.base if axes else cell.suite.name, **axes, "agent": cell.agent}
