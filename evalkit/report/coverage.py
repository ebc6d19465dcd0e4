"""How much of what can be planned a model writes out in its first text (environment costbench).

Paths are counted by the built-in counter (`env/costbench/coverage.py`) and, where there is one, by a judge; the paper
has a judge alone. Source: section 5.1 of the paper; specification, section 7.5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evalkit.report import queries
from evalkit.report.bootstrap import mean_of_instances
from evalkit.report.cells import Cell
from evalkit.report.episodes import EpisodeResult
from evalkit.report.planning_cells import counted, digest_notes, is_blocked, share_interval
from evalkit.report.planning_queries import COUNTED
from evalkit.report.scores import AGENT, by_instance, kind_notes, packs_of, place, where
from evalkit.report.tables import Column, Table, method_of

_Shares = dict[str, list[float]]
"""Shares by instance."""


def coverage_tables(cells: Sequence[Cell], judged: Mapping[str, int]) -> tuple[Table, ...]:
    """Suites without blocks by agent; none where there is no such suite. `judged`: a judge's counts by episode id."""
    static = [cell for cell in cells if not is_blocked(cell)]
    if not static:
        return ()
    counts = ("planned", "silent", "judged") if judged else ("planned", "silent")
    titles = {"planned": "Runs", "silent": "Without text", "judged": "Judged runs"}
    share = (
        Column(key="judged_coverage", title="Judged", kind="percent", unit="% of 2^(N-1)"),
        judged_interval := Column(key="judged_coverage_interval", title="95 %", kind="interval", unit="% of 2^(N-1)"),
        method_of(judged_interval),
    )
    rows = [_coverage_row(cell, judged) for cell in static]
    table = Table(
        name="coverage",
        title="Coverage of the visible plan",
        columns=(
            *where(static),
            AGENT,
            Column(key="coverage", title="Coverage", kind="percent", unit="% of 2^(N-1)"),
            interval := Column(key="coverage_interval", title="95 %", kind="interval", unit="% of 2^(N-1)"),
            method_of(interval),
            Column(key="coverage_possible", title="of possible", kind="percent", unit="% of the paths there are"),
            Column(key="coverage_valid", title="valid", kind="percent", unit="% of the paths there are"),
            *(share if judged else ()),
            *(Column(key=f"{name}_runs", title=titles[name], kind="count") for name in counts),
        ),
        rows=tuple(rows),
        packs=packs_of(static),
        notes=(
            "distinct complete paths in the first text of a run, by the built-in counter, over 2^(N-1) as in the paper "
            "and over what tools are offered for (one less, without the tool for the whole)",
            "of runs with a text and a call; runs without any text have no visible plan and are counted apart",
            *kind_notes(rows, static, ("coverage_interval", "judged_coverage_interval")),
            *digest_notes(static),
        ),
        query=_query(static, judged),
    )
    return (table,)


def _query(cells: Sequence[Cell], judged: Mapping[str, int]) -> str:
    talked = f"{COUNTED} and metrics['paths_whole'] is not null"
    planned = f"{talked} and metrics['plan_paths'] is not null"
    methods = {"coverage_interval, coverage_kind": queries.CHOSEN}
    if judged:
        methods["judged_coverage, judged_coverage_interval, judged_coverage_kind, judged_runs"] = (
            "a judge's counts, of the run that --judged names"
        )
    return queries.by_instances(
        queries.place(cells),
        (
            queries.mean("coverage", "metrics['plan_paths'] / metrics['paths_whole']", scale=100, keep=planned),
            queries.mean(
                "coverage_possible", "metrics['plan_paths'] / metrics['paths_possible']", scale=100, keep=planned
            ),
            queries.mean(
                "coverage_valid", "metrics['plan_valid'] / metrics['paths_possible']", scale=100, keep=planned
            ),
            queries.count("planned_runs", planned),
            queries.count("silent_runs", f"{talked} and metrics['plan_paths'] is null"),
        ),
        where=[queries.suites(cells)],
        methods=methods,
    )


def _coverage_row(cell: Cell, judged: Mapping[str, int]) -> dict[str, Any]:
    talked = [one for one in cell.prefix if counted(one) and "paths_whole" in one.metrics]
    planned = [one for one in talked if "plan_paths" in one.metrics]

    def shares(episodes: Iterable[EpisodeResult], above: Callable[[EpisodeResult], float], below: str) -> _Shares:
        return by_instance((one, above(one) / one.metrics[below]) for one in episodes)

    def mean(values: _Shares) -> float | None:
        return 100 * mean_of_instances(values) if values else None

    read = [one for one in talked if one.id in judged]
    whole = shares(planned, lambda one: one.metrics["plan_paths"], "paths_whole")
    counted_by_judge = shares(read, lambda one: judged[one.id], "paths_whole")
    interval, kind = share_interval(cell, "coverage", whole)
    judged_interval, judged_kind = share_interval(cell, "judged_coverage", counted_by_judge)
    return {
        **place(cell),
        "coverage": mean(whole),
        "coverage_interval": interval,
        "coverage_kind": kind,
        "coverage_possible": mean(shares(planned, lambda one: one.metrics["plan_paths"], "paths_possible")),
        "coverage_valid": mean(shares(planned, lambda one: one.metrics["plan_valid"], "paths_possible")),
        "judged_coverage": mean(counted_by_judge),
        "judged_coverage_interval": judged_interval,
        "judged_coverage_kind": judged_kind,
        "planned_runs": len(planned),
        "silent_runs": len(talked) - len(planned),
        "judged_runs": len(read),
    }
