"""Preferences from a seed: the reference's generator, draw for draw, and the native one for any size and number.

Four families, as in the paper's appendix D.1. Public scores make preferences correlated: each scored id has a score on
a ladder, and everybody who ranks it draws a latent value with that mean.

Differs: the paper draws public scores uniformly from [1, 3] and prefers the smaller latent value; the reference code,
which made the published data, shuffles a geometric ladder from 1 to the gap and prefers the larger. Both generators
do as the code does.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from evalkit.envs.numpy_random_state import RandomStateSnapshot, RandomStateStream
from evalkit.envs.scheduling.market import SchedulingMarket, make_market
from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]
    Places = npt.NDArray[np.int64]

ALIKE = 0.0
"""The gap that stands for: everybody ranks this side in the same, uniformly drawn order."""

DIFFICULTIES = {"basic": (10, 1), "medium": (20, 2), "hard": (50, 5)}
"""The paper's levels: number of workers, and blocking pairs shown at most."""

REFERENCE_SEEDS = range(12)
"""The seeds of the paper's twelve instances a level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """How far public scores lie apart: the best one over the worst; 1 is uniform preferences, `ALIKE` is one order."""

    worker: float
    """Of the workers' scores, by which tasks rank them."""
    task: float
    """Of the tasks' scores, by which workers rank them."""


Family = Literal["uniform", "correlated", "correlated_identical", "uniform_identical"]
FAMILIES: Mapping[Family, Gaps] = {
    "uniform": Gaps(worker=1.0, task=1.0),
    "correlated": Gaps(worker=3.0, task=3.0),
    "correlated_identical": Gaps(worker=ALIKE, task=3.0),
    "uniform_identical": Gaps(worker=ALIKE, task=1.0),
}
"""Preference families in the order of the reference's seeds: three seeds each."""


def family_of_seed(seed: int) -> Family:
    """The family the reference gives to a seed: by its remainder after division by 12, three to a family."""
    return tuple(FAMILIES)[seed % 12 // 3]


def reference_market(n: int, seed: int, gaps: Gaps) -> tuple[SchedulingMarket, RandomStateSnapshot]:
    """The reference's instance, and where its generator then stands: feedback keeps drawing from there."""
    stream = RandomStateStream(seed)
    worker_prefs = _reference_side(stream, n, gaps.task)
    task_prefs = _reference_side(stream, n, gaps.worker)
    return make_market(worker_prefs, task_prefs), stream.freeze()


def native_market(n: int, seed: int, gaps: Gaps) -> SchedulingMarket:
    """An instance of the native generator: each draw keyed by its place."""
    return make_market(_native_side(n, seed, "tasks", gaps.task), _native_side(n, seed, "workers", gaps.worker))


def _reference_side(stream: RandomStateStream, n: int, gap: float) -> "Places | list[list[int]]":
    """Preference lists (n, n) over one side, best first."""
    if gap == ALIKE:
        return [stream.permutation(n)] * n
    scores = _shuffled_ladder(n, gap, stream.permutation)
    return _by_latent(stream.exponentials(scores, n))


def _native_side(n: int, seed: int, side: str, gap: float) -> "Places | list[list[int]]":
    import numpy as np

    if gap == ALIKE:
        return [Stream(seed, "scheduling", side, "order").permutation(n)] * n
    scores = _shuffled_ladder(n, gap, Stream(seed, "scheduling", side, "scores").permutation)
    uniforms = Stream(seed, "scheduling", side, "latent").uniforms(n * n).reshape(n, n)
    return _by_latent(-np.log1p(-uniforms) * np.asarray(scores))


def _shuffled_ladder(n: int, gap: float, permutation: Callable[[int], Sequence[int]]) -> list[float]:
    """Public scores gap^(i/(n-1)), i = 0..n-1, in random order. The order is drawn even where all scores are 1."""
    steps = max(n - 1, 1)
    ladder = [math.pow(gap, i / steps) for i in range(n)]
    return [ladder[i] for i in permutation(n)]


def _by_latent(latent: "Doubles") -> "Places":
    """Lists of ids by latent value, the largest first. latent (n, n): [who ranks, who is ranked]."""
    import numpy as np

    order: Places = np.argsort(-latent, axis=1, kind="stable")
    return order
