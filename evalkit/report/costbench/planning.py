"""The tables about planning at the lowest cost (environment costbench): paths, intent, errors, blocks.

The paper's names (Cost Gap, AED, ANED, EMR, UIHR, ITUR) are for figures that can stand beside the paper's: those of
suites whose every instance comes from the reference's own query files. Figures of other suites stand in tables of their
own, under plain names, with the suite's digest.

Source: Tables 4 and 6 and B.3 of the paper; specification, section 7. Two sets of exclusions are offered
(the reference's and the paper's); each figure says over how many runs it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.report.costbench.adaptation import adaptation_tables
from evalkit.report.costbench.coverage import coverage_tables
from evalkit.report.costbench.planning_cells import (
    ENVIRONMENT,
    Keep,
    counted,
    digest_notes,
    interval,
    is_blocked,
    is_reference,
    mean,
    reached,
    size,
)
from evalkit.report.costbench.planning_queries import blocks_query, calls_query, counts_query, goal_query, main_query
from evalkit.report.costbench.ties import ties_tables
from evalkit.report.published.printed import as_printed
from evalkit.report.run_data import RunData, place
from evalkit.report.scores import AGENT, kind_notes, packs_of, where
from evalkit.report.tables import Column, Table, method_of
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult

ALL_AGENTS = "(all)"


def planning_tables(source: RunData) -> tuple[Table, ...]:
    """All tables about the planning cells of a run."""
    planning_cells = [cell for cell in source.cells if cell.suite.environment == ENVIRONMENT]
    paper = [cell for cell in planning_cells if is_reference(cell)]
    own = [cell for cell in planning_cells if not is_reference(cell)]
    tables: list[Table] = []
    for group, named in ((paper, True), (own, False)):
        if group:
            tables += [_in_words(_main_table(group, named), named), _in_words(_goal_table(group, named), named)]
    if planning_cells:
        tables += [_counts_table(planning_cells), _in_words(_calls_table(planning_cells), not own, "costbench_6")]
    for group, named in ((paper, True), (own, False)):
        blocked = [cell for cell in group if is_blocked(cell)]
        if blocked:
            tables.append(_in_words(_blocks_table(blocked, named), named))
    return (
        *tables,
        *ties_tables(planning_cells),
        *adaptation_tables(planning_cells),
        *coverage_tables(planning_cells, source.judged),
    )


def _in_words(table: Table, named: bool, published: str = "costbench_4") -> Table:
    """A table as the paper prints it, if its names are the paper's."""
    return as_printed(table, published) if named else table


def _plain_run(episode: EpisodeResult) -> bool:
    return reached(episode) and not episode.metrics["repeated"] and not episode.metrics["extra"]


def _has_gap(keep: Keep) -> Keep:
    return lambda episode: keep(episode) and "gap" in episode.metrics


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


def _path_figures(cell: Cell, keep: Keep) -> dict[str, Any]:
    (ned, ned_kind), (exact, exact_kind) = (interval(cell, name, keep) for name in ("ned", "exact"))
    return {
        "edit_distance": mean(cell, "edit_distance", keep),
        "ned": mean(cell, "ned", keep, 100),
        "ned_interval": ned,
        "ned_kind": ned_kind,
        "exact": mean(cell, "exact", keep, 100),
        "exact_interval": exact,
        "exact_kind": exact_kind,
        "exact_any": mean(cell, "exact_any", keep, 100),
    }


def _main_table(cells: Sequence[Cell], named: bool) -> Table:
    """Table 4 of the paper, by the reference's rules."""
    title = _titles(named)
    rows = [_main_row(cell) for cell in cells]
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
            "the reference's rules: runs without a call that was answered are left out, and with blocks those that did "
            "not meet all of them; where the goal was not reached, the distance is the worst and no path is the same",
            f"{title['gap']}: cost above the optimum where the goal was reached, not with blocks; in (clean) without "
            "runs with repeated or extra calls",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            f"{title['exact']}: the reference's one path; {title['any']}: any path that was optimal where it was taken",
            f"{title['invalid']}: of the calls in all runs; means are over instances; what over is counted below",
            *digest_notes(cells),
        ),
        query=main_query(cells),
    )


def _main_row(cell: Cell) -> dict[str, Any]:
    calls, valid = _total(cell, "calls"), _total(cell, "valid_calls")
    return {
        **place(cell),
        "gap": mean(cell, "gap", _GAP),
        "gap_clean": mean(cell, "gap", _CLEAN_GAP),
        **_path_figures(cell, counted),
        "intent": mean(cell, "intent", counted, 100),
        "invalid": 100 * (1 - valid / calls) if calls else None,
    }


def _total(cell: Cell, name: str) -> int:
    """A count over the runs that the reference counts."""
    return int(sum(episode.metrics[name] for episode in cell.prefix if episode.metrics["eligible"]))


_GAP, _CLEAN_GAP = _has_gap(reached), _has_gap(_plain_run)


def _counts_table(cells: Sequence[Cell]) -> Table:
    """The denominators of Table 4's figures."""
    return Table(
        name="planning_counts",
        title="What planning figures are over",
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
        rows=tuple(_counts_row(cell) for cell in cells),
        packs=packs_of(cells),
        notes=(
            "blocks missed: runs that did not meet all blocks, or whose truth is incomplete; no call: others without a "
            "call that was answered; both are in no figure of paths, answers and gap",
        ),
        query=counts_query(cells),
    )


def _counts_row(cell: Cell) -> dict[str, Any]:
    missed = size(cell, lambda episode: not episode.metrics["eligible"])
    return {
        **place(cell),
        "path_runs": size(cell, counted),
        "gap_runs": size(cell, _GAP),
        "clean_runs": size(cell, _CLEAN_GAP),
        "calls": _total(cell, "calls"),
        "blocks_missed": missed,
        "no_call": len(cell.prefix) - missed - size(cell, counted),
        "episodes": len(cell.prefix),
    }


def _goal_table(cells: Sequence[Cell], named: bool) -> Table:
    """The paper's exclusions: runs that did not reach the goal do not count."""
    title = _titles(named)
    rows = [
        {
            **place(cell),
            **_path_figures(cell, reached),
            "intent": mean(cell, "intent", reached, 100),
            "reached": size(cell, reached),
            "episodes": len(cell.prefix),
        }
        for cell in cells
    ]
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
            "the paper's exclusions (B.3.2): runs that did not reach the goal are left out, also of the answers",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            *digest_notes(cells),
        ),
        query=goal_query(cells),
    )


ERRORS: Mapping[str, str] = {
    "repeated": "Repeated",
    "extra": "Extra",
    "wrong_parameter": "Wrong parameter",
    "unaccessible": "Unaccessible",
}
"""Table 6's kinds of error, with their titles."""

OTHERS: Mapping[str, str] = {"parallel_extra": "Parallel", "banned_calls": "Banned", "failed_calls": "Failed"}
"""Calls that are no error of planning, or that nobody could know of."""


def _calls_table(cells: Sequence[Cell]) -> Table:
    """Table 6 of the paper: what went wrong with calls."""
    rows = []
    for name in dict.fromkeys(cell.suite.name for cell in cells):
        group = [cell for cell in cells if cell.suite.name == name]
        rows += [{**place(cell), **_call_counts([cell])} for cell in group]
        if len(group) > 1:
            rows.append({**place(group[0]), "agent": ALL_AGENTS, **_call_counts(group)})
    columns = {**ERRORS, "errors": "Total", **OTHERS, "calls": "Calls"}
    return Table(
        name="planning_calls",
        title="Planning errors",
        columns=(
            *where(cells),
            AGENT,
            *(Column(key=key, title=title, kind="count", unit="calls") for key, title in columns.items()),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "repeated: does again what was done; extra: behind the goal; wrong parameter: name or arguments; "
            "unaccessible: inputs not there yet; total: these four",
            "parallel: beside another call of one turn, not among the calls; banned, failed: charged, and no error",
            *digest_notes(cells),
        ),
        query=calls_query(cells, (*ERRORS, *OTHERS, "calls"), tuple(ERRORS), ALL_AGENTS),
    )


def _call_counts(cells: Sequence[Cell]) -> dict[str, int]:
    episodes = [episode.metrics for cell in cells for episode in cell.prefix]
    counts = {name: int(sum(metrics[name] for metrics in episodes)) for name in (*ERRORS, *OTHERS, "calls")}
    return {**counts, "errors": sum(counts[name] for name in ERRORS)}


def _blocks_table(cells: Sequence[Cell], named: bool) -> Table:
    """Paths under blocks over three populations: the reference's depends on the agent, so agents differ in it."""
    title = _titles(named)
    rows = []
    for cell in cells:
        rivals = [other for other in cells if other.suite.name == cell.suite.name]
        for population, keep in _populations(rivals).items():
            figures = _path_figures(cell, keep)
            rows.append({**place(cell), "population": population, **figures, "runs": size(cell, keep)})
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
            "own: the runs that met all blocks, by the reference's rule, which lets slow agents keep more of them",
            "any agent: all runs of the instances in which the perfect agent meets all blocks: the same for all agents",
            "shared: runs of the own set that every agent's own set holds, by instance and replicate (the paper's)",
            *kind_notes(rows, cells, _PATH_INTERVALS),
            *digest_notes(cells),
        ),
        query=blocks_query(cells),
    )


def _populations(rivals: Sequence[Cell]) -> dict[str, Keep]:
    runs = [{(episode.instance, episode.replicate) for episode in rival.prefix if counted(episode)} for rival in rivals]
    shared = set.intersection(*runs)
    return {
        "own": counted,
        "any agent": lambda episode: bool(episode.metrics["eligible_any_agent"]),
        "shared": lambda episode: (episode.instance, episode.replicate) in shared,
    }
