"""What `evalkit compare` compares: of each environment its measures, which direction is better, how far they can go."""

from collections.abc import Iterable, Mapping

from evalkit.envs.known import is_litmus, score_range, shares_of
from evalkit.report import queries
from evalkit.report.extras.record import HIGHER, Measure, extras_of
from evalkit.report.scores import METRICS
from evalkit.results.cells import Cell


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
        ),
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
