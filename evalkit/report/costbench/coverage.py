"""How much of what can be planned a model writes out in its first text (environment costbench).

Paths are counted by the built-in counter (`envs/costbench/coverage.py`) and, where there is one, by a judge; the paper
has a judge alone. Source: section 5.1 of the paper; specification, section 7.5.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.envs.errand import errand
from evalkit.report import queries
from evalkit.report.costbench.planning_queries import COUNTED, Figures, digest_notes, is_blocked, share_interval
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, by_instance, kind_notes, packs_of, where
from evalkit.report.tables import Column, Table, method_of
from evalkit.results.cells import Cell
from evalkit.stats.bootstrap import mean_of_instances

SENSES = {errand.COVERAGE: "judged", errand.ENUMERATION: "listed"}
"""How columns begin, by what a judge counted."""

THERE = "% of the paths there are"

_LISTED = "as listed: in the paper's sense, whatever a plan lists as a path counts, whether it is valid or not"


TALKED = f"{COUNTED} and metrics['paths_whole'] is not null"
PLANNED = f"{TALKED} and metrics['plan_paths'] is not null"
"""Of which runs coverage is: those that said something, those that planned something."""
OWN = "metrics['plan_paths'] / metrics['paths_whole']"


def coverage_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Suites without blocks by agent; none if there is no such suite. Judges counted complete paths
    (`coverage`) or all that is listed as one (`enumeration`)."""
    judged = source.judged
    static = [cell for cell in cells if not is_blocked(cell)]
    if not static:
        return ()
    senses = [sense for kind, sense in SENSES.items() if kind in judged]
    counts = ("planned", "silent", *senses)
    titles = {"planned": "Runs", "silent": "Without text", "judged": "Judged runs", "listed": "Judged runs, as listed"}
    share = [column for sense in senses for column in _judged_columns(sense)]
    query = _query(static, judged)
    whole = source.values(queries.metric("paths_whole"), TALKED)
    own = source.values(OWN, PLANNED)
    rows = [{**row, **_intervals(cell, own, whole, judged)} for cell, row in source.by_cell(query, static)]
    table = Table(
        name="coverage",
        title="Coverage of the visible plan",
        columns=(
            *where(static),
            AGENT,
            Column(key="coverage", title="Coverage", kind="percent", unit="% of 2^(N-1)"),
            interval := Column(key="coverage_interval", title="95 %", kind="interval", unit="% of 2^(N-1)"),
            method_of(interval),
            Column(key="coverage_possible", title="of possible", kind="percent", unit=THERE, over_agents=True),
            Column(key="coverage_valid", title="valid", kind="percent", unit=THERE, over_agents=True),
            *share,
            *(Column(key=f"{name}_runs", title=titles[name], kind="count") for name in counts),
        ),
        rows=tuple(rows),
        packs=packs_of(static),
        notes=(
            "distinct complete paths in the first text of a run, by the built-in counter, over 2^(N-1) as in the paper "
            "and over what tools are offered for (one less, without the tool for the whole)",
            *([_LISTED] if "listed" in senses else []),
            "of runs with a text and a call; runs without any text have no visible plan and are counted apart",
            *kind_notes(rows, static, ("coverage_interval", *(f"{sense}_coverage_interval" for sense in senses))),
            *digest_notes(static),
        ),
        query=query,
    )
    return (table,)


def _judged_columns(sense: str) -> tuple[Column, ...]:
    title = "Judged" if sense == "judged" else "Judged, as listed"
    interval = Column(key=f"{sense}_coverage_interval", title="95 %", kind="interval", unit="% of 2^(N-1)")
    share = Column(key=f"{sense}_coverage", title=title, kind="percent", unit="% of 2^(N-1)")
    return share, interval, method_of(interval)


def _query(cells: Sequence[Cell], judged: Mapping[str, Mapping[str, int]]) -> str:
    methods = {"coverage_interval, coverage_kind": queries.CHOSEN}
    for kind, sense in SENSES.items():
        if kind in judged:
            methods[f"{sense}_coverage, {sense}_coverage_interval, {sense}_coverage_kind, {sense}_runs"] = (
                "a judge's counts, of the run that --judged names"
            )
    return queries.by_cell(
        cells,
        (
            queries.mean("coverage", OWN, scale=100, keep=PLANNED),
            queries.mean(
                "coverage_possible", "metrics['plan_paths'] / metrics['paths_possible']", scale=100, keep=PLANNED
            ),
            queries.mean(
                "coverage_valid", "metrics['plan_valid'] / metrics['paths_possible']", scale=100, keep=PLANNED
            ),
            queries.count("planned_runs", PLANNED),
            queries.count("silent_runs", f"{TALKED} and metrics['plan_paths'] is null"),
        ),
        methods=methods,
    )


def _intervals(cell: Cell, own: Figures, whole: Figures, judged: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What SQL cannot say: the interval of the built-in counter's share, and what judges counted.

    own     the built-in counter's shares
    whole   how many paths there are
    """

    def by_judge(counts: Mapping[str, int]) -> dict[str, list[float]]:
        ids = counts.keys() & whole.keys()
        return by_instance((one, counts[one.id] / whole[one.id]) for one in cell.prefix if one.id in ids)

    shares = by_instance((episode, own.get(episode.id)) for episode in cell.prefix)
    interval, kind = share_interval(cell, "coverage", shares)
    row: dict[str, Any] = {"coverage_interval": interval, "coverage_kind": kind}
    for sense_key, counts in judged.items():
        name, values = f"{SENSES[sense_key]}_coverage", by_judge(counts)
        interval, kind = share_interval(cell, name, values)
        row |= {
            name: 100 * mean_of_instances(values) if values else None,
            f"{name}_interval": interval,
            f"{name}_kind": kind,
            f"{SENSES[sense_key]}_runs": sum(map(len, values.values())),
        }
    return row
