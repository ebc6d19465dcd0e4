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
from evalkit.report.costbench.paths import adaptation_tables, coverage_tables, greedy_tables
from evalkit.report.costbench.planning_queries import (
    CALLS,
    COUNTED,
    COUNTS,
    ELIGIBLE,
    ENVIRONMENT,
    GAP,
    INTERVALS,
    POPULATIONS,
    REACHED,
    TIED_CELLS,
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
    ties_query,
)
from evalkit.report.published.papers import as_printed
from evalkit.report.run_data import RunData
from evalkit.report.scores import cell_table, kind_notes
from evalkit.report.tables import Column, Table, columns_of, estimated
from evalkit.results.cells import Cell

ALL_AGENTS = "(all)"


def planning_tables(source: RunData) -> tuple[Table, ...]:
    """All tables about the planning cells of a run."""
    cells = [cell for cell in source.cells if cell.suite.environment == ENVIRONMENT]
    paper = [cell for cell in cells if is_reference(cell)]
    own = [cell for cell in cells if not is_reference(cell)]
    groups = [(group, named) for group, named in ((paper, True), (own, False)) if group]
    tables = [table for group, named in groups for make in (_main, _goal) for table in (make(source, group, named),)]
    if cells:
        tables += [_counts(source, cells), _calls(source, cells, not own)]
    for group, named in groups:
        blocked = [cell for cell in group if is_blocked(cell)]
        tables += [_blocks(source, blocked, named)] if blocked else []
    tables += [_redundant(source, cells)] if cells else []
    others = (*greedy_tables(source, cells), *adaptation_tables(source, cells), *coverage_tables(source, cells))
    return (*tables, *_ties(source, cells), *others)


PAPERS = {
    "gap": "Cost Gap",
    "ed": "AED",
    "ned": "ANED",
    "exact": "EMR",
    "any": "EMR any",
    "intent": "UIHR",
    "invalid": "ITUR",
}
PLAIN_WORDS = {
    "gap": "Gap",
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
        *estimated(Column(key="ned", title=title["ned"], kind="percent", unit="%")),
        Column(key="exact", title=title["exact"], kind="percent", unit="% of runs"),
        *estimated(Column(key="exact", title="", unit="%"))[1:],
        Column(key="exact_any", title=title["any"], kind="percent", unit="% of runs"),
    )


_PATH_INTERVALS = ("ned_interval", "exact_interval")


def _shares(source: RunData, keep: str, among: str = "episodes") -> dict[str, Figures]:
    """What path intervals are of: shares by name and episode."""
    return {name: source.values(queries.metric(name), keep, among) for name in ("ned", "exact")}


def _path_intervals(cell: Cell, shares: Mapping[str, Figures]) -> dict[str, Any]:
    (ned, ned_kind), (exact, exact_kind) = (interval(cell, figures) for figures in shares.values())
    return {"ned_interval": ned, "ned_kind": ned_kind, "exact_interval": exact, "exact_kind": exact_kind}


def _named(table: Table, named: bool) -> Table:
    """A table as the paper prints it, if its names are the paper's."""
    return as_printed(table, "costbench_4") if named else table


def _main(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """Table 4 of the paper, by the reference's rules."""
    title = PAPERS if named else PLAIN_WORDS
    shares = _shares(source, COUNTED)
    table = cell_table(
        source,
        cells,
        name="planning" if named else "planning_own",
        title="Planning" if named else "Planning, own suites",
        query=queries.by_cell(cells, (*GAP, *paths(COUNTED), answers(COUNTED), *CALLS), methods=INTERVALS),
        more=lambda cell, _: _path_intervals(cell, shares),
        columns=(
            *columns_of("fine", "cost units", gap=title["gap"], gap_clean="(clean)"),
            *_path_columns(title),
            Column(key="intent", title=title["intent"], kind="percent", unit="% of runs"),
            Column(key="invalid", title=title["invalid"], kind="percent", unit="% of calls"),
        ),
        notes=lambda rows: (
            "the reference's rules: runs without an answered call are left out, and so are runs that did not meet all "
            "blocks; a run that did not reach the goal has the worst distance and no path in common",
            f"{title['gap']}: cost above the optimum, over runs that reached the goal, only without blocks; (clean): "
            "without runs that have repeated or extra calls",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            f"{title['exact']}: the reference's path; {title['any']}: any path that was optimal where it was taken",
            f"{title['invalid']}: % of the calls in all runs; means are over instances; the next table counts the runs",
            *digest_notes(cells),
        ),
    )
    return _named(table, named)


def _counts(source: RunData, cells: Sequence[Cell]) -> Table:
    """The denominators of Table 4's figures."""
    return cell_table(
        source,
        cells,
        name="planning_counts",
        title="What planning figures are based on",
        query=queries.by_cell(cells, COUNTS),
        columns=(
            *columns_of("count", "runs", path_runs="Paths, answers", gap_runs="Gap", clean_runs="Gap (clean)"),
            Column(key="calls", title="Calls", kind="count", unit="calls"),
            *columns_of("count", "runs", blocks_missed="Blocks missed", no_call="No call"),
            Column(key="episodes", title="Episodes", kind="count"),
        ),
        notes=lambda _: (
            "blocks missed: runs that did not meet all blocks, or whose truth is incomplete; no call: other runs "
            "without an answered call; figures of paths, answers and gap leave both out",
        ),
    )


def _goal(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """The paper's exclusions: runs that did not reach the goal do not count."""
    title = PAPERS if named else PLAIN_WORDS
    figures = (*paths(REACHED), answers(REACHED), queries.count("reached", REACHED), queries.count("episodes"))
    shares = _shares(source, REACHED)
    table = cell_table(
        source,
        cells,
        name="planning_goal_only" if named else "planning_goal_only_own",
        title="Planning where the goal was reached" if named else "Planning where the goal was reached, own suites",
        query=queries.by_cell(cells, figures, methods=INTERVALS),
        more=lambda cell, _: _path_intervals(cell, shares),
        columns=(
            *_path_columns(title),
            Column(key="intent", title=title["intent"], kind="percent", unit="% of runs"),
            Column(key="reached", title="Runs", kind="count"),
            Column(key="episodes", title="of", kind="count", unit="episodes"),
        ),
        notes=lambda rows: (
            "the paper's exclusions (B.3.2): runs that did not reach the goal are left out, for the answers too",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            *digest_notes(cells),
        ),
    )
    return _named(table, named)


ERRORS: Mapping[str, str] = {
    "repeated": "Repeated",
    "extra": "Extra",
    "wrong_parameter": "Wrong parameter",
    "unaccessible": "Unaccessible",
}
"""Table 6's kinds of error, with their titles."""

OTHERS: Mapping[str, str] = {"parallel_extra": "Parallel", "banned_calls": "Banned", "failed_calls": "Failed"}
"""Calls that are not errors of planning, or that nobody could foresee."""


def _calls(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """Table 6 of the paper: what went wrong with calls."""
    suites = dict.fromkeys(cell.suite.name for cell in cells)
    groups = [[cell for cell in cells if cell.suite.name == name] for name in suites]
    table = cell_table(
        source,
        cells,
        name="planning_calls",
        title="Planning errors",
        query=calls_query(cells, (*ERRORS, *OTHERS, "calls"), tuple(ERRORS), ALL_AGENTS),
        rows_of=[cell for group in groups for cell in (group if len(group) == 1 else [*group, group[0]])],
        columns=columns_of("count", "calls", **ERRORS, errors="Total", **OTHERS, calls="Calls"),
        notes=lambda _: (
            "repeated: does again what was done; extra: after the goal; wrong parameter: wrong name or arguments; "
            "unaccessible: inputs not available yet; total: the sum of these four",
            "parallel: a further call in one turn, not among the calls; banned, failed: charged, and not errors",
            *digest_notes(cells),
        ),
    )
    return as_printed(table, "costbench_6") if named else table


REDUNDANT = (
    queries.inside("calls", f"sum(metrics['calls']::bigint) filter (where {ELIGIBLE})"),
    queries.inside("again", f"sum(metrics['repeated']::bigint + metrics['extra']::bigint) filter (where {ELIGIBLE})"),
    queries.derived("redundant", "100 * sum(again) / nullif(sum(calls), 0)"),
    *GAP,
    queries.derived("raw", "favg(gap order by instance) - favg(gap_clean order by instance)"),
)


def _redundant(source: RunData, cells: Sequence[Cell]) -> Table:
    """Redundant calls beside what they do to the cost gap. Source: the paper's appendix D.2.1."""
    return cell_table(
        source,
        cells,
        name="planning_redundant",
        title="Redundant calls and the cost gap",
        query=queries.by_cell(cells, REDUNDANT),
        columns=(
            Column(key="redundant", title="Redundant", kind="percent", unit="% of calls", digits=2),
            *columns_of("fine", "cost units", gap="Gap", gap_clean="(clean)", raw="Difference"),
        ),
        notes=lambda rows: (
            "redundant: repeated and extra calls, of all calls; difference: of the gap over all runs from that over "
            "runs without such calls, which the paper calls the noise of the raw cost",
            *_correlation([(row["redundant"], row["raw"]) for row in rows]),
            *digest_notes(cells),
        ),
    )


def _correlation(pairs: Sequence[tuple[float | None, float | None]]) -> tuple[str, ...]:
    """Spearman's rank correlation of the two columns over the rows, in words; nothing where it is not defined."""
    from scipy.stats import spearmanr

    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if len(known) < 3 or any(len({pair[i] for pair in known}) < 2 for i in range(2)):
        return ()
    value = float(spearmanr([one for one, _ in known], [other for _, other in known]).statistic)
    return (
        f"over the {len(known)} rows, redundant calls and the difference have Spearman's rank correlation {value:.2f}",
    )


def _blocks(source: RunData, cells: Sequence[Cell], named: bool) -> Table:
    """Paths under blocks over three populations: the reference's depends on the agent, so agents differ in it."""
    shares = {name: _shares(source, "true", f"({kept})") for name, kept in populations(cells).items()}
    table = cell_table(
        source,
        cells,
        name="planning_blocks" if named else "planning_blocks_own",
        title="Planning under blocks" if named else "Planning under blocks, own suites",
        query=blocks_query(cells),
        rows_of=[cell for cell in cells for _ in POPULATIONS],
        more=lambda cell, row: _path_intervals(cell, shares[row["population"]]),
        columns=(
            Column(key="population", title="Over"),
            *_path_columns(PAPERS if named else PLAIN_WORDS),
            Column(key="runs", title="Runs", kind="count"),
        ),
        notes=lambda rows: (
            "own: the runs that met all blocks (the reference's rule); slow agents keep more of them",
            "any agent: all runs of the instances in which the perfect agent meets all blocks: the same for all agents",
            "shared: runs that are in every agent's own set, by instance and replicate (the paper's rule)",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            *digest_notes(cells),
        ),
    )
    return _named(table, named)


def _ties(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Cells in which some run was optimal on another path than the reference's; none if there is none.

    Up to 7 % of instances have several paths of the same cost. Source: specification, section 6.4.
    """
    tied = {(row["suite"], row["agent"]) for row in source.rows(TIED_CELLS)} if cells else set()
    shown = [cell for cell in cells if (cell.suite.name, cell.agent) in tied]
    if not shown:
        return ()
    table = cell_table(
        source,
        shown,
        name="planning_ties",
        title="Optimal on another path than the reference's",
        query=ties_query(shown),
        columns=(*columns_of("count", runs="Runs", instances="Instances"), Column(key="which", title="Which")),
        notes=lambda _: ("as cheap as the reference's path, or optimal from where it was taken; not the same calls",),
    )
    return (table,)
