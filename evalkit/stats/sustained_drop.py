"""Evidence of a sustained drop, gathered over all nights of a cell: an e-detector.

Each night is summed up by its level: the mean over its instances, each instance measured against itself. Levels are
taken for normal, with a variance of two parts: what instances scatter within a night, which the nights show well, and
an effect that all instances of a night share (a provider under load), whose spread is learnt from the nights. Until
they show it, a prior says that it is about a point, perhaps much more. The mean before a fall is unknown, with a flat
prior.

Let D(j) be the mean of the levels before night j, less the mean of those from j on, less the tolerance. A harmless
history H(h, v) is a fall of h, at most the tolerance, from some night v on; no change is h = 0. Let e(j) be a mixture
over d > 0 of the likelihood ratios of "lower by the tolerance and d from j on" to "lower by the tolerance from j on".
The mean before being unknown, it depends on D(j) alone, and where the noise is known it grows with it. The evidence is
the sum of e(j) over all nights j that have come, divided by the number of beginnings N, see below.

Which harmless history is worst? Under H(h, v) the mean of each D(j) is a(j) * h less the tolerance, with a(j) the part
of h by which the two sides differ: 0 to 1, and 1 at j = v. Histories differ in these means alone, so with the same
noise each D(j), each e(j) and the evidence on each night are the greatest where h is the tolerance, and no greater than
with all means 0, which is "no change" seen with a tolerance of 0. So

    P(false alarm | h, v) <= P(false alarm | tolerance, v) <= P(false alarm | no change, tolerance 0)

In the last each e(j) is 1 at the start and a martingale afterwards, so their sum gains 1 in expectation with each
night: an e-detector. With T the sooner of the alarm and night t, the sum has an expectation of at most t - 1 at T, and
the sum reaches c by night t with a chance of at most (t - 1) / c (Markov). So N = t - 1, the number of nights on which
the fall may have begun, is proved to do: an alarm at evidence 1 / alpha is then false with a chance of at most alpha.

That is not sharp. Sums also come to much that never raises an alarm, and where the tolerance is much for the noise,
only beginnings near v can be mistaken, the other means being far below 0. N is therefore the least number that keeps
false alarms within alpha in the worst history, a fall of just the tolerance, simulated with known noise
(`python -m bench.calibrations.beginnings`), and half more, since noise has to be learnt: after 30 nights 24 without a
tolerance, 5 where it is the noise of a night. Up to 59 are proved for the 30 nights to come.

The spread of the shared effect is not known, so e(j) / N is averaged over it, with its weights after "lower by the
tolerance from j on". Where there is little or no effect the prior still allows for one, so evidence comes to too
little; the smaller an effect is for the scatter of a night, the less is N, by at most `_SMALLER`. `python -m
bench.calibrations.alarms` measures what comes out of this.

Source: Shin, Ramdas and Rinaldo 2024, "E-detectors: a nonparametric framework for sequential change detection"
(definition of an e-detector; sums of e-processes that start one after the other; average run length at least c).
Chosen: a probability within `HORIZON` nights instead of the average run length; bets in units of a night's noise, so
that N depends on nothing but nights and the tolerance in such units.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]

WITHIN = 7
"""Nights within which the fall that could be seen is found."""
SURE = 0.8
"""With which chance."""

BETS = np.array([0.7, 1.2, 2.0, 3.5])
"""Falls beyond the tolerance that bets are placed on, in units of a night's noise, and each one's part."""
PARTS = np.array([0.4, 0.3, 0.2, 0.1])
TOLERANCES = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
"""In units of a night's noise, and the number of beginnings with each after `_NIGHTS` nights: what
`bench.calibrations.beginnings` finds where the noise is known, and half more (without a tolerance two thirds), since it
is learnt."""
_BEGINNINGS = np.array([24.0, 13.0, 9.2, 7.5, 5.2, 4.1, 3.3, 2.6])
_NIGHTS, _POWER = 30, 0.7
"""The number of beginnings grows with this power of the nights."""
_SMALLER, _SMALL = 0.93, 0.48
"""Logarithm of how many fewer beginnings are counted where there is no effect at all; and the part of a night's scatter
that an effect has where it is half of this."""
LEAST_PAIRS = 10
"""Shared instances from which pairs are used, if they are at least half of the window's."""
_POINT = 0.01
_EFFECTS = np.array([0.001, 0.0025, 0.005, 0.0075, 0.01, 0.014, 0.02, 0.03, 0.05, 0.09])
"""Standard deviations of the effect that a night's instances share, and the prior's weight of each: half-Cauchy around
a point."""
_ROUNDS = 30
_FINE = 1e-4
"""Exactness of the fall that could be seen."""
_UNSEEN = 0.5
"""Outright failures, from 1 to 0, that are added to those that nights show: Jeffreys' prior of their share."""
_CORNER = 3 / 8
"""Answers that are counted as wrong, and as many as right, on top of a night's: Anscombe 1948."""
_SKEWED = 1.8
"""So many times the loss that the skewness of scores shows may scatter: the few failures of the nights show it ill."""


def _prior() -> "Doubles":
    ratio = _EFFECTS / _POINT
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
    """Of shape (...): the loss, 0 to 1, at which steps of the scale are points; None: means are not stretched."""

    def until(self, last: int) -> "Levels":
        """Without the nights from the place `last` on."""
        return Levels(means=self.means[..., :last], noise=self.noise[..., :last], base=self.base)

    def step(self, fall: float) -> "Doubles":
        """How far a fall goes on the scale of the means; shape (...)."""
        if self.base is None:
            return np.full(self.means.shape[:-1], fall)
        steps: Doubles = _angle(np.minimum(self.base + fall, 1.0), self.base) - _angle(self.base, self.base)
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
        free, shown = len(values) - len(names) - len(nights) + 1, _cubed(seen)[who] * _cubed(sizes)[when]
    else:
        means = np.bincount(when, values) / sizes
        left = values - means[when]
        free, shown = len(values) - len(nights), _cubed(sizes)[when]
    unexplained = Residuals(
        squares=np.array(left @ left), free=max(0, free), cubes=np.array(left @ (left * left)), shown=float(shown.sum())
    )
    return scaled(means, unexplained, sizes, bounded=bounded)


def _cubed(count: "npt.NDArray[np.int64]") -> "Doubles":
    """The part of a value's third central moment that is left when the mean of `count` such values is taken off."""
    part: Doubles = (1 - 1 / count) * (1 - 2 / count)
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """What instance and night leave unexplained of scores."""

    squares: "Doubles"
    """Their sum, of shape (...)."""
    free: int
    """Its degrees of freedom."""
    cubes: "Doubles"
    """Their sum, of shape (...)."""
    shown: float
    """So many times the third central moment of a score is its expectation."""


def scaled(means: "Doubles", unexplained: Residuals, sizes: "npt.NDArray[np.int64]", *, bounded: bool) -> Levels:
    """Levels with their noise, on the scale on which the noise stays what it is when they fall.

    Answers of yes and no that fail with the chance p have the variance p * (1 - p). Graded scores scatter less, and are
    taken to do so in proportion. Not so where it is a few outright failures that make a high score scatter: there one
    failure more adds as much scatter as all others have, while most of what is lost does not scatter. Scores that lose
    s with a small chance p have the variance p * s^2 and the third central moment -p * s^3, so the loss that scatters,
    p * s, is the square of the first divided by the second. No more than `_SKEWED` times this is taken to scatter.

    means    of the nights, of shape (..., nights)
    sizes    instances of each night
    bounded  as of `levels`
    """
    scatter = ((unexplained.squares + _UNSEEN) / (unexplained.free + 1))[..., None]
    if not bounded:
        return Levels(means=means, noise=scatter / sizes)
    loss = np.clip(1 - means, 0.0, 1.0)
    lost = ((loss @ sizes + _UNSEEN) / (sizes.sum() + 1))[..., None]
    skewed = np.maximum(-unexplained.cubes, 0.0)[..., None] / unexplained.shown if unexplained.shown else 0.0
    scattering = lost / np.maximum(1.0, skewed * lost / (_SKEWED * scatter**2))
    loss, lost = np.clip(loss - (lost - scattering), 0.0, 1.0), scattering
    grain = scatter / (lost * (1 - lost)) / sizes
    usual = grain.mean(axis=-1, keepdims=True)
    base = (lost + _CORNER * usual) / (1 + 2 * _CORNER * usual)
    return Levels(
        means=-(1 + 2 * _CORNER * usual) * _angle((loss + _CORNER * grain) / (1 + 2 * _CORNER * grain), base),
        noise=base * (1 - base) * grain * (1 + grain),
        base=base[..., 0],
    )


def _angle(loss: "Doubles", base: "Doubles") -> "Doubles":
    """The loss on the angular scale, whose steps are those of the loss at `base`."""
    angles: Doubles = 2 * np.sqrt(base * (1 - base)) * np.arcsin(np.sqrt(loss))
    return angles


def gathered(nights: Levels, tolerance: float, since: int = 0) -> "tuple[Doubles, npt.NDArray[np.int64]]":
    """(log of the evidence of a fall beyond the tolerance, nights since its likeliest beginning).

    nights  of shape (..., nights), at least two; both results have the shape of what comes before nights
    since   nights since the beginning, where it is known: less than all; 0: any may be it
    """
    model = _Likelihood(nights)
    step = nights.step(tolerance)[..., None]
    noise = nights.noise.mean(axis=-1, keepdims=True)
    spread = np.sqrt(noise + _EFFECTS**2)
    harmless = model.lower(step)
    fewer = _SMALLER / (1 + (_EFFECTS / (_SMALL * np.sqrt(noise))) ** 2)
    count = beginnings(step / spread, nights.means.shape[-1] - 1) - fewer
    logs = [bet + harmless - count[..., None, :] for bet in model.bets(step, spread)]
    parts = _logsum(np.concatenate(logs, axis=-1)) - _logsum(harmless)
    if since:
        return parts[..., -since], np.full(parts.shape[:-1], since)
    return np.logaddexp.reduce(parts, axis=-1), nights.means.shape[-1] - 1 - np.argmax(parts, axis=-1)


def beginnings(tolerance: "Doubles", nights: int) -> "Doubles":
    """Log of the number of beginnings by which a sum of e(j) is divided; of the shape of `tolerance`.

    tolerance  in units of a night's noise, of any shape
    nights     before the last
    """
    logs: Doubles = np.interp(tolerance, TOLERANCES, np.log(_BEGINNINGS))
    return logs + _POWER * math.log(nights / _NIGHTS)


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
        """By beginning and effect, the log likelihood of nights that are lower by `step` from each night but the first.

        step  of shape (..., effects or 1)
        """
        fall = step[..., None, :]
        logs: Doubles = self.still[..., None, :] - fall * self.slope - fall * fall / 2 * self.bend
        return logs

    def bets(self, step: "Doubles", spread: "Doubles") -> "list[Doubles]":
        """By beginning and effect, each bet's part of e(j), which compares with `lower(step)`: logarithms.

        step    of shape (..., effects or 1); spread: of shape (..., effects), the units of `BETS`
        """
        spread = spread[..., None, :]
        slope, bend = spread * (self.slope + step[..., None, :] * self.bend), spread * spread * self.bend
        return [math.log(part) - bet * slope - bet * bet / 2 * bend for bet, part in zip(BETS, PARTS, strict=True)]


def _logsum(logs: "Doubles") -> "Doubles":
    most = logs.max(axis=-1, keepdims=True)
    total: Doubles = (most + np.log(np.exp(logs - most).sum(axis=-1, keepdims=True)))[..., 0]
    return total


def needed(alpha: float) -> float:
    """The logarithm of the evidence that raises an alarm."""
    return -math.log(alpha)


def spread(nights: Levels) -> "Doubles":
    """The posterior weight of each of `_EFFECTS`, of nights without a change; shape (..., effects)."""
    logs = _Likelihood(nights).still
    weights: Doubles = np.exp(logs - _logsum(logs)[..., None])
    return weights


def allowance(nights: Levels, chance: float) -> "Doubles":
    """What a test that knows of no shared effect must ask for on top, to have this chance of a false alarm with one.

    It sees the noise s of a level, where sqrt(s^2 + effect^2) is true; of normal levels the chance leaves a multiple.
    The result has the shape of what comes before nights.
    """
    noise, effect = np.sqrt(nights.noise.mean(axis=-1)), spread(nights) @ _EFFECTS
    more: Doubles = (np.hypot(noise, effect) - noise) * math.sqrt(1 + 1 / nights.means.shape[-1])
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


def summed_up(nights: Sequence[Mapping[str, float]], first: int, *, bounded: bool) -> tuple[Levels, list[int]]:
    """The nights' levels, and for each the place of its night: nights that share no instance with others have none.

    `first`: the place of the first night that is compared with those before.
    """
    shows: dict[str, int] = {}
    for night in nights:
        for name in night:
            shows[name] = shows.get(name, 0) + 1
    linked = [{name: value for name, value in night.items() if shows[name] > 1} for night in nights]
    if len(linked[-1]) < max(LEAST_PAIRS, len(nights[-1]) / 2) or not any(linked[:first]):
        return levels(nights, paired=False, bounded=bounded), list(range(len(nights)))
    places = [place for place, night in enumerate(linked) if night]
    return levels([linked[place] for place in places], paired=True, bounded=bounded), places
