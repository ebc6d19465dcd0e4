"""The SQL behind the tables of `econ.py`, `difficulty.py` and `variants.py`: environments side by side."""

from collections.abc import Iterable, Mapping, Sequence

from evalkit.report import queries
from evalkit.results.cells import Cell


def beside(
    cells: Sequence[Cell], named: Mapping[str, str], figures: Iterable[queries.QueryColumn], extra: str = ""
) -> str:
    """A row for each agent, difficulty and values of axes; `named`: difficulties by suites' base names."""
    keys = ("agent", difficulty(named), *queries.axes(cells), *([extra] if extra else []))
    return queries.by_instances(keys, tuple(figures), where=[queries.suites(cells)])


def difficulty(named: Mapping[str, str]) -> str:
    """The column `difficulty`."""
    cases = " ".join(f"when {queries.text(base)} then {queries.text(label)}" for base, label in named.items())
    return f"case base {cases} end as difficulty"


def within(environment: str, condition: str = "") -> str:
    """A condition: of an environment's episodes."""
    return " and ".join((f"environment = {queries.text(environment)}", *([condition] if condition else [])))


def runs(key: str, environment: str, condition: str = "") -> queries.QueryColumn:
    """How many episodes of an environment; null where it was not played."""
    counted = queries.count(key, within(environment, condition))
    name = queries.quoted(key)
    played = f"environment = {queries.text(environment)}"
    return queries.QueryColumn(key=key, inner=counted.inner, outer=f"sum({name}) filter (where {played})")


def mean_of(key: str, environment: str, value: str) -> queries.QueryColumn:
    """A hundred times the mean over an environment's instances."""
    return queries.mean(key, value, scale=100, keep=within(environment))


def difficulty_query(pairs: Sequence[tuple[Cell, Cell]], own: bool) -> str:
    """Of the tests of basic against hard: instance means of both, and Welch's t."""
    cells = [cell for pair in pairs for cell in pair]
    family = "regexp_replace(base, '/[^/]*$', '')"
    level = "regexp_replace(regexp_replace(base, '^.*/', ''), '[.]jsonl$', '')"
    easy, hard = (f"filter (where {level} = {queries.text(name)})" for name in ("basic", "hard"))
    error = {name: f"(var_samp(score) {only} / count(*) {only})" for name, only in (("e", easy), ("h", hard))}
    total = f"({error['e']} + {error['h']})"
    free = " + ".join(f"pow({error[name]}, 2) / (count(*) {only} - 1)" for name, only in (("e", easy), ("h", hard)))
    lines = (
        "-- p: evalkit.stats.contrasts.welch, the chance of a greater t with df degrees of freedom (scipy stdtr)",
        "-- undefined: why there is no test",
        f"select environment, {f'{family} as suites, ' if own else ''}{', '.join((*queries.axes(cells), 'agent'))},",
        f"    100 * avg(score) {easy} as basic, count(*) {easy} as basic_instances,",
        f"    100 * avg(score) {hard} as hard, count(*) {hard} as hard_instances,",
        f"    (avg(score) {easy} - avg(score) {hard}) / nullif(sqrt({total}), 0) as t,",
        f"    pow({total}, 2) / nullif({free}, 0) as df",
        "from (",
        "    select environment, suite, base, axes, agent, instance, avg(score) as score",
        f"    from episodes where used and {queries.suites(cells)} group by all",
        f") group by environment, {family}, axes, agent order by all",
    )
    return "\n".join(lines)


def variants_query(groups: Mapping[tuple[str, str], Sequence[Cell]], named: Mapping[str, str]) -> str:
    """Of one agent's prompt packs side by side."""
    cells = [cell for group in groups.values() for cell in group]
    keys = (_subject(groups), "environment", difficulty(named), *queries.axes(cells), "prompts", "agent as played_by")
    figures = (
        queries.mean("score", "score", scale=100),
        queries.mean("exploration_rate", queries.metric("exploration_rate"), scale=100),
        queries.total("solved", "solved::int"),
        queries.count("runs"),
    )
    return queries.by_instances(keys, figures, where=[_among(cells)], methods={"interval, kind": queries.CHOSEN})


def _subject(groups: Mapping[tuple[str, str], Sequence[Cell]]) -> str:
    whose = {cell.agent: agent for (agent, _), group in groups.items() for cell in group}
    cases = " ".join(f"when {queries.text(name)} then {queries.text(agent)}" for name, agent in whose.items())
    return f"case agent {cases} end as agent"


def _among(cells: Iterable[Cell]) -> str:
    places = ", ".join(f"({queries.text(cell.agent)}, {queries.text(cell.suite.name)})" for cell in cells)
    return f"(agent, suite) in ({places})"


def tests_query(
    groups: Mapping[tuple[str, str], Sequence[Cell]], named: Mapping[str, str], pairs: Sequence[tuple[Cell, Cell]]
) -> str:
    """Of the tests between prompt packs: the change of means, and how many instances each side has."""
    cells = [cell for group in groups.values() for cell in group]
    listed = ", ".join(
        f"({', '.join(map(queries.text, (first.suite.name, first.agent, second.agent)))})" for first, second in pairs
    )
    lines = (
        "-- welch_p, paired_p, signs_p, permutation_p, undefined: evalkit.stats.contrasts over these instance means",
        "with means as (",
        "    select environment, suite, base, axes, agent, prompts, instance,",
        "        replace(metric, '_rate', '') as measure, avg(value) as value",
        f"    from scores where used and metric in ('score', 'exploration_rate') and {_among(cells)} group by all",
        f"), pairs(suite, one, two) as (values {listed}),",
        "sides as (",
        "    select p.*, m.measure, m.instance, any_value(m.environment) as environment, any_value(base) as base,",
        "        any_value(axes) as axes, any_value(prompts) filter (where agent = one) as prompts_from,",
        "        any_value(prompts) filter (where agent = two) as prompts_to,",
        "        any_value(value) filter (where agent = one) as was,",
        "        any_value(value) filter (where agent = two) as now",
        "    from pairs p join means m on m.suite = p.suite and m.agent in (one, two) group by all",
        ")",
        f"select {_subject(groups).replace('case agent', 'case one')}, environment, {difficulty(named)},",
        f"    {', '.join((*queries.axes(cells), 'measure'))},",
        '    any_value(prompts_from) as "from", any_value(prompts_to) as "to",',
        "    100 * (avg(now) - avg(was)) as change, count(was) as from_instances, count(now) as to_instances,",
        "    count(*) filter (where was is not null and now is not null) as pairs",
        "from sides group by environment, base, axes, one, two, measure order by all",
    )
    return "\n".join(lines)
