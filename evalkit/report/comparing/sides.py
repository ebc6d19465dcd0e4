"""What `evalkit compare` compares (of each environment its measures, which direction is better, how far they can go),
and in what two sides differ beside: prompts, sampling, versions, instances.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from evalkit.envs.known import is_litmus, score_range, shares_of
from evalkit.report import queries
from evalkit.report.extras.record import HIGHER, Measure, extras_of
from evalkit.report.scores import METRICS, packs_of
from evalkit.report.tables import Column, Table, columns_of
from evalkit.results.cells import Cell
from evalkit.store.manifest import Manifest, ManifestAgent


def measures(first: Cell, second: Cell) -> list[Measure]:
    """What both cells have values of."""
    environment = first.suite.environment
    least, most = score_range(environment)
    always = [
        Measure(
            key="score",
            title="Score",
            sql="score",
            width=most - least,
            better="" if is_litmus(environment) else HIGHER,
            unmet=1.0,
        )
    ]
    if not is_litmus(environment):
        always.append(Measure(key="solved", title="Solved", sql="solved::double", better=HIGHER))
    environment_measures = extras_of(environment).measures
    if environment_measures is not None:
        return [*always, *environment_measures]
    titles = {**METRICS, **{name: share.title for name, share in shares_of([environment]).items()}}
    metric_names = [{name for episode in cell.prefix for name in episode.metrics} for cell in (first, second)]
    return always + [
        Measure(key=name, title=title, sql=queries.metric(name), better=HIGHER if name == "best_so_far_rate" else "")
        for name, title in titles.items()
        if all(name in names for names in metric_names)
    ]


def measures_query(compared: Iterable[tuple[str, Measure]]) -> str:
    """The query that a side is asked: a row for each episode that has ended, with these measures of environments."""
    columns: dict[str, dict[str, str]] = {}
    for environment, measure in compared:
        columns.setdefault(measure.key, {})[environment] = measure.sql
    lines = (
        "select agent, suite, instance, replicate, used, episode,",
        ",\n".join(f"    {_by_environment(by_name)} as {queries.quoted(key)}" for key, by_name in columns.items()),
        "from episodes where finished order by suite, agent, replicate, instance",
    )
    return "\n".join(lines)


def _by_environment(values: Mapping[str, str]) -> str:
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    cases = " ".join(f"when {queries.text(name)} then {value}" for name, value in values.items())
    return f"case environment {cases} end"


_SHOWN = 12
"""Digits of a digest for people."""


def settings_table(first: Manifest, second: Manifest, cell_pairs: Sequence[tuple[Cell, Cell]]) -> Table:
    """What differs between the runs and agents behind some pairs of cells; without rows where nothing does."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for cell, other in cell_pairs:
        who = " → ".join(dict.fromkeys((cell.agent, other.agent)))
        for of, what, was, now in _differences(first, second, cell, other, who):
            if was != now:
                rows[of, what] = {"of": of, "setting": what, "first": _text(was), "second": _text(now)}
    names = list(dict.fromkeys(what for _, what in rows))
    return Table(
        name="compare_settings",
        title="Settings that differ",
        columns=(Column(key="of", title="Of", group=True), *columns_of(setting="Setting", first="A", second="B")),
        rows=tuple(rows.values()),
        packs=packs_of(cell for pair in cell_pairs for cell in pair),
        notes=(f"A and B also differ in: {', '.join(names)}",) if names else (),
    )


def _differences(
    first: Manifest, second: Manifest, cell: Cell, other: Cell, who: str
) -> Iterator[tuple[str, str, object, object]]:
    """(whose it is, setting, the first side's, the second's)."""
    yield "run", "evalkit", first.evalkit, second.evalkit
    yield "run", "replicates", first.replicates, second.replicates
    suite, environment = cell.suite.name, cell.suite.environment
    yield suite, "environment version", cell.suite.environment_version, other.suite.environment_version
    yield suite, "instances", _digest(cell), _digest(other)
    a, b = first.agents[cell.agent], second.agents[other.agent]
    yield who, "model", _model(a), _model(b)
    for what in ("policy", "script", "overrides", "notes"):
        yield who, what, getattr(a, what), getattr(b, what)
    subject = f"{who}, {environment}"
    yield subject, "prompts", _prompts(first, cell), _prompts(second, other)
    was, now = a.sampling.get(environment, {}), b.sampling.get(environment, {})
    for what in sorted(was.keys() | now.keys()):
        yield subject, f"sampling: {what}", was.get(what), now.get(what)


def _digest(cell: Cell) -> str:
    return f"{len(cell.suite.instances):,}, digest {cell.suite.digest[:_SHOWN]}"


def _model(agent: ManifestAgent) -> str:
    return f"{agent.provider}/{agent.model}" if agent.model else ""


def _prompts(manifest: Manifest, cell: Cell) -> str:
    """The pack by name, and by digest: texts can change under a name."""
    digest = manifest.agents[cell.agent].packs[cell.suite.environment]
    return f"{cell.pack}, digest {digest[:_SHOWN]}"


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()
    return "none" if value is None or value == "" else str(value)
