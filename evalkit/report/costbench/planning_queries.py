"""The SQL that makes the tables of `planning.py`: which runs each figure is over, as conditions on metrics."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.report import queries
from evalkit.report.scores import EXACT, by_instance, strata_of
from evalkit.results.cells import Cell
from evalkit.stats.intervals import estimate

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
    return _CALLS.format(
        places=", ".join(queries.place(cells)[:-1]),
        everybody=queries.text(everybody),
        totals=", ".join(f"coalesce(sum({name}), 0) as {name}" for name in counts),
        errors=" + ".join(f"coalesce(sum({name}), 0)" for name in errors),
        sums=", ".join(f"sum(metrics[{queries.text(name)}]::bigint) as {name}" for name in counts),
        condition=queries.suites(cells),
    )


_CALLS = """select {places},
    if(grouping(agent) = 1, {everybody}, agent) as agent,
    {totals},
    {errors} as errors
from cells left join (select suite, agent, {sums}
    from episodes where used group by all) using (suite, agent)
where {condition}
group by grouping sets ((cells.suite, base, axes, agent), (cells.suite, base, axes))
qualify grouping(agent) = 0 or count(*) over (partition by cells.suite) > 2
order by min(min(place)) over (partition by cells.suite), grouping(agent), min(place)"""

MOST_NAMED = 40
"""Instances of a row of the table of ties."""

_TIED = f"used and {COUNTED} and metrics['exact_any'] = 1 and metrics['exact'] = 0"
"""Runs on an optimal path that is not the reference's: what its exact match counts as a failure."""

TIED_CELLS = " ".join(("select suite, agent from episodes where", _TIED, "group by all"))


def ties_query(cells: Sequence[Cell]) -> str:
    """Of the table of ties, of cells that have some."""
    places, condition = ", ".join(queries.place(cells)), queries.suites(cells)
    return _TIES.format(places=places, most=MOST_NAMED, tied=_TIED, condition=condition)


_TIES = """select {places}, runs, len(names) as instances,
    array_to_string(names[:{most}], ', ')
        || if(len(names) > {most}, ' and ' || (len(names) - {most}) || ' more', '') as which
from cells join (
    select suite, agent, count(*) as runs, list(distinct instance order by instance) as names
    from episodes where {tied} group by all
) using (suite, agent) where {condition} order by place"""


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
    return {
        name: _POPULATION.format(name=queries.text(name), kept=kept)
        for name, kept in zip(POPULATIONS, conditions, strict=True)
    }


_POPULATION = "select *, {name} as population from episodes e where {kept}"


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


ENVIRONMENT = "costbench"

REFERENCE_FILES: Mapping[str, str] = {
    "2d15f439a22d55077d58b3d211129d403a8dcba55cbf4f7971f9de17b27253bb": "test",
    "ecae5294bd0b116d58a9731eb6aef29edeb9cc9dc860aecd17649a3a264bac9e": "train",
}
"""SHA-256 of the query files the reference publishes, and their split: the paper's figures are over the test file's 381
queries, so only runs on the same queries may bear its names."""

DIGEST_SHOWN = 12

Figures = Mapping[str, float]
"""By episode id: a figure of it, of those that have one (`RunData.values`)."""


def is_reference(cell: Cell) -> bool:
    """Whether all instances of the cell's suite come from the reference's query files, with costs drawn as it does."""
    lines = [instance.line for instance in cell.suite.instances]
    known = all((line.get("source") or {}).get("sha256") in REFERENCE_FILES for line in lines)
    return known and all(line.get("generator") == "reference" and not line.get("costs") for line in lines)


def is_blocked(cell: Cell) -> bool:
    """Whether anything happens on the way in some instance of the cell's suite."""
    return any(is_blocked_line(instance.line) for instance in cell.suite.instances)


def is_blocked_line(line: Mapping[str, Any]) -> bool:
    """Whether an instance has events: planned ones, scheduled ones, or calls that fail."""
    planned = line.get("block", "none") != "none" and line.get("blocks") != 0
    return bool(planned or line.get("schedule") or line.get("failures"))


Spread = tuple[tuple[float, float] | None, str | None]
"""(a 95 % interval, None if there is none; its method, None if nothing was measured)."""


def interval(cell: Cell, figures: Figures) -> Spread:
    """The 95 % interval of the mean of a share, in percent, and its method."""
    values = by_instance((episode, figures.get(episode.id)) for episode in cell.prefix)
    if cell.exact and len({value for scores in values.values() for value in scores}) == 1:
        return None, EXACT
    return share_interval(cell, values)


def share_interval(cell: Cell, values: Mapping[str, list[float]], scale: float = 100.0) -> Spread:
    """`scale` times the 95 % interval of the mean of shares by instance, and its method."""
    if not values:
        return None, None
    estimated = estimate(values, strata=strata_of(cell), least=0.0, most=1.0)
    if estimated.interval is None:
        return None, None
    return (scale * estimated.interval.low, scale * estimated.interval.high), estimated.method


def digest_notes(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Which suites figures are of that cannot stand beside the paper's."""
    digests = {cell.suite.name: cell.suite.digest[:DIGEST_SHOWN] for cell in cells if not is_reference(cell)}
    return tuple(
        f"not comparable with published figures: {name} is a suite of its own, digest {digest}"
        for name, digest in digests.items()
    )
