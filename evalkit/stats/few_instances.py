"""A fall that sits in few of the instances: the mean of all hardly moves, and some of them fall far.

Each instance is measured against itself. What a whole night has in common is taken out as the median over instances,
so this test knows nothing of a fall that all share, and nothing of a night's effect. Of the last two or four nights an
instance's best ones count, all but the worst, so that one night's outage is no fall. The statistic is

    T = sum over instances of max(0, z)^2,  z = (mean of the nights before - of the best ones since) / spread

which a tenth of the instances moves as far as 50 points in each of them, and noise by its share alone. Its p-value is
that of nights dealt anew within each instance, so it is exact where nothing but chance tells the nights of an instance
apart, whatever the shape of its scores.

Chosen: instances that all of the compared nights have, of these at most `MOST_BEFORE` before the window; and an alarm
also needs that the mean of all has fallen by more than the tolerance, by its own permutation test.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from evalkit.seeds import Stream

SIZES = (2, 4)
"""Nights of a window."""
LEAST_BEFORE, MOST_BEFORE = 3, 16
LEAST = 10
"""Instances that all nights have."""
_SEED, _AT_ONCE, _NOTHING_IN_SIGHT = 0, 250, 50


def few_fallen(nights: Sequence[Mapping[str, float]], size: int, since: int, way: float, draws: int) -> float:
    """The chance that some instances look so low on the last `size` nights, against those before the last `since`.

    nights  by instance: its mean of that night, oldest first
    way     1 for a fall, -1 for a rise
    draws   the most that are made; fewer where nothing is in sight

    1 where too little is known.
    """
    compared = [*nights[:-since][-MOST_BEFORE:], *nights[-size:]]
    shared = sorted(set[str].intersection(*(set(night) for night in compared)))
    if len(compared) < size + LEAST_BEFORE or len(shared) < LEAST:
        return 1.0
    values = way * np.array([[night[name] for night in compared] for name in shared])
    values -= np.median(values - values.mean(axis=1, keepdims=True), axis=0)
    spread = values.var(axis=1, ddof=1)
    if not spread.any():
        return 1.0
    values /= np.sqrt((spread + spread.mean()) / 2)[:, None]
    # By instance and by which of its nights the window may be dealt: its part of the statistic; the last is what was.
    dealt = np.array(list(combinations(range(values.shape[1]), size)))
    sums = sum(values[:, one] for one in dealt.T)
    best = (sums - np.minimum.reduce([values[:, one] for one in dealt.T])) / (size - 1)
    before = (values.sum(axis=1)[:, None] - sums) / (values.shape[1] - size)
    parts = np.maximum(0.0, before - best) ** 2
    least, flat = float(parts[:, -1].sum()) * (1 - 1e-9), parts.ravel()
    starts = np.arange(len(parts)) * len(dealt)
    stream, hits, drawn = Stream(_SEED, "report", "few", values.shape[1], size), 0, 0
    while drawn < draws and hits < _NOTHING_IN_SIGHT:
        some = min(_AT_ONCE, draws - drawn)
        ways = (stream.uniforms(some * len(parts)).reshape(some, -1) * len(dealt)).astype(np.int64)
        hits += int(np.count_nonzero(flat.take(starts + ways).sum(axis=1) >= least))
        drawn += some
    return (1 + hits) / (1 + drawn)
