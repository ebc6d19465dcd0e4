"""What `evalkit compare` compares: of each environment its measures, which direction is better, how far they can go."""

from collections.abc import Callable

from evalkit.envs.known import score_range, shares_of
from evalkit.report.extras.record import HIGHER, Measure, MeasuredValue, extras_of
from evalkit.report.scores import METRICS
from evalkit.results.cells import Cell
from evalkit.results.episodes import EpisodeResult


def measures(first: Cell, second: Cell) -> list[Measure]:
    """What both cells have values of."""
    environment = first.suite.environment
    least, most = score_range(environment)
    always = [
        Measure(
            key="score",
            title="Score",
            value=lambda episode: episode.score,
            width=most - least,
            better=HIGHER,
            unmet=1.0,
        ),
        Measure(key="solved", title="Solved", value=lambda episode: float(episode.solved), better=HIGHER),
    ]
    environment_measures = extras_of(environment).measures
    if environment_measures is not None:
        return [*always, *environment_measures]
    titles = {**METRICS, **{name: share.title for name, share in shares_of([environment]).items()}}
    metric_names = [{name for episode in cell.prefix for name in episode.metrics} for cell in (first, second)]
    return always + [
        Measure(key=name, title=title, value=metric(name), better=HIGHER if name == "best_so_far_rate" else "")
        for name, title in titles.items()
        if all(name in names for names in metric_names)
    ]


def metric(name: str, keep: Callable[[EpisodeResult], bool] = lambda _: True) -> MeasuredValue:
    """A metric of the episodes that `keep` keeps."""
    return lambda episode: episode.metrics.get(name) if keep(episode) else None
