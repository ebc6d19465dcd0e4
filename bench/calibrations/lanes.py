"""What lanes of unequal speed play while a question is open: event by event, with the engine's own rule of who waits.

Every agent has a lane of its own with `WIDTH` episodes in flight. An episode lasts its lane's speed times a lognormal
factor. A pair is answered when both have ended as many first draws as its evidence takes, and an agent without an open
pair starts nothing more.
"""

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bench.calibrations.deciding_shapes import Draws, Values
from evalkit.engine.pace import may_begin

WIDTH = 8
VARIES = 0.5
"""Standard deviation of the log of an episode's length."""

UNEQUAL = "lognormal, 0.7"
SPEEDS: Mapping[str, tuple[Values, float]] = {
    "equal": (np.ones(8), 0.0),
    UNEQUAL: (np.ones(8), 0.7),
    "one lane 5 times slower": (np.array([1.0] * 7 + [5.0]), 0.0),
    "from 1 to 11, each 1.4 times the last": (2.0 ** (np.arange(8) / 2), 0.0),
    "lognormal, 0.7, and one ends after 20": (np.ones(8), 0.7),
}
"""Seconds of an episode, by lane: the median, and the standard deviation of its log from run to run."""
ENDS = {"lognormal, 0.7, and one ends after 20": 20}
"""After how many draws the last lane is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one run took."""

    begun: Values
    """By agent: episodes that were begun, all of which ended. Shape (agents,)."""
    time: float
    """Until nothing was in flight."""
    open: int
    """Pairs that were not answered."""


def speeds(name: str, draws: Draws) -> Values:
    """Seconds of an episode in one run; shape (8,)."""
    medians, spread = SPEEDS[name]
    seconds: Values = medians * draws.lognormal(0.0, spread, len(medians))
    return seconds


def played(at: Values, seconds: Values, draws: Draws, *, ahead: float, most: int, ends: float = math.inf) -> Played:
    """Play until all is answered, or nothing can be.

    at        draws with which a pair is answered; shape (agents, agents), inf where never
    seconds   of an episode, by lane; shape (agents,)
    ahead     draws by which an agent may have begun more than its slowest open partner; inf: any
    ends      draws after which the last agent is gone
    """
    agents = range(len(seconds))
    least = np.full(len(seconds), float(most))
    least[-1] = min(least[-1], ends)
    begun, flying, prefix = [0] * len(seconds), [0] * len(seconds), [0] * len(seconds)
    ended: list[set[int]] = [set() for _ in agents]
    still = [{other for other in agents if other != agent} for agent in agents]
    lengths = (draws.lognormal(0.0, VARIES, (len(seconds), most)) * seconds[:, None]).tolist()
    events: list[tuple[float, int, int]] = []
    now = 0.0

    def room(agent: int) -> bool:
        if begun[agent] >= least[agent] or flying[agent] >= WIDTH or not still[agent]:
            return False
        if math.isinf(ahead):
            return True
        return begun[agent] < may_begin(still[agent], begun.__getitem__, gone, int(ahead))[0]

    def gone(agent: int) -> int | None:
        return begun[agent] if begun[agent] >= least[agent] else None

    def start(some: Iterable[int]) -> None:
        """Start what these agents may, and then those that have waited for them."""
        waiting = list(some)
        while waiting:
            agent = waiting.pop()
            before = begun[agent]
            while room(agent):
                heapq.heappush(events, (now + lengths[agent][begun[agent]], agent, begun[agent]))
                begun[agent] += 1
                flying[agent] += 1
            if begun[agent] > before and math.isfinite(ahead):
                waiting += [other for other in still[agent] if flying[other] < WIDTH]

    start(agents)
    while events:
        now, agent, place = heapq.heappop(events)
        flying[agent] -= 1
        ended[agent].add(place)
        before, freed = prefix[agent], {agent}
        while prefix[agent] in ended[agent]:
            ended[agent].discard(prefix[agent])
            prefix[agent] += 1
        if prefix[agent] > before:
            for other in [one for one in still[agent] if min(prefix[agent], prefix[one]) >= at[agent, one]]:
                still[agent].discard(other)
                still[other].discard(agent)
                freed |= {other, *still[agent], *still[other]}
        start(freed)
    open_pairs = sum(other in still[agent] for agent, other in combinations(agents, 2))
    return Played(begun=np.array(begun, float), time=now, open=open_pairs)
