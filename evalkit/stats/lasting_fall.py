"""Evidence of a lasting fall, gathered over all nights of a cell: an e-detector.

Each night is summed up by its level: the mean over its instances, each instance measured against itself. Levels are
taken for normal, with a variance of two parts: what instances scatter within a night, which the nights show well, and
an effect that all instances of a night share (a provider under load), whose spread is learnt from the nights. Until
they show it, a prior says that it is about a point, perhaps much more. The mean before a fall is unknown, with a flat
prior.

Let e(j, d) be the likelihood ratio of "all nights from j on are lower by d" to a history H. If H is the truth, each
e(j, d) is 1 at the start and a martingale afterwards, and so is e(j), a fixed mixture over falls d beyond the
tolerance. A sum over all nights j that have come gains at most 1 in expectation with each of them: an e-detector. So

    M(H) = (1 - q) * e(v) + q * (e(2) + ... + e(t)) / HORIZON       H: lower by at most the tolerance from night v on
    M(H) = FLAT * (e(2) + ... + e(t)) / HORIZON                     H: no change

have, for every rule T that says when to stop, E[M at T] <= 1 - q + q * E[T] / HORIZON, and with T = the sooner of the
alarm and night `HORIZON`, P(M reaches c by then) <= 1 / c (Markov). (q is OTHERS, less where the tolerance is smaller
than a night's noise: the smaller it is, the more beginnings look alike.) The evidence is the least M over all harmless
histories H. The true one is among them, so 1 / c bounds the chance of a false alarm too, whenever a small fall came.

That is the proof, and it is far from sharp: the least of all M is much less than the M of the true history. In
simulations (`python -m bench.alarms`) c = `SLACK` / alpha keeps false alarms within alpha. So c = 1 / alpha is what is
proved, for normal levels and averaged over the prior; c = SLACK / alpha is what was measured.

Source: Shin, Ramdas and Rinaldo 2024, "E-detectors: a nonparametric framework for sequential change detection"
(definition of an e-detector; sums of e-processes that start one after the other; average run length at least c).
Chosen: a probability within `HORIZON` nights instead of the average run length; one history for all small falls.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from evalkit.stats.alarm import HORIZON

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

SLACK = 0.075
"""Times 1 / alpha: the evidence that raises an alarm."""
WITHIN = 7
"""Nights within which the fall that could be seen is found."""
SURE = 0.8
"""With which chance."""

_OTHERS, _FLAT = 0.33, 0.1
_FALLS = np.array([0.018, 0.032, 0.056, 0.1, 0.18, 0.32, 0.56])
"""Falls beyond the tolerance that bets are placed on, and each one's part."""
_PARTS = np.array([0.2, 0.3, 0.25, 0.12, 0.07, 0.04, 0.02])
_EFFECTS = np.array([0.001, 0.0025, 0.005, 0.0075, 0.01, 0.014, 0.02, 0.03, 0.05, 0.09])
"""Standard deviations of the effect that a night's instances share, and the prior's weight of each: half-Cauchy around
a point."""
_SMALL = np.linspace(0, 1, 5)
"""Falls within the tolerance that are tried, as parts of it."""
_ROUNDS = 30
_FINE = 1e-4
"""Exactness of the fall that could be seen."""
_UNSEEN = 0.5
"""Outright failures, from 1 to 0, that are added to those that nights show: Jeffreys' prior of their share."""
_CORNER = 3 / 8


def _prior() -> "Doubles":
    ratio = _EFFECTS / 0.01
    weights: Doubles = ratio / (1 + ratio * ratio) * np.gradient(np.log(ratio))
    weights /= weights.sum()
    return weights


_PRIOR = _prior()


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Nights summed up, oldest first; both of shape (..., nights)."""

    means: "Doubles"
    noise: "Doubles"
    """Variance of each mean from the instances' scatter; the shared effect is not in it."""
    base: "Doubles | None" = None
    """Of shape (...): the loss b at which steps of the scale are points; None: means are not stretched."""

    def until(self, last: int) -> "Levels":
        """Without the nights from the place `last` on."""
        return Levels(means=self.means[..., :last], noise=self.noise[..., :last], base=self.base)

    def step(self, fall: float) -> "Doubles":
        """How far a fall goes on the scale of the means; shape (...)."""
        if self.base is None:
            return np.full(self.means.shape[:-1], fall)
        steps: Doubles = 2 * self.base * (np.sqrt(1 + fall / self.base) - 1)
        return steps


def levels(nights: Sequence[Mapping[str, float]], *, paired: bool, bounded: bool) -> Levels:
    """Each night's level; a night is its instances' means, at least one.

    paired   whether an instance is measured against itself; else nights are compared as groups of instances
    bounded  whether 1 is the best score there is
    """
    names = {name: place for place, name in enumerate(dict.fromkeys(name for night in nights for name in night))}
    who = np.array([names[name] for night in nights for name in night])
    when = np.array([place for place, night in enumerate(nights) for _ in night])
    values = np.array([value for night in nights for value in night.values()], np.float64)
    sizes = np.bincount(when)
    if paired:
        seen = np.bincount(who)
        own, effect = np.zeros(len(names)), np.zeros(len(nights))
        # Least squares of instance and night together, in turns: one round suffices where all nights play all.
        for _ in range(_ROUNDS):
            own = np.bincount(who, values - effect[when]) / seen
            effect = np.bincount(when, values - own[who]) / sizes
        means, left = effect + float(own.mean()), values - own[who] - effect[when]
        free = len(values) - len(names) - len(nights) + 1
    else:
        means = np.bincount(when, values) / sizes
        left = values - means[when]
        free = len(values) - len(nights)
    return scaled(means, np.array(left @ left), max(0, free), sizes, bounded=bounded)


def scaled(means: "Doubles", squares: "Doubles", free: int, sizes: "npt.NDArray[np.int64]", *, bounded: bool) -> Levels:
    """Levels with their noise, on the scale on which the noise stays what it is when they fall.

    means    of the nights, of shape (..., nights)
    squares  sum of the squares that instance and night leave unexplained, of shape (...)
    free     the sum's degrees of freedom
    sizes    instances of each night
    bounded  as of `levels`
    """
    scatter = ((squares + _UNSEEN) / (free + 1))[..., None]
    if not bounded:
        return Levels(means=means, noise=scatter / sizes)
    loss = np.maximum(1 - means, 0.0)
    lost = ((loss @ sizes + _UNSEEN) / (sizes.sum() + 1))[..., None]
    grain = scatter / lost / sizes
    base = lost + (_CORNER * grain).mean(axis=-1, keepdims=True)
    return Levels(
        means=-2 * np.sqrt(base * (loss + _CORNER * grain)),
        noise=base * grain,
        base=base[..., 0],
    )


def gathered(nights: Levels, tolerance: float) -> "tuple[Doubles, npt.NDArray[np.int64]]":
    """(log of the evidence of a fall beyond the tolerance, nights since its likeliest beginning).

    nights  of shape (..., nights), at least two; both results have the shape of what comes before nights
    """
    model = _Likelihood(nights)
    none = _logsum(model.still)
    parts = [
        model.lower(nights.step(tolerance + fall)) + math.log(part) for fall, part in zip(_FALLS, _PARTS, strict=True)
    ]
    falls = np.logaddexp.reduce(parts)
    together = np.logaddexp.reduce(falls, axis=-1) - math.log(HORIZON)
    evidence = math.log(_FLAT) + together - none
    if tolerance:
        small = np.max([model.lower(nights.step(tolerance * part)) for part in _SMALL], axis=0)
        others = _OTHERS * np.minimum(1.0, tolerance / np.sqrt(nights.noise.mean(axis=-1)))[..., None]
        against = np.logaddexp(np.log1p(-others) + falls, np.log(others) + together[..., None]) - small
        evidence = np.minimum(evidence, against.min(axis=-1))
    return evidence, nights.means.shape[-1] - 1 - np.argmax(falls, axis=-1)


class _Likelihood:
    """The likelihood of the nights for each size of the shared effect, and how it changes with a fall.

    A level t has the variance v(t) = noise(t) + effect^2 and the weight w = 1 / v. With the mean integrated out, a fall
    by d of all nights from j on changes the log likelihood by -d * slope(j) - d^2 / 2 * bend(j).
    """

    def __init__(self, nights: Levels) -> None:
        variance = nights.noise[..., None] + _EFFECTS**2
        weight = 1 / variance
        # Of levels near 0: squares of large means would lose their digits.
        value = (nights.means - nights.means.mean(axis=-1, keepdims=True))[..., None] * np.ones_like(weight)
        total, moment = weight.sum(axis=-2), (weight * value).sum(axis=-2)
        square = (weight * value * value).sum(axis=-2) - moment * moment / total
        self.still = np.log(_PRIOR) - (square + np.log(variance).sum(axis=-2) + np.log(total)) / 2
        since, moments = (np.cumsum(part[..., ::-1, :], axis=-2)[..., ::-1, :] for part in (weight, weight * value))
        since, moments = since[..., 1:, :], moments[..., 1:, :]
        self.slope = moments - since * (moment / total)[..., None, :]
        self.bend = since - since * since / total[..., None, :]

    def lower(self, step: "Doubles") -> "Doubles":
        """The log likelihood of nights that are lower by `step` from each night but the first on."""
        fall = step[..., None, None]
        return _logsum(self.still[..., None, :] - fall * self.slope - fall * fall / 2 * self.bend)


def _logsum(logs: "Doubles") -> "Doubles":
    most = logs.max(axis=-1, keepdims=True)
    total: Doubles = (most + np.log(np.exp(logs - most).sum(axis=-1, keepdims=True)))[..., 0]
    return total


def needed(alpha: float) -> float:
    """The logarithm of the evidence that raises an alarm."""
    return math.log(SLACK / alpha)


def spread(nights: Levels) -> "Doubles":
    """The posterior weight of each of `_EFFECTS`, of nights without a change; shape (effects,)."""
    logs = _Likelihood(nights).still
    weights: Doubles = np.exp(logs - _logsum(logs))
    return weights


def allowance(nights: Levels, chance: float) -> float:
    """What a test that knows of no shared effect must ask for on top, to have this chance of a false alarm with one.

    It sees the noise s of a level, where sqrt(s^2 + effect^2) is true; of normal levels the chance leaves a multiple.
    """
    noise, effect = math.sqrt(float(nights.noise.mean())), float(spread(nights) @ _EFFECTS)
    more = (math.hypot(noise, effect) - noise) * math.sqrt(1 + 1 / len(nights.means))
    return -NormalDist().inv_cdf(chance) * more


def visible_fall(nights: Levels, tolerance: float, alpha: float) -> float | None:
    """The least fall that the evidence would show within `WITHIN` nights with the chance `SURE`, None if none up to 1.

    Nights are taken to go on as these were.

    The nights to come are given the level that they have less than with the chance 1 - `SURE`.
    """
    count = len(nights.means)
    level, noise = float(nights.means.mean()), float(nights.noise.mean())
    effect = float(spread(nights) @ _EFFECTS)
    luck = NormalDist().inv_cdf(SURE) * math.sqrt((noise + effect * effect) * (1 / WITHIN + 1 / count))
    # As much spread and no trend: nights that began to fall would help a further fall.
    ordered = np.sort(nights.means)
    mixed = np.stack([ordered, ordered[::-1]], axis=-1).reshape(-1)[:count]

    def found(fall: float) -> bool:
        means = np.concatenate([mixed, np.full(WITHIN, level - float(nights.step(fall)) + luck)])
        more = Levels(means=means, noise=np.concatenate([nights.noise, np.full(WITHIN, noise)]), base=nights.base)
        return float(gathered(more, tolerance)[0]) >= needed(alpha)

    low, high = 0.0, 1.0
    if not found(high):
        return None
    while high - low > _FINE:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
