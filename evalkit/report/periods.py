"""What every period of an episode came to: the environments' scores, period by period, as figures and SQL see them.

What a period came to, and what stands at its end, each environment says in its extras (`PeriodStanding`); of one that
says nothing an episode is one period, and its score is what it came to. 1 is the optimum. What stands is 0 before
anything does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from evalkit.envs.table import ENVIRONMENTS
from evalkit.report.extras import extras_of

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from evalkit.results.cells import Cell
    from evalkit.results.episodes import EpisodeResult

    Values = npt.NDArray[np.float64]

Action = tuple[int, Mapping[str, Any]]
"""(period, what the log says of the action)."""

ACTIONS = """
select episode, period, facts->'$.action' as action
from steps where contains(facts, '"action":'){among} order by episode, step
"""

VIEW = """
create view periods as
select e.episode, e.environment, e.suite, e.base, e.axes, e.instance, e.stratum, e.agent, e.prompts, e.replicate,
    e.used, w.period, w.score, w.standing, 1 - w.standing as regret,
    sum(1 - w.standing) over (partition by e.episode order by w.period) as cumulative_regret,
    coalesce(s.steps, 0) as steps, coalesce(s.calls, 0) as calls,
    coalesce(s.cost, 0) as cost, coalesce(s.cost, 0) / 1e12 as usd,
    coalesce(s.tokens_in, 0) as tokens_in, coalesce(s.tokens_out, 0) as tokens_out,
    coalesce(s.latency_s, 0) as latency_s
from period_scores w join episodes e using (episode) left join (
    select episode, period, count(*) as steps, sum(cost)::bigint as cost, sum(tokens_in)::bigint as tokens_in,
        sum(tokens_out)::bigint as tokens_out, sum(latency_s) as latency_s,
        sum(coalesce(json_array_length(facts, '$.calls'), 0))::bigint as calls
    from steps group by all
) s on s.episode = w.episode and s.period = w.period
"""
"""The view `periods`, over the table that `period_scores` makes."""


def by_period(actions: Iterable[Action], periods: int, worth: Callable[[Mapping[str, Any]], float]) -> "Values":
    """A value for each period that has an action; NaN elsewhere."""
    values = np.full(periods, np.nan)
    for period, action in actions:
        if period < periods:
            values[period] = worth(action)
    return values


def best_so_far(values: "Values") -> "Values":
    """The greatest value up to each period; 0 before there is one."""
    known: Values = np.maximum.accumulate(np.fmax(values, 0.0))
    return known


def last_so_far(values: "Values") -> "Values":
    """The last value up to each period; 0 before there is one."""
    latest = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))
    return np.where(latest < 0, 0.0, values[latest])


def alone(values: "Values") -> "Values":
    """Each period's value; 0 if there is none."""
    return np.nan_to_num(values, nan=0.0)


def standing(environment: str, instance: Any, actions: Sequence[Action], periods: int) -> "Values":
    """What stands at each period's end."""
    standing = extras_of(environment).standing
    assert standing is not None
    return standing.hold(standing.values(instance, actions, periods))


def logged_actions(answer: "pa.Table") -> Iterator[tuple[str, list[Action]]]:
    """(episode, its actions in order) of the rows that `ACTIONS` gives."""
    columns = (answer.column(name).to_pylist() for name in ("episode", "period", "action"))
    rows = ((episode, period, text) for episode, period, text in zip(*columns, strict=True) if text is not None)
    for episode, episode_rows in groupby(rows, key=lambda row: row[0]):
        yield episode, [(period, orjson.loads(text)) for _, period, text in episode_rows]


def _only(episode: "EpisodeResult") -> "Values":
    return np.array([np.nan if episode.score is None else episode.score])


def _judge(cell: "Cell") -> "Callable[[EpisodeResult, Sequence[Action]], tuple[Values, Values]]":
    """(episode of the cell, its actions) -> each period's value, and what stands."""
    environment = cell.suite.environment
    standing = extras_of(environment).standing
    if standing is None:
        return lambda episode, _: (_only(episode), _only(episode))
    lines = {name: target.line for name, target in cell.targets.items()}
    load = cache(lambda name: ENVIRONMENTS[environment].load(lines[name]))

    def judged(episode: "EpisodeResult", actions: Sequence[Action]) -> "tuple[Values, Values]":
        instance = load(episode.instance)
        values = standing.values(instance, actions, instance.periods if episode.finished else episode.periods)
        return values, standing.hold(values)

    return judged


def period_scores(ask: "Callable[[str], pa.Table]", cells: Iterable["Cell"]) -> "pa.Table":
    """One row an episode and period: `episode`, `period`, `score` (of what was done in it alone; null without) and
    `standing`. A finished episode has all its periods, one that continues those that have begun.

    `ask`: answers a query over the view `steps`.
    """
    import pyarrow as pa

    all_cells = list(cells)
    logged = logged_actions(ask(ACTIONS.format(among=""))) if all_cells else ()
    actions = dict(logged)
    names, own_values, standings = [], [np.empty(0)], [np.empty(0)]
    for cell in all_cells:
        judge = _judge(cell)
        for episode in (*cell.episodes, *(result for result, _ in cell.voided)):
            values, standing_values = judge(episode, actions.get(episode.id, ()))
            names.append(episode.id)
            own_values.append(values)
            standings.append(standing_values)
    sizes = [len(values) for values in own_values[1:]]
    return pa.table(
        {
            "episode": pa.array(np.repeat(np.array(names, dtype=object), sizes), pa.string()),
            "period": pa.array(np.concatenate([np.empty(0, np.int32), *map(np.arange, sizes)]), pa.int32()),
            "score": pa.array(np.concatenate(own_values), pa.float64(), from_pandas=True),
            "standing": pa.array(np.concatenate(standings), pa.float64(), from_pandas=True),
        }
    )
