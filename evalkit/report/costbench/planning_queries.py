"""The SQL behind the tables of `planning.py`: which runs each figure is over, as conditions on metrics."""

from collections.abc import Mapping, Sequence

from evalkit.report import queries
from evalkit.results.cells import Cell

SHORT_TALK = 3
"""Runs of at most so many messages made no call that was answered; the reference leaves them out of path and intent."""

ELIGIBLE = "metrics['eligible'] = 1"
COUNTED = f"{ELIGIBLE} and metrics['messages'] > {SHORT_TALK}"
"""`planning.counted`."""
REACHED = f"{COUNTED} and metrics['goal'] = 1"
"""`planning.reached`."""
PLAIN = f"{REACHED} and metrics['repeated'] = 0 and metrics['extra'] = 0"
"""The same without repeated and extra calls."""

_HAS_GAP = "metrics['gap'] is not null"
_INTERVALS: Mapping[str, str] = {"ned_interval, ned_kind, exact_interval, exact_kind": queries.CHOSEN}


def main_query(cells: Sequence[Cell]) -> str:
    """Of the table of the reference's rules."""
    figures = (
        queries.mean("gap", queries.metric("gap"), keep=REACHED),
        queries.mean("gap_clean", queries.metric("gap"), keep=PLAIN),
        *_paths(COUNTED),
        queries.mean("intent", queries.metric("intent"), scale=100, keep=COUNTED),
        queries.total("calls", queries.metric("calls"), ELIGIBLE),
        queries.total("valid", queries.metric("valid_calls"), ELIGIBLE),
        queries.derived("invalid", "100 * (1 - sum(valid) / nullif(sum(calls), 0))"),
    )
    return queries.by_instances(queries.place(cells), figures, where=[queries.suites(cells)], methods=_INTERVALS)


def _paths(keep: str) -> tuple[queries.QueryColumn, ...]:
    return (
        queries.mean("edit_distance", queries.metric("edit_distance"), keep=keep),
        queries.mean("ned", queries.metric("ned"), scale=100, keep=keep),
        queries.mean("exact", queries.metric("exact"), scale=100, keep=keep),
        queries.mean("exact_any", queries.metric("exact_any"), scale=100, keep=keep),
    )


def counts_query(cells: Sequence[Cell]) -> str:
    """Of the table of denominators."""
    figures = (
        queries.count("path_runs", COUNTED),
        queries.count("gap_runs", f"{REACHED} and {_HAS_GAP}"),
        queries.count("clean_runs", f"{PLAIN} and {_HAS_GAP}"),
        queries.total("calls", queries.metric("calls"), ELIGIBLE),
        queries.count("blocks_missed", f"not {ELIGIBLE}"),
        queries.derived("no_call", "sum(episodes) - sum(blocks_missed) - sum(path_runs)"),
        queries.count("episodes"),
    )
    return queries.by_instances(queries.place(cells), figures, where=[queries.suites(cells)])


def goal_query(cells: Sequence[Cell]) -> str:
    """Of the table by the paper's exclusions."""
    figures = (
        *_paths(REACHED),
        queries.mean("intent", queries.metric("intent"), scale=100, keep=REACHED),
        queries.count("reached", REACHED),
        queries.count("episodes"),
    )
    return queries.by_instances(queries.place(cells), figures, where=[queries.suites(cells)], methods=_INTERVALS)


def calls_query(cells: Sequence[Cell], counts: Sequence[str], errors: Sequence[str], everybody: str) -> str:
    """Of the table of errors: sums of the metrics `counts`, and of those that are `errors` together."""
    sums = ", ".join(f"sum({queries.metric(name)}) as {queries.quoted(name)}" for name in counts)
    together = " + ".join(f"sum({queries.metric(name)})" for name in errors)
    lines = (
        f"select {', '.join(queries.place(cells)[:-1])},",
        f"    if(grouping(agent) = 1, {queries.text(everybody)}, agent) as agent,",
        f"    {sums},",
        f"    {together} as errors",
        f"from episodes where used and {queries.suites(cells)}",
        "group by grouping sets ((suite, base, axes, agent), (suite, base, axes)) order by all",
    )
    return "\n".join(lines)


def blocks_query(cells: Sequence[Cell]) -> str:
    """Of the table of paths under blocks, over three populations."""
    condition = f"used and {queries.suites(cells)}"
    agents = "(select count(*) from cells c where c.suite = e.suite)"
    counted_by = f"count(*) filter (where {COUNTED}) over (partition by suite, instance, replicate)"
    parts = (
        _population("own", f"{condition} and {COUNTED}"),
        _population("any agent", f"{condition} and metrics['eligible_any_agent'] = 1"),
        _population("shared", f"{condition} qualify {counted_by} = {agents}"),
    )
    return queries.by_instances(
        (*queries.place(cells), "population"),
        (*_paths(""), queries.count("runs")),
        source="(\n        " + "\n        union all ".join(parts) + "\n    )",
        also=("population",),
        methods=_INTERVALS,
    )


def _population(name: str, condition: str) -> str:
    return " ".join((f"select *, {queries.text(name)} as population", f"from episodes e where {condition}"))
