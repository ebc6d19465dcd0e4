"""Which part of a sweep to play for a given amount, so that the widest 95 % interval is as narrow as it can be.

Within a suite all agents play the same episodes, the first of the admission order: comparisons stay paired, strata
balanced. So a proposal is one number per suite. The suite with the widest interval gets the next episode of all its
agents, until it cannot be paid. No other choice is better: every suite then has the fewest episodes with which it is
not wider than the widest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_INSTANCES = 3
"""With fewer there is no interval (`stats/intervals.py`)."""
Z = 1.96
MOST_NIGHTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteShare:
    """One suite in a proposal."""

    suite: str
    instances: int
    replicates: int
    done: int
    """Episodes of each agent that have ended already, taken from the front of the admission order."""
    cost: float
    """Pico-dollars of one episode of each of its agents."""
    scatter: tuple[tuple[str, float, float], ...]
    """(agent, between, within): standard deviations of scores, of instance means and of replicates."""

    @property
    def most(self) -> int:
        """Episodes an agent has in all."""
        return self.instances * self.replicates

    def width(self, episodes: int) -> float:
        """Half of the widest agent's interval after the first `episodes` of the admission order."""
        if min(episodes, self.instances) < LEAST_INSTANCES:
            # No interval at all: the fewer instances, the worse.
            return math.inf
        return max(
            (half_width(episodes, self.instances, between, within) for _, between, within in self.scatter), default=0.0
        )


def half_width(episodes: int, instances: int, between: float, within: float) -> float:
    """Half of the 95 % interval of a mean of instance means, over the first `episodes` of the admission order."""
    played = min(episodes, instances)
    rounds, more = divmod(episodes, instances)
    rounds_of_mean = (more / (rounds + 1) + (instances - more) / rounds) / instances if rounds else 1.0
    noise = within**2 * rounds_of_mean
    return student(played - 1) * math.sqrt((between**2 + noise) / played)


def student(free: int) -> float:
    """Student's 97.5 % quantile, by its expansion around the normal one (Abramowitz and Stegun 26.7.5): 3 % low at 2
    degrees of freedom, exact to 0.1 % from 7 on."""
    z = Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a proposal gives to one suite."""

    part: SuiteShare
    episodes: int
    """Of each agent, those that are done included."""

    @property
    def more(self) -> int:
        """Of each agent, still to be played."""
        return self.episodes - self.part.done

    @property
    def cost(self) -> float:
        """Pico-dollars of what is still to be played."""
        return self.more * self.part.cost

    @property
    def width(self) -> float:
        """Half of the widest interval; infinite with too few instances."""
        return self.part.width(self.episodes)

    @property
    def whole(self) -> bool:
        """Whether the suite is complete."""
        return self.episodes >= self.part.most

    def words(self) -> str:
        """`8 instances x 2`, with what the next replicate has got of them."""
        rounds, more = divmod(self.episodes, self.part.instances)
        if not rounds:
            return f"{more} of {self.part.instances} x 1"
        return f"{self.part.instances} x {rounds}" + (f", {more} x 1 more" if more else "")


def worst(shares: Sequence[Share]) -> float:
    """Half of the widest interval over all suites that can have one."""
    return max((share.width for share in shares if share.part.instances >= LEAST_INSTANCES), default=0.0)


def propose(parts: Sequence[SuiteShare], amount: float, begun: Sequence[int] | None = None) -> list[Share]:
    """The share of each suite for at most `amount` pico-dollars beyond `begun` (what is done already, if not given)."""
    counts = [part.done for part in parts] if begun is None else list(begun)
    left = amount
    for index, part in enumerate(parts):
        if part.cost == 0:
            counts[index] = part.most
    open_ones = {index for index, part in enumerate(parts) if counts[index] < part.most}
    while open_ones:
        # The widest one first, but last those that more episodes do not help; without intervals, the one with the
        # fewest episodes.
        index = max(open_ones, key=lambda i: (_helps(parts[i], counts[i]), -counts[i], -i))
        part = parts[index]
        if part.cost > left:
            open_ones.discard(index)
            continue
        counts[index] += 1
        left -= part.cost
        if counts[index] == part.most:
            open_ones.discard(index)
    return [Share(part=part, episodes=count) for part, count in zip(parts, counts, strict=True)]


def _helps(part: SuiteShare, count: int) -> tuple[bool, float]:
    """(whether more episodes make the interval narrower, how wide it is)."""
    width = part.width(count)
    return part.width(part.most) < width, width


def rotate(parts: Sequence[SuiteShare], amount: float) -> list[list[Share]]:
    """The whole sweep in nights of `amount` each, every night ending with the widest interval as narrow as it can be.

    Money that remains after a night is added to the next one. Empty if the dearest suite's next step never fits, or if
    it would take more than `MOST_NIGHTS`.
    """
    nights = list[list[Share]]()
    counts, saved = [part.done for part in parts], 0.0
    while any(count < part.most for count, part in zip(counts, parts, strict=True)):
        saved += amount
        shares = propose(parts, saved, counts)
        paid = math.fsum(
            (share.episodes - count) * share.part.cost for share, count in zip(shares, counts, strict=True)
        )
        saved -= paid
        counts = [share.episodes for share in shares]
        nights.append(shares)
        if len(nights) > MOST_NIGHTS or amount <= 0:
            return []
    return nights
