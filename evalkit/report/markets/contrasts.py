"""Tests between cells of the paper's environments: basic instances against hard ones, and one agent's prompt packs.

Suites belong together that share all of their name but its end: `mine/basic` and `mine/hard`. An agent's variants are
the agents that differ from it in nothing but their prompt pack. Packs whose texts are the same in an environment (a
pack that replaces nothing there) make no variants in it.

Source: section 4.1, Table 5 and appendix B.2 of the paper, which has prompts for procurement; specification of the
reference, section D.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import orjson

from evalkit.frozen.manifest import Manifest
from evalkit.report import queries
from evalkit.report.markets.econ_queries import (
    DIFFICULTY,
    ENVIRONMENT,
    ENVIRONMENTS,
    LEVELS,
    axes_columns,
    axes_of,
    difficulty,
    labels,
    level_of,
    remaining_notes,
    without_axes,
)
from evalkit.report.published.papers import as_printed
from evalkit.report.run_data import RunData
from evalkit.report.scores import AGENT, interval_figures, kind_notes, packs_of
from evalkit.report.tables import PROMPTS, Column, Table, columns_of, estimated
from evalkit.results.cells import Cell
from evalkit.stats.contrasts import flips, paired, signs, welch

INDEPENDENT = (
    "tests are over n instances, with replicates averaged first, because runs on one instance are not independent; "
    "p-values are not corrected for the number of tests"
)

_ENDS = frozenset({LEVELS[0], LEVELS[-1]})


def difficulty_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Basic against hard, by environment and agent; none if no agent has played both."""
    families: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for cell in cells:
        axes = tuple(sorted((axis, repr(value)) for axis, value in cell.suite.axes.items()))
        key = (list(ENVIRONMENTS).index(cell.suite.environment), _family(cell), axes, cell.agent)
        families.setdefault(key, {})[level_of(cell)] = cell
    order = sorted(families, key=lambda key: key[0])
    pairs = [(families[key][LEVELS[0]], families[key][LEVELS[-1]]) for key in order if families[key].keys() >= _ENDS]
    if not pairs:
        return ()
    paired_cells = [cell for pair in pairs for cell in pair]
    own = any(_family(cell) != cell.suite.environment for cell in paired_cells)
    query = _difficulty_query(pairs, own)
    rows = []
    for row, (easy, _) in zip(source.rows(query), pairs, strict=True):
        test = welch(row.pop("basic_means") or [], row.pop("hard_means") or [], greater=True)
        tested = {"t": test.statistic, "df": test.free, "p": test.p, "undefined": test.why or None}
        rows.append({**tested, **without_axes(row), **axes_of(easy)})
    table = Table(
        name="econ_difficulty",
        title="Basic against hard",
        columns=(
            ENVIRONMENT,
            *([Column(key="suites", title="Suites", group=True)] if own else []),
            *axes_columns(paired_cells),
            AGENT,
            Column(key="basic", title="Basic", kind="score", unit="100 = optimum"),
            Column(key="basic_instances", title="n", kind="count", unit="instances"),
            Column(key="hard", title="Hard", kind="score", unit="100 = optimum"),
            Column(key="hard_instances", title="n", kind="count", unit="instances"),
            *columns_of("number", t="t", df="df"),
            Column(key="p", title="p", kind="p"),
            Column(key="undefined", title="No test"),
        ),
        rows=tuple(rows),
        packs=packs_of(paired_cells),
        notes=(
            "as in section 4.1 of the paper: one-sided Welch tests of whether the mean is greater on basic instances",
            INDEPENDENT,
            *remaining_notes(paired_cells),
        ),
        query=query,
    )
    return (table,)


def _family(cell: Cell) -> str:
    """The folder that suites of several difficulties share."""
    return cell.suite.base.rpartition("/")[0]


STANDARD = "standard"

MEASURES = ("score", "exploration")
"""What is tested between packs."""

MEANS = ("from_means", "to_means", "differences")
"""Columns of the query that the tests are made of."""

SUBJECT = Column(key="agent", title="Agent", group=True)
LEVEL = replace(DIFFICULTY, group=True)


def variant_tables(source: RunData, cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Agents with several prompt packs among `cells`, and tests between the packs; none if there are none."""
    groups = _groups(source.manifest, cells)
    if not groups:
        return ()
    mine = [cell for group in groups.values() for cell in group]
    named = labels(mine)
    return (as_printed(_side_by_side(source, groups, mine, named), "econ_5"), _tests_table(source, groups, mine, named))


_Key = tuple[str, str]
"""(name of the agent whose variants they are, suite)."""


def _groups(manifest: Manifest, cells: Sequence[Cell]) -> dict[_Key, list[Cell]]:
    """By agent and suite: the cells of its variants, the standard pack's first."""
    subjects: dict[bytes, list[str]] = {}
    for agent in manifest.agents.values():
        # What an agent is but for its name and its prompts.
        parts = [agent.lane, agent.provider, agent.model, agent.policy, agent.script, agent.overrides, agent.notes]
        identity = orjson.dumps([*parts, agent.sampling, sorted(agent.tags)], option=orjson.OPT_SORT_KEYS)
        subjects.setdefault(identity, []).append(agent.name)
    groups: dict[_Key, list[Cell]] = {}
    for names in subjects.values():
        # A stable sort: the others keep the spec's order.
        names.sort(key=lambda name: manifest.agents[name].pack != STANDARD)
        for suite in dict.fromkeys(cell.suite.name for cell in cells):
            group = [cell for name in names for cell in cells if cell.agent == name and cell.suite.name == suite]
            if len({_texts(manifest, cell) for cell in group}) > 1:
                groups[names[0], suite] = group
    return groups


def _texts(manifest: Manifest, cell: Cell) -> str:
    """Digest of what a cell's agent reads."""
    return manifest.agents[cell.agent].packs[cell.suite.environment]


def _side_by_side(
    source: RunData, groups: dict[_Key, list[Cell]], cells: Sequence[Cell], named: dict[str, str]
) -> Table:
    query = _variants_query(groups, named)
    rows = [
        {**without_axes(row), **axes_of(cell), **interval_figures(cell)}
        for row, cell in zip(source.rows(query), cells, strict=True)
    ]
    return Table(
        name="econ_prompts",
        title="Prompts side by side",
        columns=(
            SUBJECT,
            ENVIRONMENT,
            LEVEL,
            *axes_columns(cells),
            Column(key=PROMPTS, title="Prompts"),
            Column(key="played_by", title="Played by"),
            *estimated(Column(key="score", title="Score", kind="score", unit="100 = optimum"), "interval"),
            Column(key="exploration_rate", title="Exploration", kind="percent", unit="% of actions"),
            *columns_of("count", "episodes", solved="Solved", runs="of"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "as Table 5 of the paper, whose prompts are these in procurement: Baseline (standard), Known Horizon "
            "(known_horizon), Known Horizon + Goal (known_horizon_goal)",
            "agents that differ only in their prompts; exploration: % of accepted actions that were new",
            *kind_notes(rows, cells),
            *remaining_notes(cells),
        ),
        query=query,
    )


def _tests_table(
    source: RunData, groups: dict[_Key, list[Cell]], cells: Sequence[Cell], named: dict[str, str]
) -> Table:
    pairs = _pack_pairs(source.manifest, groups)
    query = _tests_query(pairs, named)
    tested = [cell for _, cell, _ in pairs for _ in MEASURES]
    rows = [
        {**_contrast(*(row.pop(name) or [] for name in MEANS)), **without_axes(row), **axes_of(cell)}
        for row, cell in zip(source.rows(query), tested, strict=True)
    ]
    return Table(
        name="econ_prompts_tests",
        title="Do prompts differ?",
        columns=(
            SUBJECT,
            ENVIRONMENT,
            LEVEL,
            *axes_columns(cells),
            Column(key="measure", title="Measure"),
            Column(key="from", title="From"),
            Column(key="to", title="to"),
            Column(key="change", title="Change", kind="percent", unit="points"),
            Column(key="welch_p", title="p: Welch", kind="p"),
            *columns_of("count", "instances", from_instances="n", to_instances="n"),
            *columns_of("p", paired_p="paired", signs_p="signs", permutation_p="flips"),
            Column(key="pairs", title="Pairs", kind="count", unit="instances"),
            Column(key="undefined", title="No test"),
        ),
        rows=tuple(rows),
        packs=packs_of(cells),
        notes=(
            "p-values are two-sided. Welch: the groups are taken as independent; paired: Student's t of the "
            "differences within instances; signs: their exact sign test; flips: their exact permutation test",
            INDEPENDENT,
            *remaining_notes(cells),
        ),
        query=query,
    )


def _pack_pairs(manifest: Manifest, groups: dict[_Key, list[Cell]]) -> list[tuple[str, Cell, Cell]]:
    """(agent, one cell, another) of cells that read different texts."""
    return [
        (agent, first, second)
        for (agent, _), group in groups.items()
        for first, second in combinations(group, 2)
        if _texts(manifest, first) != _texts(manifest, second)
    ]


def _contrast(first: list[float], second: list[float], differences: list[float]) -> dict[str, Any]:
    """The tests of two variants' means by instance."""
    outcomes = {
        "welch": welch(second, first),
        "paired": paired(differences),
        "signs": signs(differences),
        "permutation": flips(differences),
    }
    return {
        **{f"{name}_p": outcome.p for name, outcome in outcomes.items()},
        "undefined": ", ".join(dict.fromkeys(outcome.why for outcome in outcomes.values() if outcome.why)) or None,
    }


def _difficulty_query(pairs: Sequence[tuple[Cell, Cell]], own: bool) -> str:
    """Of the tests of basic against hard: the means and how many instances they are over."""
    sides = [
        (nth, level, cell.suite.name, cell.agent)
        for nth, pair in enumerate(pairs)
        for level, cell in zip(("basic", "hard"), pair, strict=True)
    ]
    family = "regexp_replace(base, '/[^/]*$', '') as suites"
    figures = [queries.inside("score", "favg(score order by replicate)")]
    for level in ("basic", "hard"):
        side = f"filter (where level = {queries.text(level)}"
        figures.append(queries.derived(level, f"100 * favg(score order by instance) {side})"))
        figures.append(queries.derived(f"{level}_instances", f"count(score) {side})"))
    for level in ("basic", "hard"):
        kept = f"filter (where level = {queries.text(level)} and score is not null)"
        figures.append(queries.derived(f"{level}_means", f"list(score order by instance) {kept}"))
    axes = queries.axes([cell for pair in pairs for cell in pair])
    notes = {
        "t, df, p": "scipy.stats.ttest_ind over these instance means, variances unequal, one-sided",
        "undefined": "why there is no test",
    }
    return queries.comments(notes) + queries.two_levels(
        ("environment", *([family] if own else []), *axes, "agent"),
        figures,
        order="min(nth)",
        among=_AMONG.format(values=_values(sides), names="s(nth, level, suite, agent)"),
    )


_AMONG = "(select * from cells join (values {values}) {names} using (suite, agent))"


def _values(rows: Iterable[Sequence[Any]]) -> str:
    """Rows of whole numbers and texts as SQL says them."""
    return ", ".join(
        f"({', '.join(str(value) if isinstance(value, int) else queries.text(value) for value in row)})" for row in rows
    )


def _variants_query(groups: Mapping[_Key, Sequence[Cell]], named: Mapping[str, str]) -> str:
    """Of one agent's prompt packs side by side."""
    whose = [(cell, agent) for (agent, _), group in groups.items() for cell in group]
    places = [(nth, agent, cell.suite.name, cell.agent) for nth, (cell, agent) in enumerate(whose)]
    axes = queries.axes([cell for cell, _ in whose])
    figures = (
        queries.mean("score", "score", scale=100),
        queries.mean("exploration_rate", queries.metric("exploration_rate"), scale=100),
        queries.total("solved", "solved::int"),
        queries.count("runs"),
    )
    return queries.comments({"interval, kind": queries.CHOSEN}) + queries.two_levels(
        ("subject as agent", "environment", difficulty(named), *axes, "prompts", "agent as played_by"),
        figures,
        order="min(nth)",
        among=_AMONG.format(values=_values(places), names="v(nth, subject, suite, agent)"),
    )


def _tests_query(pairs: Sequence[tuple[str, Cell, Cell]], named: Mapping[str, str]) -> str:
    """Of the tests between packs, of (agent, one cell, another): the change of means, over how many instances."""
    cells = [cell for _, *pair in pairs for cell in pair]
    return _TESTS.format(
        among=queries.among(cells),
        pairs=_values((nth, who, one.suite.name, one.agent, two.agent) for nth, (who, one, two) in enumerate(pairs)),
        difficulty=difficulty(named),
        axes=", ".join((*queries.axes(cells), "measure")),
        measures=_values((name, nth) for nth, name in enumerate(MEASURES)),
    )


_TESTS = """\
-- welch_p, paired_p, signs_p, permutation_p, undefined: evalkit.stats.contrasts over these instance means
with means as (
    select suite, agent, instance, replace(metric, '_rate', '') as measure,
        favg(value order by replicate) as value
    from scores where used and metric in ('score', 'exploration_rate')
        and {among} group by all
), pairs(nth, subject, suite, one, two) as (
    values {pairs}
), sides as (
    select nth, measure, instance, any_value(value) filter (where agent = one) as was,
        any_value(value) filter (where agent = two) as now
    from pairs p join means m on m.suite = p.suite and m.agent in (one, two) group by all
)
select subject as agent, environment, {difficulty},
    {axes},
    a.prompts as "from", b.prompts as "to",
    100 * (favg(now order by instance) - favg(was order by instance)) as change,
    count(was) as from_instances, count(now) as to_instances,
    count(*) filter (where was is not null and now is not null) as pairs,
    list(was order by instance) filter (where was is not null) as from_means,
    list(now order by instance) filter (where now is not null) as to_means,
    list(now - was order by instance) filter (where was is not null and now is not null) as differences
from pairs p join cells a on a.suite = p.suite and a.agent = p.one
    join (select suite, agent, prompts from cells) b on b.suite = p.suite and b.agent = p.two
    cross join (values {measures}) m(measure, rank)
    left join sides using (nth, measure)
group by all order by min(nth), min(rank)"""
