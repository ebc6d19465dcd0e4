"""From a run's log to one record an episode: what it scored, how it behaved, what it cost.

Scores are not read but made: the environment's `score` is folded over the logged facts, so a new metric holds for old
runs too. An episode that the model or the environment ended is scored; one that the infrastructure stopped has no
ending in the log, is unscored, and is owed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from evalkit.env.environment import Environment, Facts, Score, outcomes
from evalkit.errors import CorruptLogError
from evalkit.store.manifest import Manifest, ManifestInstance, ManifestSuite

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Places = npt.NDArray[np.int64]

Environments = Mapping[str, Environment[Any, Any]]

INFRASTRUCTURE = frozenset({"unavailable", "internal_error", "budget", "deadline", "stopped", "lane", "storage"})
"""Ways to leave an episode that say nothing of the agent. The engine logs none of them as an ending; should a log hold
one all the same, its episode is owed, not scored."""

NO_ACTION = "no_action_periods"
"""The metric in which environments count the periods without an accepted action."""

COLUMNS = (
    *("episode", "suite", "instance", "agent", "replicate", "step", "period", "facts", "ending"),
    *("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "cost"),
    *("latency_s", "queue_s", "attempts"),
)
"""What of the log a report reads: no text of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """One episode that the log knows, ended or not."""

    id: str
    agent: str
    suite: str
    """With `?k=2` behind it where the sweep varied parameters."""
    axes: Mapping[str, Any]
    """The varied parameters and their values."""
    environment: str
    instance: str
    stratum: str
    replicate: int
    ending: str
    """Empty while it is owed."""
    steps: int
    finished: bool
    """Ended by the model or the environment, and so scored."""
    score: float | None
    """1 is the optimum; None of an episode that is owed."""
    solved: bool
    metrics: Mapping[str, float]
    path: tuple[str, ...]
    """Tools of its charged calls, in order; empty where its environment compares no paths."""
    outcomes: Mapping[tuple[str, str], int]
    """Tool calls by (tool, outcome); empty of an episode that is owed."""
    without_call: int
    """Replies without a tool call; 0 of an episode that is owed."""
    periods: int
    """Periods begun."""
    no_action: int
    """Periods without an accepted action; 0 of an episode that is owed."""
    cost: int
    """Pico-dollars of its replies."""
    tokens_in: int
    tokens_out: int
    tokens_cached_read: int
    latency_s: float
    """Of all its replies together."""


def episode_results(steps: "pa.Table", manifest: Manifest, environments: Environments) -> list[EpisodeResult]:
    """The episodes of a run's rows in effect, in the order of their ids.

    `steps` holds `COLUMNS`. Raises CorruptLogError for rows of an agent, suite or instance the manifest lacks.
    """
    if not steps.num_rows:
        return []
    steps = steps.sort_by([("episode", "ascending"), ("step", "ascending")])
    starts, counts = _spans(steps)
    sums = {name: np.add.reduceat(steps.column(name).to_numpy(), starts).tolist() for name in _SUMMED}
    first = steps.select(["episode", "agent", "suite", "instance", "replicate"]).take(starts).to_pylist()
    last = steps.select(["ending", "period"]).take(starts + counts - 1).to_pylist()
    referee = _Referee(manifest, environments)
    facts = steps.column("facts")
    return [
        referee.judge(
            {**key, **end, **{name: sums[name][i] for name in _SUMMED}, "steps": count}, facts.slice(begin, count)
        )
        for i, (begin, count, key, end) in enumerate(zip(starts.tolist(), counts.tolist(), first, last, strict=True))
    ]


_SUMMED = ("cost", "tokens_in", "tokens_out", "tokens_cached_read", "latency_s")


class _Referee:
    """Scores episodes; reads each instance of the manifest once."""

    def __init__(self, manifest: Manifest, environments: Environments) -> None:
        self._manifest, self._environments = manifest, environments
        self._targets = {
            (suite.name, one.id): (suite, one) for suite in manifest.suites.values() for one in suite.instances
        }
        self._instances: dict[str, Any] = {}

    def judge(self, row: Mapping[str, Any], logged: "pa.ChunkedArray") -> EpisodeResult:
        """An episode from what its rows come to, and their facts."""
        suite, target = self._place(row)
        finished = bool(row["ending"]) and row["ending"] not in INFRASTRUCTURE
        facts = _facts(logged, row["episode"]) if finished else []
        score = self._score(suite, target, facts) if finished else None
        return EpisodeResult(
            id=row["episode"],
            agent=row["agent"],
            suite=suite.name,
            axes=suite.axes,
            environment=suite.environment,
            instance=target.id,
            stratum=target.stratum,
            replicate=row["replicate"],
            ending=row["ending"],
            steps=row["steps"],
            finished=finished,
            score=score.value if score else None,
            solved=bool(score and score.solved),
            metrics=score.metrics if score else {},
            path=score.path if score else (),
            outcomes=Counter(outcomes(facts)),
            without_call=sum(one.get("calls") == [] for one in facts),
            periods=row["period"] + 1,
            no_action=int(score.metrics.get(NO_ACTION, 0)) if score else 0,
            **{name: row[name] for name in _SUMMED},
        )

    def _place(self, row: Mapping[str, Any]) -> tuple[ManifestSuite, ManifestInstance]:
        place = self._targets.get((row["suite"], row["instance"]))
        planned = row["agent"] in self._manifest.agents and 0 <= row["replicate"] < self._manifest.replicates
        if place is None or not planned:
            where = f"{row['agent']}:{row['suite']}:{row['instance']}:{row['replicate']}"
            raise CorruptLogError(
                f"episode {row['episode']} is of {where}, which run.json does not plan. Were files of two runs mixed?"
            )
        return place

    def _score(self, suite: ManifestSuite, target: ManifestInstance, facts: Sequence[Facts]) -> Score:
        env = self._environments[suite.environment]
        key = f"{suite.environment}/{target.digest}"
        if key not in self._instances:
            self._instances[key] = env.load(target.line)
        return env.score(self._instances[key], facts)


def _spans(steps: "pa.Table") -> "tuple[Places, Places]":
    """First row and number of rows of each episode in rows sorted by episode."""
    codes = steps.column("episode").combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).astype(np.int64)
    return starts, np.diff(starts, append=len(codes))


def _facts(logged: "pa.ChunkedArray", episode: str) -> list[Facts]:
    try:
        return [orjson.loads(text) for text in logged.to_pylist()]
    except orjson.JSONDecodeError as flaw:
        raise CorruptLogError(
            f"episode {episode}: logged facts are no JSON ({flaw}). `evalkit verify` names the step."
        ) from flaw
