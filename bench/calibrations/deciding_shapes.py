"""Shapes of scores for `deciding.py`: each draws the scores of several agents whose true means are known.

Shape of a result: (studies, agents, draws), in the order in which a run would admit them. `lead` is how much each agent
is above the shape's own mean, shape (agents,), so that a difference of two agents has exactly the mean that it should.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evalkit.stats.deciding import SupposedDifference

Draws = np.random.Generator
Values = npt.NDArray[Any]
Draw = Callable[[Draws, int, int, Values], Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of scores."""

    name: str
    draw: Draw
    turn: int = 1
    centred: bool = False
    """Draws of a turn, and whether each of its places is one instance (`evalkit.stats.evidence`)."""


def noise(draws: Draws, studies: int, lead: Values, looks: int, half: float) -> Values:
    """Evenly around 0, for each agent on its own."""
    around: Values = draws.uniform(-half, half, (studies, len(lead), looks))
    return around


def common(draws: Draws, studies: int, looks: int, half: float) -> Values:
    """Evenly around 0, the same for all agents: how difficult an instance is."""
    return draws.uniform(-half, half, (studies, 1, looks))


def graded(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """Scores that vary by 13 points between two agents."""
    return 0.55 + lead[:, None] + common(draws, studies, looks, 0.12) + noise(draws, studies, lead, looks, 0.16)


def wide(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """The same, by 33 points."""
    return 0.5 + lead[:, None] + noise(draws, studies, lead, looks, 0.4)


def skewed(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """Beta with a mean of 80 %."""
    mean = 0.8 + lead
    return draws.beta(4 * mean[:, None], 4 * (1 - mean)[:, None], (studies, len(lead), looks))


def near_optimum(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """1 less small losses."""
    loss = 0.06 - lead
    return 1 - draws.beta(1.0, (1 / loss - 1)[:, None], (studies, len(lead), looks))


def rare_failures(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """0.95 to 1, and 6 % fail outright."""
    failing = 0.06 - lead / 0.975
    failed = draws.random((studies, len(lead), looks)) < failing[:, None]
    return np.where(failed, 0.0, draws.uniform(0.95, 1.0, failed.shape))


def yes_no_pairs(difference: float, discordant: float) -> SupposedDifference:
    """Answers of yes and no, of which a share `discordant` differs between two agents. Raises ValueError."""
    if not abs(difference) <= discordant <= 1:
        raise ValueError(f"{discordant} of the answers differ: that cannot make a difference of {difference}")
    up, down = (discordant + difference) / 2, (discordant - difference) / 2
    return SupposedDifference(values=(-1.0, 0.0, 1.0), weights=(down, 1 - discordant, up))


def yes_no(mean: float) -> Draw:
    """Answers of yes and no, each agent on its own."""
    return lambda draws, studies, looks, lead: (
        draws.random((studies, len(lead), looks)) < (mean + lead)[:, None]
    ).astype(float)


def yes_no_alike(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """Yes and no where difficult instances are difficult for all: half of the answers go by the instance alone."""
    shared = draws.random((studies, 1, looks)) < 0.5
    by_instance = draws.random((studies, 1, looks)) < 0.7
    own = draws.random((studies, len(lead), looks)) < (0.7 + 2 * lead)[:, None]
    return np.where(shared, by_instance, own).astype(float)


def ties(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """Seven instances of ten have the same score for all."""
    tied = draws.random((studies, 1, looks)) < 0.7
    own = 0.5 + lead[:, None] / 0.3 + noise(draws, studies, lead, looks, 0.15)
    return np.where(tied, 0.5 + common(draws, studies, looks, 0.5), own)


def replicates(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """The mean of three answers of yes and no on each instance."""
    easy = 0.7 + common(draws, studies, looks, 0.15) + lead[:, None]
    shares: Values = draws.binomial(3, easy) / 3
    return shares


def uneven(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """Every second agent gains 2 points on 95 % of the instances and loses 38 on the others: equal means."""
    moved = np.where(draws.random((studies, len(lead), looks)) < 0.95, 0.02, -0.38)
    every_second = (np.arange(len(lead)) % 2 == 1)[:, None]
    found: Values = 0.7 + lead[:, None] + every_second * moved + noise(draws, studies, lead, looks, 0.02)
    return found


def strata(sizes: tuple[int, ...]) -> Draw:
    """Strata in which agents differ by up to 30 points either way, and by `lead` over the mix."""

    def draw(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
        # Each stratum spread evenly over the turn, as admission does it.
        order = np.concatenate([[(i + 0.5) / size for i in range(size)] for size in sizes]).argsort(kind="stable")
        of = np.repeat(np.arange(len(sizes)), sizes)[order]
        suits = np.linspace(-0.15, 0.15, len(sizes))
        suits -= np.average(suits, weights=sizes)
        own = np.where(np.arange(len(lead))[:, None] % 2 == 1, suits, -suits)
        per_draw = np.resize(of, looks)
        found: Values = 0.55 + lead[:, None] + own[:, per_draw] + noise(draws, studies, lead, looks, 0.15)
        return found

    return draw


def this_suite(instances: int, *, answers: bool) -> Draw:
    """The instances of one suite, a whole replicate of all after the other; agents suit different ones."""

    def draw(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
        easy = np.linspace(0.35, 0.75, instances)
        suits = np.where(np.arange(instances) % 2 == 0, 0.1, -0.1)
        own = np.where(np.arange(len(lead))[:, None] % 2 == 1, suits, -suits)
        means = np.resize(easy, looks) + lead[:, None] + np.array([np.resize(one, looks) for one in own])
        shape = (studies, len(lead), looks)
        found: Values = (draws.random(shape) < means) * 1.0 if answers else means + draws.uniform(-0.1, 0.1, shape)
        return found

    return draw


def sorted_file(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """A file sorted by difficulty, where every second agent is better on the first half and worse on the second."""
    drift = np.linspace(-0.25, 0.25, looks)
    own = np.where(np.arange(len(lead))[:, None] % 2 == 1, -drift, drift)
    return 0.5 + lead[:, None] + own + noise(draws, studies, lead, looks, 0.1)


def permuted(draws: Draws, studies: int, looks: int, lead: Values) -> Values:
    """The same file in the order that a run freezes, another one for each study."""
    scores = sorted_file(draws, studies, looks, lead)
    orders = np.argsort(draws.random((studies, looks)), axis=1)
    return np.take_along_axis(scores, orders[:, None, :], axis=2)


SHAPES = (
    Shape(name="graded, pairs vary by 13 points", draw=graded),
    Shape(name="graded, pairs vary by 33 points", draw=wide),
    Shape(name="skewed, Beta around 80 %", draw=skewed),
    Shape(name="near the optimum", draw=near_optimum),
    Shape(name="near the optimum, rare failures", draw=rare_failures),
    Shape(name="yes or no at 50 %", draw=yes_no(0.5)),
    Shape(name="yes or no at 80 %", draw=yes_no(0.8)),
    Shape(name="yes or no at 94 %", draw=yes_no(0.94)),
    Shape(name="yes or no, alike on half of the instances", draw=yes_no_alike),
    Shape(name="heavy ties", draw=ties),
    Shape(name="three replicates of yes or no", draw=replicates),
    Shape(name="small gains, rare large losses", draw=uneven),
    Shape(name="four strata", draw=strata((1, 1, 1, 1)), turn=4),
    Shape(name="strata as 1 : 2 : 3", draw=strata((1, 2, 3)), turn=6),
    Shape(name="this suite, 12 instances, yes or no", draw=this_suite(12, answers=True), turn=12, centred=True),
    Shape(name="this suite, 30 instances, graded", draw=this_suite(30, answers=False), turn=30, centred=True),
    Shape(name="difficulty drifts in the file", draw=permuted),
)
