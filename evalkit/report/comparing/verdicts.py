"""What a comparison says: at every look where a side is partial, and in words, suite by suite and of all suites
together.

An ordinary p-value is of one look, fixed beforehand: who looks at 20 pairs, at 40, and stops when it is small calls two
like agents different far more often than 1 time in 20 (docs/statistics-methods.md has the figures). So where a side is
partial, interval and p-value are those of a sequence (`sequential.py`) over the pairs that both sides have begun.

The score is the primary measure: it alone decides. Its tests are one family for Holm's correction, those of the other
measures another, so that what an agent did on its way does not cost the score its power.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import orjson

from evalkit.envs.table import is_litmus, score_range, shares_of
from evalkit.frozen.manifest import Manifest, ManifestAgent
from evalkit.report import queries
from evalkit.report.extras import HIGHER, Measure, extras_of
from evalkit.report.scores import BETTING, METRICS, packs_of, turns
from evalkit.report.tables import Column, Table, columns_of
from evalkit.results.cells import Cell
from evalkit.stats.contrasts import FEW, NO_DIFFERENCE, HypothesisTest
from evalkit.stats.intervals import LEAST_INSTANCES, NONE, Estimate, Interval, estimate
from evalkit.stats.pairs import Change, Pairs, holm, sign_flips
from evalkit.stats.sequential import filled, sequence, sequential_p
from evalkit.text import many

# What `evalkit compare` compares (of each environment its measures, which direction is better, how far they can go),
# and in what two sides differ beside: prompts, sampling, versions, instances.


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


Figures = Mapping[str, float]
"""By episode id: a measure of it, of those that have one."""

_Place = tuple[int, str, float | None]
"""(place in the admission order, stratum, the value; None if the episode has not ended)."""


def at_every_look(
    change: Change, cells: tuple[Cell, Cell], figures: tuple[Figures, Figures], width: float, alpha: float
) -> Change:
    """The difference with interval (of `alpha`) and p-value that hold at every look, over first replicates that both
    have begun.

    What has not ended may be the worst or the best. Where `width` is not finite there is no interval, and the p-value
    is of who wins more often: nothing of such a mean holds at every look, and cutting values would judge another one.
    """
    pairs = _joint(*map(_begun, cells, figures))
    change = replace(change, signs=HypothesisTest(why="valid at one look alone"), least_p=None)
    difference = replace(change.difference, interval=None, method=NONE, stratified=False)
    if len(pairs) < LEAST_INSTANCES:
        difference = replace(difference, why="too few have begun on both sides")
        return replace(change, difference=difference, test=HypothesisTest(why=FEW), test_by=FEW)
    turn, places = turns(cells[0], [stratum for (_, stratum, _), _ in pairs])
    most = width if math.isfinite(width) else 1.0
    # From -most..most to 0..1.
    low, high = (
        filled([(_difference(*pairs[place], width, unknown) / most + 1) / 2 for place in places], 0.0)
        for unknown in (-1.0, 1.0)
    )
    found = sequence(low, high, turn, alpha=alpha)
    bounded = math.isfinite(width)
    why = "before a whole turn of strata" if bounded else "no bounds: nothing holds at every look"
    difference = replace(difference, why=why)
    if found is not None and bounded:
        # It is of first replicates: the mean over all of them may lie elsewhere.
        ends = (min(most * (2 * found[0] - 1), difference.mean), max(most * (2 * found[1] - 1), difference.mean))
        difference = replace(difference, interval=Interval(low=ends[0], high=ends[1]), method=BETTING, why="")
    if not any(left[2] != right[2] for left, right in pairs if None not in (left[2], right[2])):
        return replace(change, difference=difference, test=HypothesisTest(why=NO_DIFFERENCE), test_by=NO_DIFFERENCE)
    test = HypothesisTest(p=sequential_p(low, high, 0.5, turn))
    return replace(change, difference=difference, test=test, test_by=BETTING, signs=change.signs if bounded else test)


def _joint(first: Mapping[str, _Place], second: Mapping[str, _Place]) -> list[tuple[_Place, _Place]]:
    """The pairs of instances that both sides have begun, in the order in which both have come to them."""
    names = [name for name in first if name in second]
    names.sort(key=lambda name: (max(first[name][0], second[name][0]), first[name][0]))
    return [(first[name], second[name]) for name in names]


def _begun(cell: Cell, figures: Figures) -> dict[str, _Place]:
    """By instance (digest): what has begun; without those that have ended and have no such value."""
    begun: dict[str, _Place] = {}
    refused = cell.refused_instances
    for index, (target, episode) in enumerate(cell.begun):
        measured = None if episode is None else figures.get(episode.id)
        if target.id not in refused and (episode is None or measured is not None):
            begun[target.digest] = index, target.stratum, measured
    return begun


def _difference(first: _Place, second: _Place, width: float, unknown: float) -> float:
    """The difference, or its sign where `width` is not finite; `unknown`: -1 for the least that it may be, 1 for the
    most."""
    if not math.isfinite(width):
        return unknown if first[2] is None or second[2] is None else float(np.sign(second[2] - first[2]))
    if first[2] is None and second[2] is None:
        return unknown * width
    # A side that is known says something, where values go from 0 to `width`.
    worst, best = (0.0, width) if unknown < 0 else (width, 0.0)
    first_value = best if first[2] is None else first[2]
    second_value = worst if second[2] is None else second[2]
    return max(-width, min(width, second_value - first_value))


PRIMARY = "score"
SURE = 0.05

Verdict = Literal[
    "B better",
    "A better",
    "B higher",
    "A higher",
    "B wins more often",
    "A wins more often",
    "not alike",
    "no difference shown",
    "no difference met",
    "too few pairs",
    "undecided",
]
"""`better` is of the mean. `higher`: the same where neither direction is better; `wins more often`: of signs alone;
`not alike`: the sides differ, and neither of these is shown; `no difference met`: all pairs were alike; `too few
pairs`: not even the clearest result could be sure; `undecided`: a side is partial, and more may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedRow:
    """One row of a comparison: a cell of each side, with a measure both have values of."""

    first: Cell
    second: Cell
    measure: Measure
    asked: bool
    """Whether a side may have ended because a question was answered, so that no test of one look is valid."""
    partial: bool
    """Whether a side still owes episodes, or need not have played them; what a night left out it does not owe."""
    pairs: Pairs
    change: Change
    looked: Change
    """The same as it holds at every look, which `change` is where a side is partial."""

    @property
    def suite(self) -> str:
        """Its name."""
        return self.first.suite.name

    @property
    def agents(self) -> str:
        """Of both sides; once, where they are the same."""
        return " → ".join(dict.fromkeys((self.first.agent, self.second.agent)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """Two agents over all suites that both play, each suite with the same weight."""

    agents: str
    suites: int
    counts: dict[str, int]
    """By verdict: suites."""
    difference: Estimate | None
    """Of the scores of which more is better; None if a side is partial or there is one such suite only."""
    p: float | None
    """One test, not corrected."""

    @property
    def words(self) -> str:
        """One sentence."""
        counted = ", ".join(f"{verdict} on {count:,}" for verdict, count in self.counts.items())
        text = f"{self.agents}: of {many(self.suites, 'suite')} {counted}"
        ends = self._ends
        if self.difference is None or self.p is None or ends is None:
            return text
        mean = f"{100 * self.difference.mean:+.1f} [{ends[0]:+.1f}, {ends[1]:+.1f}]"
        return f"{text}; mean over suites B - A {mean}, p = {self.p:.2g}"

    @property
    def _ends(self) -> list[float] | None:
        """Of the difference's interval, in points; None if there is none."""
        interval = self.difference.interval if self.difference is not None else None
        return None if interval is None else [100 * interval.low, 100 * interval.high]

    def to_json(self) -> dict[str, Any]:
        """As plain values, differences in points."""
        difference = self.difference
        return {
            "agents": self.agents,
            "suites": self.suites,
            "verdicts": self.counts,
            "difference": None if difference is None else 100 * difference.mean,
            "interval": self._ends,
            "kind": None if difference is None else difference.method,
            "p": self.p,
        }


def corrected(rows: Sequence[TestedRow], of: Callable[[Change], HypothesisTest]) -> list[float | None]:
    """Holm's p-values of a test of each row: the scores' among themselves, the other measures' among themselves."""
    adjusted: list[float | None] = [None] * len(rows)
    for primary in (True, False):
        indices = [index for index, row in enumerate(rows) if (row.measure.key == PRIMARY) == primary]
        for index, value in zip(indices, holm([of(rows[index].change).p for index in indices]), strict=True):
            adjusted[index] = value
    return adjusted


def least_corrected(rows: Sequence[TestedRow], row: TestedRow) -> float | None:
    """The smallest corrected p-value that a row's pairs could have had beside the other tests, these being as they are.

    None if the row has no test of one look.
    """
    if row.change.least_p is None:
        return None
    ps = [tested.change.least_p if tested is row else tested.change.test.p for tested in _family(rows, row)]
    index = next(i for i, tested in enumerate(_family(rows, row)) if tested is row)
    return holm(ps)[index]


def _family(rows: Sequence[TestedRow], row: TestedRow) -> list[TestedRow]:
    """The rows whose tests are corrected together with this one's."""
    return [tested for tested in rows if (tested.measure.key == PRIMARY) == (row.measure.key == PRIMARY)]


def verdict(row: TestedRow, p: float | None, signs: float | None, least: float | None) -> Verdict:
    """What a score's tests say. `p`, of the permutation test, and `signs`: corrected; `least`: the least `p` possible.

    Chosen: the permutation test refutes that both sides are alike, which is no claim about means. So a mean is called
    different only if its interval leaves out 0, too, which is corrected as tests are; else the wins are counted.
    """
    change = row.change
    if p is not None and p <= SURE:
        if change.shown and not row.measure.better:
            return "B higher" if change.difference.mean > 0 else "A higher"
        if change.shown:
            return "B better" if change.difference.mean > 0 else "A better"
        if signs is not None and signs <= SURE:
            return "B wins more often" if change.wins > change.losses else "A wins more often"
        return "not alike"
    if row.partial:
        return "undecided"
    if p is None:
        return "no difference met" if row.change.test.why == "no difference" else "too few pairs"
    return "no difference shown" if least is None or least <= SURE else "too few pairs"


def binding_notes(rows: Sequence[TestedRow]) -> list[str]:
    """Where a p-value cannot become small enough, and how small it can."""
    notes: dict[str, None] = {}
    for row in rows:
        least, alone = least_corrected(rows, row), row.change.least_p
        if row.measure.key != PRIMARY or least is None or alone is None or least <= SURE:
            continue
        tests = sum(tested.change.test.p is not None for tested in _family(rows, row))
        corrected_too = f", nor below {least:.3g} after correction for {tests:,} tests" * (least > alone)
        notes[
            f"{row.suite}, {row.agents}: p cannot go below {alone:.3g}{corrected_too}: "
            f"{len(row.pairs.names):,} pairs are too few to be sure of any difference"
        ] = None
    return list(notes)


def overall(rows: Sequence[TestedRow], verdicts: Sequence[Verdict | None]) -> list[Overall]:
    """For each two agents: all suites together. `verdicts`: by row; None of other measures than the score."""
    summaries = []
    for agents in dict.fromkeys(row.agents for row in rows):
        judged = [
            (row, verdict)
            for row, verdict in zip(rows, verdicts, strict=True)
            if row.agents == agents and verdict is not None
        ]
        counts: dict[str, int] = {}
        for _, verdict in judged:
            counts[verdict] = counts.get(verdict, 0) + 1
        scored = [row for row, _ in judged if row.measure.better]
        difference, p = (None, None) if len(scored) < 2 or any(row.partial for row in scored) else _pooled(scored)
        summaries.append(Overall(agents=agents, suites=len(judged), counts=counts, difference=difference, p=p))
    return [summary for summary in summaries if summary.suites]


def _pooled(rows: Sequence[TestedRow]) -> tuple[Estimate, float | None]:
    """(the mean over suites of the scores' differences, the test by signs that it is 0)."""
    total = sum(len(row.pairs.names) for row in rows)
    values: dict[str, float] = {}
    strata: dict[str, str] = {}
    for index, row in enumerate(rows):
        # So that the mean over all pairs is the mean over suites.
        weight = total / (len(rows) * len(row.pairs.names))
        for name, value in row.pairs.thinned.items():
            values[f"{index} {name}"] = weight * value
            strata[f"{index} {name}"] = str(index)
    place = ("overall", rows[0].agents, *(row.suite for row in rows))
    estimated = estimate({name: [value] for name, value in values.items()}, strata=strata)
    test, _ = sign_flips(list(values.values()), place=place)
    return estimated, test.p
