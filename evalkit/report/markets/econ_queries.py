"""The SQL that makes the tables of `econ.py`, `difficulty.py` and `variants.py`: environments side by side."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.report import queries
from evalkit.report.scores import where
from evalkit.report.tables import Column
from evalkit.results.cells import Cell

ENVIRONMENTS: Mapping[str, str] = {"procurement": "Procurement", "scheduling": "Scheduling", "pricing": "Pricing"}
"""The paper's environments in its order, with their titles."""

LEVELS = ("basic", "medium", "hard")

DIFFICULTY = Column(key="difficulty", title="Difficulty")
ENVIRONMENT = Column(key="environment", title="Environment", group=True)


def level_of(cell: Cell) -> str:
    """The paper's difficulty that a suite's name ends in; empty if it ends in none."""
    last = cell.suite.base.removesuffix(".jsonl").rpartition("/")[2]
    return last if last in LEVELS else ""


def labels(cells: Sequence[Cell]) -> dict[str, str]:
    """By suite's base name: its difficulty, or the name itself where it has none or shares it within an environment."""
    bases: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        bases.setdefault((cell.suite.environment, level_of(cell)), set()).add(cell.suite.base)
    alone = {next(iter(names)): level for (_, level), names in bases.items() if level and len(names) == 1}
    return {cell.suite.base: alone.get(cell.suite.base, cell.suite.base) for cell in cells}


def axes_columns(cells: Sequence[Cell]) -> tuple[Column, ...]:
    """One column for each parameter that the sweep varied."""
    return where(cells)[1:]


def axes_of(cell: Cell) -> dict[str, Any]:
    """The values of `axes_columns`."""
    return {f"axis:{axis}": value for axis, value in cell.suite.axes.items()}


def without_axes(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a query without what the sweep varied, which SQL gives as text."""
    return {key: value for key, value in row.items() if not key.startswith("axis:")}


def owed_notes(cells: Iterable[Cell]) -> tuple[str, ...]:
    """The note if cells are incomplete."""
    if all(cell.complete for cell in cells):
        return ()
    return ("some episodes remain: figures are over those that scores are based on",)


MEASURES = ("score", "exploration")
"""What is tested between packs."""


def beside(
    cells: Sequence[Cell], named: Mapping[str, str], figures: Iterable[queries.QueryColumn], extra: str = ""
) -> str:
    """A row for each agent, difficulty and values of axes; `named`: difficulties by suites' base names."""
    keys = ("agent", difficulty(named), *queries.axes(cells), *([extra] if extra else []))
    agents = {name: rank for rank, name in enumerate(dict.fromkeys(cell.agent for cell in cells))}
    levels = {label: rank for rank, label in enumerate(dict.fromkeys((*LEVELS, *named.values())))}
    bases = {base: levels[label] for base, label in named.items()}
    order = f"min({_rank('agent', agents)}), min({_rank('base', bases)}), min(place)"
    return queries.two_levels(keys, tuple(figures), keep=queries.suites(cells), order=order)


def _rank(column: str, ranks: Mapping[str, int]) -> str:
    cases = " ".join(f"when {queries.text(value)} then {rank}" for value, rank in ranks.items())
    return f"case {column} {cases} end"


def difficulty(named: Mapping[str, str]) -> str:
    """The column `difficulty`."""
    cases = " ".join(f"when {queries.text(base)} then {queries.text(label)}" for base, label in named.items())
    return f"case base {cases} end as difficulty"


def runs(key: str, environment: str, condition: str = "") -> queries.QueryColumn:
    """How many episodes of an environment; null if it was not played."""
    name = queries.quoted(key)
    return queries.QueryColumn(
        key=key,
        inner=queries.count(key, condition).inner,
        outer=f"sum(coalesce({name}, 0)) filter (where environment = {queries.text(environment)})",
    )


def mean_of(key: str, environment: str, value: str) -> queries.QueryColumn:
    """A hundred times the mean over an environment's instances."""
    return queries.mean(key, value, scale=100, keep=f"environment = {queries.text(environment)}")


def difficulty_query(pairs: Sequence[tuple[Cell, Cell]], own: bool) -> str:
    """Of the tests of basic against hard: the means and how many instances they are over."""
    sides = ", ".join(
        f"({nth}, {queries.text(level)}, {queries.text(cell.suite.name)}, {queries.text(cell.agent)})"
        for nth, pair in enumerate(pairs)
        for level, cell in zip(("basic", "hard"), pair, strict=True)
    )
    family = "regexp_replace(base, '/[^/]*$', '') as suites"
    easy, hard = (f"filter (where level = {queries.text(name)})" for name in ("basic", "hard"))
    cells = [cell for pair in pairs for cell in pair]
    lines = (
        "-- t, df, p: scipy.stats.ttest_ind over these instance means, variances unequal, one-sided",
        "-- undefined: why there is no test",
        queries.two_levels(
            ("environment", *([family] if own else []), *queries.axes(cells), "agent"),
            (
                queries.inside("score", "favg(score order by replicate)"),
                queries.derived("basic", f"100 * favg(score order by instance) {easy}"),
                queries.derived("basic_instances", f"count(score) {easy}"),
                queries.derived("hard", f"100 * favg(score order by instance) {hard}"),
                queries.derived("hard_instances", f"count(score) {hard}"),
                *(
                    queries.derived(f"{level}_means", f"list(score order by instance) {side} and score is not null)")
                    for level, side in (("basic", easy[:-1]), ("hard", hard[:-1]))
                ),
            ),
            order="min(nth)",
            among=" ".join(
                ("(select * from cells join", f"(values {sides}) s(nth, level, suite, agent) using (suite, agent))")
            ),
        ),
    )
    return "\n".join(lines)


def variants_query(groups: Mapping[tuple[str, str], Sequence[Cell]], named: Mapping[str, str]) -> str:
    """Of one agent's prompt packs side by side."""
    whose = [(cell, agent) for (agent, _), group in groups.items() for cell in group]
    places = ", ".join(
        f"({nth}, {queries.text(agent)}, {queries.text(cell.suite.name)}, {queries.text(cell.agent)})"
        for nth, (cell, agent) in enumerate(whose)
    )
    cells = [cell for cell, _ in whose]
    figures = (
        queries.mean("score", "score", scale=100),
        queries.mean("exploration_rate", queries.metric("exploration_rate"), scale=100),
        queries.total("solved", "solved::int"),
        queries.count("runs"),
    )
    return queries.comments({"interval, kind": queries.CHOSEN}) + queries.two_levels(
        (
            *("subject as agent", "environment", difficulty(named), *queries.axes(cells)),
            *("prompts", "agent as played_by"),
        ),
        figures,
        order="min(nth)",
        among=" ".join(
            ("(select * from cells join", f"(values {places}) v(nth, subject, suite, agent) using (suite, agent))")
        ),
    )


def tests_query(pairs: Sequence[tuple[str, Cell, Cell]], named: Mapping[str, str]) -> str:
    """Of the tests between packs, of (agent, one cell, another): the change of means, over how many instances."""
    cells = [cell for _, *pair in pairs for cell in pair]
    listed = ", ".join(
        f"({nth}, {', '.join(map(queries.text, (subject, first.suite.name, first.agent, second.agent)))})"
        for nth, (subject, first, second) in enumerate(pairs)
    )
    lines = (
        "-- welch_p, paired_p, signs_p, permutation_p, undefined: evalkit.stats.contrasts over these instance means",
        "with means as (",
        "    select suite, agent, instance, replace(metric, '_rate', '') as measure,",
        "        favg(value order by replicate) as value",
        "    from scores where used and metric in ('score', 'exploration_rate')",
        f"        and {queries.among(cells)} group by all",
        "), pairs(nth, subject, suite, one, two) as (",
        f"    values {listed}",
        "), sides as (",
        "    select nth, measure, instance, any_value(value) filter (where agent = one) as was,",
        "        any_value(value) filter (where agent = two) as now",
        "    from pairs p join means m on m.suite = p.suite and m.agent in (one, two) group by all",
        ")",
        f"select subject as agent, environment, {difficulty(named)},",
        f"    {', '.join((*queries.axes(cells), 'measure'))},",
        '    a.prompts as "from", b.prompts as "to",',
        "    100 * (favg(now order by instance) - favg(was order by instance)) as change,",
        "    count(was) as from_instances, count(now) as to_instances,",
        "    count(*) filter (where was is not null and now is not null) as pairs,",
        "    list(was order by instance) filter (where was is not null) as from_means,",
        "    list(now order by instance) filter (where now is not null) as to_means,",
        "    list(now - was order by instance) filter (where was is not null and now is not null) as differences",
        "from pairs p join cells a on a.suite = p.suite and a.agent = p.one",
        "    join (select suite, agent, prompts from cells) b on b.suite = p.suite and b.agent = p.two",
        f"    cross join (values {', '.join(f'({queries.text(name)}, {nth})' for nth, name in enumerate(MEASURES))})"
        " m(measure, rank)",
        "    left join sides using (nth, measure)",
        "group by all order by min(nth), min(rank)",
    )
    return "\n".join(lines)
