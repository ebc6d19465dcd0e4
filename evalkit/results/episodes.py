"""From a run's log to one record an episode: what it scored, how it behaved, what it cost.

Scores are not read but made: the environment's `score` is folded over the logged facts, so a new metric holds for old
runs too. An episode that the model or the environment ended is scored; one that the infrastructure stopped has no
ending in the log, has no score, and remains to be played.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

from evalkit.envs.environment import Environment, Facts, outcomes
from evalkit.errors import CorruptLogError, RunError, UsageError
from evalkit.frozen.instances import ManifestInstance
from evalkit.frozen.manifest import Manifest, ManifestSuite, load_target
from evalkit.store.files.record import REFUSED, UNSCORED

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Places = npt.NDArray[np.int64]


Environments = Mapping[str, Environment[Any, Any]]

NO_ACTION = "no_action_periods"
"""The metric in which environments count the periods without an accepted action."""

OWN_METRICS = frozenset({"score", "solved"})
"""What the view `scores` has of every episode; no metric of an environment's has these names."""

NUMBERS = (
    *("episode", "suite", "instance", "agent", "replicate", "step", "period", "ending"),
    *("tokens_in", "tokens_out", "tokens_cached_read", "tokens_cached_write", "cost", "saved"),
    *("latency_s", "queue_s", "attempts"),
)
"""What of the log a report reads of every row: no text."""

COLUMNS = (*NUMBERS, "facts")
"""The same with what episodes are scored from."""


Outcomes = tuple[tuple[str, str, int], ...]
"""(tool, outcome, calls) of each kind of tool call, in the order of the first ones."""


# Made for every episode of a report: msgspec's frozen records cost a fifth of what dataclasses do.
class EpisodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One episode that the log knows, ended or not."""

    id: str
    agent: str
    suite: str
    """With `?k=2` after it where the sweep varied parameters."""
    axes: Mapping[str, Any]
    """The varied parameters and their values."""
    environment: str
    instance: str
    stratum: str
    replicate: int
    ending: str
    """Empty if it has not ended; `refused` if the provider refused its last request and the model did not cause it."""
    steps: int
    finished: bool
    """Ended by the model or the environment, and so scored."""
    score: float | None
    """1 is the optimum; None if the episode has not ended."""
    solved: bool
    metrics: Mapping[str, float]
    path: tuple[str, ...]
    """Tools of its charged calls, in order; empty if its environment compares no paths."""
    outcomes: Outcomes
    """Empty if the episode has not ended."""
    without_call: int
    """Replies without a tool call; 0 if the episode has not ended."""
    periods: int
    """Periods begun."""
    no_action: int
    """Periods without an accepted action; 0 if the episode has not ended."""
    cost: int
    """Pico-dollars of its replies."""
    tokens_in: int
    tokens_out: int
    tokens_cached_read: int
    latency_s: float
    """Of all its replies together."""
    saved: int = 0
    """What they would have cost more by the standard tier."""
    said: str = ""
    """Of one that was refused: what the provider said."""

    @property
    def refused(self) -> bool:
        """Whether it remains because the provider refused its last request."""
        return self.ending == REFUSED


_FRACTIONS = ("latency_s",)
_SUMMED = ("cost", "saved", "tokens_in", "tokens_out", "tokens_cached_read", *_FRACTIONS)


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """One episode of the log before it is scored: where it belongs, and what its rows come to."""

    id: str
    agent: str
    suite: ManifestSuite
    target: ManifestInstance
    replicate: int
    ending: str
    first: int
    """Its first row, in rows sorted by episode and step."""
    steps: int
    periods: int
    sums: Mapping[str, Any]
    """Of its rows: cost, tokens, seconds."""

    @property
    def finished(self) -> bool:
        """Whether it was ended by the model or the environment, and so is scored."""
        return bool(self.ending) and self.ending not in UNSCORED


class Fold(msgspec.Struct, frozen=True, array_like=True):
    """What the facts of a finished episode come to. Kept as JSON, a list of these fields (`derived.py`)."""

    score: float
    solved: bool
    metrics: dict[str, float]
    path: tuple[str, ...]
    outcomes: Outcomes
    without_call: int


def episode_results(steps: "pa.Table", manifest: Manifest, environments: Environments) -> list[EpisodeResult]:
    """The episodes of a run's rows in effect, in the order of their ids.

    `steps` holds `COLUMNS`. Raises CorruptLogError for rows of an agent, suite or instance the manifest lacks.
    """
    steps = steps.sort_by([("episode", "ascending"), ("step", "ascending")])
    referee, logged = Referee(environments), steps.column("facts")

    def fold(spot: Spot) -> Fold | None:
        return referee.fold(spot, logged.slice(spot.first, spot.steps).to_pylist()) if spot.finished else None

    return [result(spot, fold(spot)) for spot in spots(steps, manifest)]


def spots(steps: "pa.Table", manifest: Manifest) -> list[Spot]:
    """The episodes of a run's rows in effect, which are sorted by episode and step; in the order of their ids.

    `steps` holds `NUMBERS`. Raises CorruptLogError for rows of an agent, suite or instance the manifest lacks.
    """
    if not steps.num_rows:
        return []
    from evalkit.store.reading.arrays import floats, ints, take_rows, words

    starts, counts = _spans(steps)
    numbers = {name: (floats if name in _FRACTIONS else ints)(steps, name) for name in _SUMMED}
    sums = zip(*(np.add.reduceat(column, starts).tolist() for column in numbers.values()), strict=True)
    firsts = take_rows(steps.select(["episode", "agent", "suite", "instance", "replicate"]), starts)
    lasts = take_rows(steps.select(["ending", "period"]), starts + counts - 1)
    # Column by column: a row of Arrow as a dictionary takes as long as all else of an episode.
    rows = list(
        zip(
            *(words(firsts, name) for name in ("episode", "agent", "suite", "instance")),
            ints(firsts, "replicate").tolist(),
            strict=True,
        )
    )
    ends = zip(words(lasts, "ending"), ints(lasts, "period").tolist(), strict=True)
    places = manifest.targets((suite, instance) for _, _, suite, instance, _ in rows)
    all_spots = []
    for first, count, row, (ending, period), summed in zip(
        starts.tolist(), counts.tolist(), rows, ends, sums, strict=True
    ):
        suite, target = _place(row, places, manifest)
        all_spots.append(
            Spot(
                id=row[0],
                agent=row[1],
                suite=suite,
                target=target,
                replicate=row[4],
                ending=ending,
                first=first,
                steps=count,
                periods=period + 1,
                sums=dict(zip(numbers, summed, strict=True)),
            )
        )
    return all_spots


def spot_without_steps(
    key: Mapping[str, Any], manifest: Manifest, *, cost: int, tokens_in: int, tokens_out: int, latency_s: float
) -> Spot:
    """An episode of which the log knows requests alone, an agent's code having asked and not acted yet. `key`: its id
    as `episode`, its agent, suite, instance and replicate. Raises CorruptLogError as `spots` does."""
    row = key["episode"], key["agent"], key["suite"], key["instance"], key["replicate"]
    suite, target = _place(row, manifest.targets([(key["suite"], key["instance"])]), manifest)
    sums = {"cost": cost, "tokens_in": tokens_in, "tokens_out": tokens_out, "tokens_cached_read": 0}
    return Spot(
        id=key["episode"],
        agent=key["agent"],
        suite=suite,
        target=target,
        replicate=key["replicate"],
        ending="",
        first=0,
        steps=0,
        periods=0,
        sums={**sums, "latency_s": latency_s},
    )


def _spans(steps: "pa.Table") -> "tuple[Places, Places]":
    """First row and number of rows of each episode in rows sorted by episode."""
    from evalkit.store.reading.arrays import coded

    codes = coded(steps, "episode")[1]
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).astype(np.int64)
    return starts, np.diff(starts, append=len(codes))


def _place(
    row: tuple[str, str, str, str, int],
    places: Mapping[tuple[str, str], tuple[ManifestSuite, ManifestInstance]],
    manifest: Manifest,
) -> tuple[ManifestSuite, ManifestInstance]:
    """`row`: episode, agent, suite, instance, replicate."""
    episode, agent, suite, instance, replicate = row
    planned = places.get((suite, instance))
    if planned is None or agent not in manifest.agents or not 0 <= replicate < manifest.replicates:
        raise CorruptLogError(
            f"episode {episode} is of {agent}:{suite}:{instance}:{replicate}, which {manifest.file} does not plan. "
            "Were files of two runs mixed?"
        )
    return planned


def result(spot: Spot, fold: Fold | None, said: str = "") -> EpisodeResult:
    """An episode; `fold`: None if it has not ended; `said`: as of the record."""
    return EpisodeResult(
        id=spot.id,
        agent=spot.agent,
        suite=spot.suite.name,
        axes=spot.suite.axes,
        environment=spot.suite.environment,
        instance=spot.target.id,
        stratum=spot.target.stratum,
        replicate=spot.replicate,
        ending=spot.ending,
        steps=spot.steps,
        finished=fold is not None,
        score=fold.score if fold else None,
        solved=bool(fold and fold.solved),
        metrics=fold.metrics if fold else {},
        path=fold.path if fold else (),
        outcomes=fold.outcomes if fold else (),
        without_call=fold.without_call if fold else 0,
        periods=spot.periods,
        no_action=int(fold.metrics.get(NO_ACTION, 0)) if fold else 0,
        said=said,
        **spot.sums,
    )


class Referee:
    """Scores episodes; reads each instance of the manifest once."""

    def __init__(self, environments: Environments) -> None:
        self._environments = environments
        self._loaded: dict[tuple[str, str], tuple[Environment[Any, Any], Any]] = {}

    def fold(self, spot: Spot, logged: Sequence[str]) -> Fold:
        """A finished episode from its rows' facts, JSON in step order. Raises CorruptLogError if they are none."""
        try:
            facts: list[Facts] = [orjson.loads(text) for text in logged]
        except orjson.JSONDecodeError as flaw:
            raise CorruptLogError(
                f"episode {spot.id}: logged facts are no JSON ({flaw}). `evalkit verify` names the step."
            ) from flaw
        key = spot.suite.environment, spot.target.digest
        if key not in self._loaded:
            env = self._environments[spot.suite.environment]
            self._loaded[key] = env, load_target(env, spot.target)
        env, instance = self._loaded[key]
        score = env.score(instance, facts)
        if not OWN_METRICS.isdisjoint(score.metrics):
            raise UsageError(
                f"The environment {env.name!r} has a metric {min(OWN_METRICS & score.metrics.keys())!r}, which is a "
                "name of evalkit's own. Its package must choose another name."
            )
        return Fold(
            score=float(score.value),
            solved=score.solved,
            metrics={name: float(value) for name, value in score.metrics.items()},
            path=score.path,
            outcomes=_counted(facts),
            without_call=sum(fact.get("calls") == [] for fact in facts),
        )


def _counted(facts: Sequence[Facts]) -> Outcomes:
    """The tool calls. `Counter` takes several times as long for the few calls of an episode."""
    counts: dict[tuple[str, str], int] = {}
    for kind in outcomes(facts):
        counts[kind] = counts.get(kind, 0) + 1
    return tuple((tool, outcome, count) for (tool, outcome), count in counts.items())


# Whether the environments of a run are installed, for commands that replay its episodes.


def require_environments(manifest: Manifest, names: Iterable[str], environments: Environments) -> None:
    """Raises RunError, with the command that installs its package, if one of these environments is not installed."""
    for name in dict.fromkeys(names):
        if name not in environments:
            raise RunError(
                f"The run {manifest.name!r} uses the environment {name!r}, which is not installed, or its manifest was "
                f"changed. Its episodes cannot be replayed. {manifest.install(name)}"
            )
