"""Learning what items are worth from what plans supported.

The model: a plan that holds n_i units of item i supports  s * prod over categories g of (sum_{i in g} n_i e_i)^(1/k)
workers, which is the environment's own law with unknown e; s is the scale that no plan can tell from the e's. In
logarithms it is fitted by Gauss-Newton under a normal prior on each log e_i, and what is left open is the Gaussian of
that fit (Laplace's approximation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalkit.seeds import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

_SPREAD = 0.7
"""Standard deviation of the prior of log e: between that of 1..3 and that of 1..20, uniformly drawn."""
_NOISE = 0.004
"""Of a logarithm seen: more than rounding makes, so that the fit stays smooth."""
_ROUNDS = 12
_STEP = 1.5
"""The greatest change of a log e in one round."""
_PART = 25
"""Plans whose products are summed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is known of the items' effects."""

    logs: "Doubles"
    """Most likely log e, by item."""
    precision: "Doubles"
    """Inverse covariance around it, items by items."""

    def best(self) -> "Doubles":
        """The most likely effects."""
        import numpy as np

        effects: Doubles = np.exp(self.logs)
        return effects

    def drawn(self, draws: Stream) -> "Doubles":
        """Effects drawn from the belief."""
        import numpy as np

        root = np.linalg.cholesky(self.precision)
        off = _normals(len(self.logs), draws)
        # Solved from the last row up: a general solver would wake threads, which cost more than they gain here.
        for i in range(len(off) - 1, -1, -1):
            off[i] = (off[i] - root[i + 1 :, i] @ off[i + 1 :]) / root[i, i]
        effects: Doubles = np.exp(self.logs + off)
        return effects


def learn(units: "Doubles", workers: Sequence[float], category: "Ints") -> Belief:
    """The belief after some plans.

    `units`: units of each item in each plan, plans by items; `workers`: of each plan, positive; `category`: of each
    item, counted from 0.
    """
    import numpy as np

    items = units.shape[1]
    logs, precision = np.zeros(items), np.eye(items) / _SPREAD**2
    # Nothing is learned of items that no plan held; leaving them out keeps the equations small.
    seen = np.flatnonzero(units.any(axis=0))
    if len(seen):
        fitted = _fitted(units[:, seen], np.asarray(workers, dtype=np.float64), category[seen])
        logs[seen], precision[np.ix_(seen, seen)] = fitted
    return Belief(logs=logs, precision=precision)


def _fitted(units: "Doubles", workers: "Doubles", category: "Ints") -> "tuple[Doubles, Doubles]":
    """Most likely logarithms and their precision, for items that plans held."""
    import numpy as np

    items = len(category)
    logs, prior = np.zeros(items), np.eye(items) / _SPREAD**2
    groups = (category[:, None] == np.unique(category)).astype(np.float64)
    target, weight = np.log(workers), 1.0 / (_NOISE**2 + (0.003 / workers) ** 2)
    precision = prior
    for _ in range(_ROUNDS):
        effective = units * np.exp(logs)
        totals = effective @ groups
        slope = effective / (totals @ groups.T) / groups.shape[1]
        left = target - np.log(totals).mean(axis=1)
        # The scale is fitted along: deviations from weighted means leave it out.
        slope -= (weight @ slope) / weight.sum()
        left -= (weight @ left) / weight.sum()
        weighed = slope * weight[:, None]
        # In parts, so that none is large enough to wake threads, which cost more than they gain here.
        parts = range(0, len(units), _PART)
        precision = prior + sum((weighed[i : i + _PART].T @ slope[i : i + _PART] for i in parts), np.zeros_like(prior))
        change = np.linalg.solve(precision, left @ weighed - logs / _SPREAD**2)
        logs = logs + change * min(1.0, _STEP / max(1e-12, float(np.abs(change).max())))
        if np.abs(change).max() < 1e-3:
            break
    return logs, precision


def _normals(count: int, draws: Stream) -> "Doubles":
    """Standard normal numbers, two from two uniform ones (Box and Muller)."""
    import numpy as np

    pairs = draws.uniforms(2 * ((count + 1) // 2)).reshape(2, -1)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[0]))
    normal: Doubles = np.concatenate([radius * np.cos(2 * np.pi * pairs[1]), radius * np.sin(2 * np.pi * pairs[1])])
    return normal[:count]
