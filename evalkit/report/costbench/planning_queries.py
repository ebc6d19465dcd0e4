"""The SQL that makes the tables of `planning.py`: which runs each figure is over, as conditions on metrics."""

from collections.abc import Mapping, Sequence

from evalkit.report import queries
from evalkit.results.cells import Cell

SHORT_TALK = 3
"""Runs of at most so many messages made no call that was answered; the reference leaves them out of path and intent."""

ELIGIBLE = "metrics['eligible'] = 1"
COUNTED = f"{ELIGIBLE} and metrics['messages'] > {SHORT_TALK}"
"""The reference's population of path and intent figures: blocks met, truth complete, and more than a word said."""
REACHED = f"{COUNTED} and metrics['goal'] = 1"
"""The paper's: as the reference's, and the goal was reached."""
PLAIN = f"{REACHED} and metrics['repeated'] = 0 and metrics['extra'] = 0"
"""The same without repeated and extra calls."""

_HAS_GAP = "metrics['gap'] is not null"
INTERVALS: Mapping[str, str] = {"ned_interval, ned_kind, exact_interval, exact_kind": queries.CHOSEN}


GAP = (
    queries.mean("gap", queries.metric("gap"), keep=REACHED),
    queries.mean("gap_clean", queries.metric("gap"), keep=PLAIN),
)
CALLS = (
    queries.inside("calls", f"sum(metrics['calls']::bigint) filter (where {ELIGIBLE})"),
    queries.inside("valid", f"sum(metrics['valid_calls']::bigint) filter (where {ELIGIBLE})"),
    queries.derived("invalid", "100 * (1 - sum(valid) / nullif(sum(calls), 0))"),
)
COUNTS = (
    queries.count("path_runs", COUNTED),
    queries.count("gap_runs", f"{REACHED} and {_HAS_GAP}"),
    queries.count("clean_runs", f"{PLAIN} and {_HAS_GAP}"),
    queries.total("calls", queries.metric("calls"), ELIGIBLE),
    queries.count("blocks_missed", f"not {ELIGIBLE}"),
    queries.derived("no_call", "coalesce(sum(episodes) - sum(blocks_missed) - sum(path_runs), 0)"),
    queries.count("episodes"),
)
"""The denominators."""


def paths(keep: str) -> tuple[queries.QueryColumn, ...]:
    """Figures of paths, over the runs of which `keep` is true."""
    return (
        queries.mean("edit_distance", queries.metric("edit_distance"), keep=keep),
        queries.mean("ned", queries.metric("ned"), scale=100, keep=keep),
        queries.mean("exact", queries.metric("exact"), scale=100, keep=keep),
        queries.mean("exact_any", queries.metric("exact_any"), scale=100, keep=keep),
    )


def answers(keep: str) -> queries.QueryColumn:
    """The share of right answers."""
    return queries.mean("intent", queries.metric("intent"), scale=100, keep=keep)


def calls_query(cells: Sequence[Cell], counts: Sequence[str], errors: Sequence[str], everybody: str) -> str:
    """Of the table of errors: sums of the metrics `counts`, and of those that are `errors` together; of each cell, and
    of a suite's cells together where there are several."""
    sums = ", ".join(f"sum(metrics[{queries.text(name)}]::bigint) as {queries.quoted(name)}" for name in counts)
    totals = ", ".join(f"coalesce(sum({queries.quoted(name)}), 0) as {queries.quoted(name)}" for name in counts)
    lines = (
        f"select {', '.join(queries.place(cells)[:-1])},",
        f"    if(grouping(agent) = 1, {queries.text(everybody)}, agent) as agent,",
        f"    {totals},",
        f"    {' + '.join(f'coalesce(sum({queries.quoted(name)}), 0)' for name in errors)} as errors",
        f"from cells left join (select suite, agent, {sums}",
        "    from episodes where used group by all) using (suite, agent)",
        f"where {queries.suites(cells)}",
        "group by grouping sets ((cells.suite, base, axes, agent), (cells.suite, base, axes))",
        "qualify grouping(agent) = 0 or count(*) over (partition by cells.suite) > 2",
        "order by min(min(place)) over (partition by cells.suite), grouping(agent), min(place)",
    )
    return "\n".join(lines)


POPULATIONS = ("own", "any agent", "shared")


def populations(cells: Sequence[Cell]) -> dict[str, str]:
    """By name: the episodes of a population of paths under blocks, as a query."""
    condition = f"used and {queries.suites(cells)}"
    agents = "(select count(*) from cells c where c.suite = e.suite)"
    counted_by = f"count(*) filter (where {COUNTED}) over (partition by suite, instance, replicate)"
    conditions = (
        f"{condition} and {COUNTED}",
        f"{condition} and metrics['eligible_any_agent'] = 1",
        f"{condition} qualify {counted_by} = {agents}",
    )
    return {name: _population(name, kept) for name, kept in zip(POPULATIONS, conditions, strict=True)}


def blocks_query(cells: Sequence[Cell]) -> str:
    """Of the table of paths under blocks, over three populations."""
    named = ", ".join(f"({queries.text(name)}, {nth})" for nth, name in enumerate(POPULATIONS))
    return queries.comments(INTERVALS) + queries.two_levels(
        (*queries.place(cells), "population"),
        (*paths(""), queries.count("runs")),
        keep=queries.suites(cells),
        order="min(place), min(nth)",
        source="(\n        " + "\n        union all ".join(populations(cells).values()) + "\n    )",
        among=" ".join(("(select cells.*, p.* from cells,", f"(values {named}) p(population, nth))")),
        apart=("population",),
    )


def _population(name: str, condition: str) -> str:
    return " ".join((f"select *, {queries.text(name)} as population", f"from episodes e where {condition}"))
