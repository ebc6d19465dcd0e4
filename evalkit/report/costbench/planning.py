"""The tables about planning at the lowest cost (environment costbench): paths, intent, errors, blocks.

The paper's names (Cost Gap, AED, ANED, EMR, UIHR, ITUR) are for figures that can stand beside the paper's: those of
suites whose every instance comes from the reference's own query files. Figures of other suites stand in tables of their
own, under plain names, with the suite's digest.

Source: Tables 4 and 6 and B.3 of the paper; specification, section 7. Two sets of exclusions are offered
(the reference's and the paper's); each figure says over how many runs it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.report import queries
from evalkit.report.costbench.adaptation import adaptation_tables
from evalkit.report.costbench.coverage import coverage_tables
from evalkit.report.costbench.planning_queries import (
    CALLS,
    COUNTED,
    COUNTS,
    ENVIRONMENT,
    GAP,
    INTERVALS,
    POPULATIONS,
    REACHED,
    Figures,
    answers,
    blocks_query,
    calls_query,
    digest_notes,
    interval,
    is_blocked,
    is_reference,
    paths,
    populations,
)
from evalkit.report.costbench.ties import ties_tables
from evalkit.report.published.papers import as_printed
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, kind_notes, packs_of, where
from evalkit.report.tables import Column, Table, method_of
from evalkit.results.cells import Cell

ALL_AGENTS = "(all)"


def planning_tables(source: RunData) -> tuple[Table, ...]:
    """All tables about the planning cells of a run."""
    planning_cells = [cell for cell in source.cells if cell.suite.environment == ENVIRONMENT]
    paper = [cell for cell in planning_cells if is_reference(cell)]
    own = [cell for cell in planning_cells if not is_reference(cell)]
    tables: list[Table] = []
    for group, named in ((paper, True), (own, False)):
        if group:
            tables += [
                _in_words(_main_table(source, group, named), named),
                _in_words(_goal_table(source, group, named), named),
            ]
    if planning_cells:
        tables += [
            _counts_table(source, planning_cells),
            _in_words(_calls_table(source, planning_cells), not own, "costbench_6"),
        ]
    for group, named in ((paper, True), (own, False)):
        blocked = [cell for cell in group if is_blocked(cell)]
        if blocked:
            tables.append(_in_words(_blocks_table(source, blocked, named), named))
    return (
        *tables,
        *ties_tables(source, planning_cells),
        *adaptation_tables(source, planning_cells),
        *coverage_tables(source, planning_cells),
    )


def _in_words(table: Table, named: bool, published: str = "costbench_4") -> Table:
    """A table as the paper prints it, if its names are the paper's."""
    return as_printed(table, published) if named else table


def _titles(named: bool) -> dict[str, str]:
    """Titles of the figures: the paper's, or plain ones."""
    if named:
        return {
            "gap": "Cost Gap",
            "clean": "(clean)",
            "ed": "AED",
            "ned": "ANED",
            "exact": "EMR",
            "any": "EMR any",
            "intent": "UIHR",
            "invalid": "ITUR",
        }
    return {
        "gap": "Gap",
        "clean": "(clean)",
        "ed": "Edit distance",
        "ned": "Normalised",
        "exact": "Same path",
        "any": "Optimal path",
        "intent": "Right answer",
        "invalid": "Invalid calls",
    }


def _path_columns(title: Mapping[str, str]) -> tuple[Column, ...]:
    return (
        Column(key="edit_distance", title=title["ed"], kind="fine", unit="calls"),
        Column(key="ned", title=title["ned"], kind="percent", unit="%"),
        ned := Column(key="ned_interval", title="95 %", kind="interval", unit="%"),
        method_of(ned),
        Column(key="exact", title=title["exact"], kind="percent", unit="% of runs"),
        exact := Column(key="exact_interval", title="95 %", kind="interval", unit="%"),
        method_of(exact),
        Column(key="exact_any", title=title["any"], kind="percent", unit="% of runs"),
    )


_PATH_INTERVALS = ("ned_interval", "exact_interval")


def _shares(source: RunData, keep: str, among: str = "episodes") -> dict[str, Figures]:
    """What path intervals are of: shares by name and episode."""
    return {name: source.values(queries.metric(name), keep, among) for name in ("ned", "exact")}


def _path_intervals(cell: Cell, shares: Mapping[str, Figures]) -> dict[str, Any]:
    (ned, ned_kind), (exact, exact_kind) = (interval(cell, name, figures) for name, figures in shares.items())
    return {"ned_interval": ned, "ned_kind": ned_kind, "exact_interval": exact, "exact_kind": exact_kind}


def _main_table(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """Table 4 of the paper, by the reference's rules."""
    title = _titles(named)
    query = queries.by_cell(cells, (*GAP, *paths(COUNTED), answers(COUNTED), *CALLS), methods=INTERVALS)
    shares = _shares(source, COUNTED)
    rows = [{**row, **_path_intervals(cell, shares)} for cell, row in source.by_cell(query, cells)]
    return Table(
        name="planning" if named else "planning_own",
        title="Planning" if named else "Planning, own suites",
        columns=(
            *where(cells),
            AGENT,
            Column(key="gap", title=title["gap"], kind="fine", unit="cost units"),
            Column(key="gap_clean", title=title["clean"], kind="fine", unit="cost units"),
            *_path_columns(title),
            Column(key="intent", title=title["intent"], kind="percent", unit="% of runs"),
            Column(key="invalid", title=title["invalid"], kind="percent", unit="% of calls"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "the reference's rules: runs without an answered call are left out, and so are runs that did not meet all "
            "blocks; a run that did not reach the goal has the worst distance and no path in common",
            f"{title['gap']}: cost above the optimum, over runs that reached the goal, only without blocks; (clean): "
            "without runs that have repeated or extra calls",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            f"{title['exact']}: the reference's path; {title['any']}: any path that was optimal where it was taken",
            f"{title['invalid']}: % of the calls in all runs; means are over instances; the next table counts the runs",
            *digest_notes(cells),
        ),
        query=query,
    )


def _counts_table(source: RunData, cells: Sequence[Cell]) -> Table:
    """The denominators of Table 4's figures."""
    query = queries.by_cell(cells, COUNTS)
    return Table(
        name="planning_counts",
        title="What planning figures are based on",
        columns=(
            *where(cells),
            AGENT,
            Column(key="path_runs", title="Paths, answers", kind="count", unit="runs"),
            Column(key="gap_runs", title="Gap", kind="count", unit="runs"),
            Column(key="clean_runs", title="Gap (clean)", kind="count", unit="runs"),
            Column(key="calls", title="Calls", kind="count", unit="calls"),
            Column(key="blocks_missed", title="Blocks missed", kind="count", unit="runs"),
            Column(key="no_call", title="No call", kind="count", unit="runs"),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        rows=tuple(row for _, row in source.by_cell(query, cells)),
        packs=packs_of(cells),
        notes=(
            "blocks missed: runs that did not meet all blocks, or whose truth is incomplete; no call: other runs "
            "without an answered call; figures of paths, answers and gap leave both out",
        ),
        query=query,
    )


def _goal_table(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """The paper's exclusions: runs that did not reach the goal do not count."""
    title = _titles(named)
    figures = (*paths(REACHED), answers(REACHED), queries.count("reached", REACHED), queries.count("episodes"))
    query = queries.by_cell(cells, figures, methods=INTERVALS)
    shares = _shares(source, REACHED)
    rows = [{**row, **_path_intervals(cell, shares)} for cell, row in source.by_cell(query, cells)]
    return Table(
        name="planning_goal_only" if named else "planning_goal_only_own",
        title="Planning where the goal was reached" if named else "Planning where the goal was reached, own suites",
        columns=(
            *where(cells),
            AGENT,
            *_path_columns(title),
            Column(key="intent", title=title["intent"], kind="percent", unit="% of runs"),
            Column(key="reached", title="Runs", kind="count"),
            Column(key="episodes", title="of", kind="count", unit="episodes"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "the paper's exclusions (B.3.2): runs that did not reach the goal are left out, for the answers too",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            *digest_notes(cells),
        ),
        query=query,
    )


ERRORS: Mapping[str, str] = {
    "repeated": "Repeated",
    "extra": "Extra",
    "wrong_parameter": "Wrong parameter",
    "unaccessible": "Unaccessible",
}
"""Table 6's kinds of error, with their titles."""

OTHERS: Mapping[str, str] = {"parallel_extra": "Parallel", "banned_calls": "Banned", "failed_calls": "Failed"}
"""Calls that are not errors of planning, or that nobody could foresee."""


def _calls_table(source: RunData, cells: Sequence[Cell]) -> Table:
    """Table 6 of the paper: what went wrong with calls."""
    query = calls_query(cells, (*ERRORS, *OTHERS, "calls"), tuple(ERRORS), ALL_AGENTS)
    groups = [[cell for cell in cells if cell.suite.name == name] for name in dict.fromkeys(map(_suite, cells))]
    rows_of = [cell for group in groups for cell in (group if len(group) == 1 else [*group, group[0]])]
    columns = {**ERRORS, "errors": "Total", **OTHERS, "calls": "Calls"}
    return Table(
        name="planning_calls",
        title="Planning errors",
        columns=(
            *where(cells),
            AGENT,
            *(Column(key=key, title=title, kind="count", unit="calls") for key, title in columns.items()),
        ),
        rows=tuple(row for _, row in source.by_cell(query, rows_of)),
        packs=packs_of(cells),
        notes=(
            "repeated: does again what was done; extra: after the goal; wrong parameter: wrong name or arguments; "
            "unaccessible: inputs not available yet; total: the sum of these four",
            "parallel: a further call in one turn, not among the calls; banned, failed: charged, and not errors",
            *digest_notes(cells),
        ),
        query=query,
    )


def _suite(cell: Cell) -> str:
    return cell.suite.name


def _blocks_table(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """Paths under blocks over three populations: the reference's depends on the agent, so agents differ in it."""
    title = _titles(named)
    query = blocks_query(cells)
    shares = {name: _shares(source, "true", f"({kept})") for name, kept in populations(cells).items()}
    rows = [
        {**row, **_path_intervals(cell, shares[row["population"]])}
        for cell, row in source.by_cell(query, [cell for cell in cells for _ in POPULATIONS])
    ]
    return Table(
        name="planning_blocks" if named else "planning_blocks_own",
        title="Planning under blocks" if named else "Planning under blocks, own suites",
        columns=(
            *where(cells),
            AGENT,
            Column(key="population", title="Over"),
            *_path_columns(title),
            Column(key="runs", title="Runs", kind="count"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "own: the runs that met all blocks (the reference's rule); slow agents keep more of them",
            "any agent: all runs of the instances in which the perfect agent meets all blocks: the same for all agents",
            "shared: runs that are in every agent's own set, by instance and replicate (the paper's rule)",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            *digest_notes(cells),
        ),
        query=query,
    )
