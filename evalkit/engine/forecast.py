"""What an episode is expected to take, and what remains of one that has started: for admission, `plan` and `status`.

A cell (agent x suite) starts with a prior: its stand-in's short play in this process, at the agent's price. Episodes
that end correct it: the prior counts as one of them. Until the first has ended, the cost of the replies so far tells
whether the agent is dearer than its stand-in. The cost is O(1) per episode.
"""

import math
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from evalkit.errors import CorruptLogError, StorageError
from evalkit.frozen.manifest import Manifest, ManifestAgent
from evalkit.store.disk import read_whole, write_parts_durably
from evalkit.store.json_text import decode
from evalkit.store.reading.totals import CellTotals as Sums

T = TypeVar("T")

FILE = "forecast.json"
MOST_BYTES = 64 << 20
"""Of a file that is read."""
HEARD = 4.0
"""Requests that a prior counts as, beside those that were answered."""
SPREAD = 0.5
"""Relative standard deviation of an episode around its cell's mean, and of a model's mean around its stand-in's.
Chosen."""
Z = 1.96


class EpisodeEstimate(NamedTuple):
    """What one whole episode is expected to take; `cost` in pico-dollars. In a forecast, the requests of an agent that
    is code are its steps: `asks_per_step` says how many each of them takes."""

    cost: float
    requests: float
    tokens_in: float
    tokens_out: float


class Range(NamedTuple):
    """An expectation with the 95 % range around it, in pico-dollars."""

    low: float
    expected: float
    high: float


Figure = Annotated[float, msgspec.Meta(ge=0, le=1e24)]
"""What a file may hold: sums of these stay numbers."""


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell is expected to take before any of its episodes has ended."""

    agent: str
    suite: str
    stand_in: str
    """The policy whose play it comes from."""
    played: int
    """Episodes of it; the last one perhaps in part."""
    cost: Figure
    """Of an episode, in pico-dollars, as are the other figures of one episode."""
    requests: Figure
    tokens_in: Figure
    tokens_out: Figure
    longest: Figure = 0.0
    """Requests of the longest of them."""
    itself: bool = False
    """Whether the stand-in is the agent itself."""

    @property
    def expected(self) -> EpisodeEstimate:
        """The figures of one episode."""
        return EpisodeEstimate(self.cost, self.requests, self.tokens_in, self.tokens_out)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    cells: tuple[Prior, ...]


@dataclass(slots=True)
class _CellRecord:
    """What a cell has shown: episodes that have ended, and the replies of all."""

    count: int = 0
    cost: float = 0.0
    requests: float = 0.0
    paid: float = 0.0
    asked: float = 0.0
    longest: float = 0.0
    """Requests of the longest episode."""


class Forecast:
    """Expectations by cell: its prior, and then the mean of what has ended."""

    def __init__(self, priors: Iterable[Prior] = ()) -> None:
        self.priors: dict[tuple[str, str], Prior] = {(prior.agent, prior.suite): prior for prior in priors}
        self._seen: dict[tuple[str, str], _CellRecord] = {}
        self._whole: dict[tuple[str, str], EpisodeEstimate] = {}
        """What `whole` has said since the last news."""

    def learn(self, agent: str, suite: str, *, cost: float, requests: float, count: int = 1) -> None:
        """So many episodes have ended, with these pico-dollars and requests in total."""
        if count:
            seen = self._news(agent, suite)
            seen.count += count
            seen.cost += cost
            seen.requests += requests

    def hear(self, agent: str, suite: str, *, cost: float, requests: float, reached: float = 0.0) -> None:
        """Replies of an episode, ended or not, which has come so far as `reached`: until one has ended, they tell
        whether the agent is dearer than its stand-in."""
        seen = self._news(agent, suite)
        seen.paid += cost
        seen.asked += requests
        seen.longest = max(seen.longest, reached)

    def _news(self, agent: str, suite: str) -> _CellRecord:
        self._whole.pop((agent, suite), None)
        return self._seen.setdefault((agent, suite), _CellRecord())

    def scale(self, agent: str, suite: str, factor: float = 1.0, *, price: float = 1.0) -> None:
        """Requests of a cell are so many times as many as its prior counts, and so are their cost and tokens; or they
        cost so many times its price."""
        prior = self.priors.get((agent, suite))
        self._whole.clear()
        if prior is not None:
            cost, tokens_in, tokens_out = (
                factor * each for each in (price * prior.cost, prior.tokens_in, prior.tokens_out)
            )
            self.priors[agent, suite] = structs.replace(prior, cost=cost, tokens_in=tokens_in, tokens_out=tokens_out)

    def ended(self, agent: str, suite: str) -> int:
        """How many of the cell's episodes it has learned of."""
        seen = self._seen.get((agent, suite))
        return 0 if seen is None else seen.count

    def proven(self, agent: str, suite: str) -> bool:
        """Whether its expectation is more than what a stand-in has played in another's place."""
        prior = self.priors.get((agent, suite))
        return self.ended(agent, suite) > 0 or (prior is not None and prior.itself)

    def uncertainty(self, agent: str, suite: str) -> float:
        """How much dearer than expected the cell's mean may be, as a part of it: a standard deviation."""
        prior = self.priors.get((agent, suite))
        own = prior.played if prior is not None and prior.itself else 0
        return SPREAD / math.sqrt(1 + own + self.ended(agent, suite))

    def seen(self, agent: str, suite: str) -> EpisodeEstimate | None:
        """(cost, requests) of an ended episode on average, tokens left 0; None before the first."""
        seen = self._seen.get((agent, suite))
        if seen is None or not seen.count:
            return None
        return EpisodeEstimate(seen.cost / seen.count, seen.requests / seen.count, 0.0, 0.0)

    def whole(self, agent: str, suite: str) -> EpisodeEstimate:
        """What an episode of the cell is expected to take, from its first request to its last."""
        known = self._whole.get((agent, suite))
        if known is None:
            known = self._whole[agent, suite] = self._expected((agent, suite))
        return known

    def _expected(self, cell_key: tuple[str, str]) -> EpisodeEstimate:
        prior, seen = self.priors.get(cell_key), self._seen.get(cell_key, _CellRecord())
        if prior is None:
            count = max(1, seen.count)
            return EpisodeEstimate(seen.cost / count, seen.requests / count, 0.0, 0.0)
        # The prior counts as one episode, or as a few requests.
        cost = (prior.cost + seen.cost) / (1 + seen.count)
        requests = (prior.requests + seen.requests) / (1 + seen.count)
        if prior.requests and seen.asked:
            price = (HEARD * prior.cost / prior.requests + seen.paid) / (HEARD + seen.asked)
            cost = max(cost, price * requests)  # later requests are dearer than first ones, so never less
        # Tokens are not estimated separately: they follow the money, or the requests if there is no cost.
        scale = cost / prior.cost if prior.cost else requests / prior.requests if prior.requests else 1.0
        return EpisodeEstimate(cost, requests, prior.tokens_in * scale, prior.tokens_out * scale)

    def longest(self, agent: str, suite: str) -> float:
        """Requests of the longest episode that the cell has shown, its stand-in's included."""
        prior, seen = self.priors.get((agent, suite)), self._seen.get((agent, suite))
        shown = (0.0 if prior is None else prior.longest, 0.0 if seen is None else seen.longest)
        return max(self.whole(agent, suite).requests, *shown)

    def rest(self, agent: str, suite: str, *, cost: float, requests: float) -> float:
        """Pico-dollars to finish an episode from its present position: more than 0, unless the cell costs nothing.

        The larger of what is left of the expected cost, and of the expected requests, each at this episode's own price
        as far as it is known; at least one request.
        """
        whole = self.whole(agent, suite)
        if whole.cost <= 0:
            return float(cost)  # only the episode itself is known: as much again
        if not requests:
            return whole.cost
        count, price = max(1.0, whole.requests), whole.cost / max(1.0, whole.requests)
        own = (cost + whole.cost) / (requests + count)
        return max(beyond(whole.cost, SPREAD, cost), beyond(count, SPREAD, requests) * own, price)

    def remaining(self, agent: str, suite: str, count: int) -> Range:
        """What `count` episodes of the cell that have not begun will cost."""
        prior, cost = self.priors.get((agent, suite)), count * self.whole(agent, suite).cost
        known = self.ended(agent, suite) + (prior.played if prior is not None and prior.itself else 1)
        return ranged(cost, count, known)


def beyond(mean: float, spread: float, past: float) -> float:
    """What is expected beyond `past`, of a lognormal amount that is known to be larger than that.

    mean > 0; spread: standard deviation over mean. Chosen: a lognormal tail, since long conversations resend what they
    said before; its remainder never reaches 0, and grows slowly with what was spent. E[X; X > c] = mean * Phi(d + s).
    """
    if past <= 0:
        return mean
    s = math.sqrt(math.log1p(spread**2))
    d = (math.log(mean / past) - s**2 / 2) / s
    if d > -_FAR:
        share = math.erfc(-(d + s) / math.sqrt(2)) / math.erfc(-d / math.sqrt(2))
        return max(mean * share - past, 0.0)
    # Where both tails underflow: Mills' ratio, whose first term is enough out there.
    return max(past * (d / (d + s)) - past, 0.0)


_FAR = 30.0


def ranged(cost: float, count: float, known: float) -> Range:
    """The 95 % range around the cost of `count` episodes whose mean comes from `known` others; as wide by factors below
    as above."""
    if cost <= 0 or not count:
        return Range(0.0, 0.0, 0.0)
    factor = math.exp(Z * math.sqrt(math.log1p(SPREAD**2 * (1 / count + 1 / max(1.0, known)))))
    return Range(cost / factor, cost, cost * factor)


def alone(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, such as a policy's play in this process, without a loop."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


def learn_all(forecast: Forecast, manifest: Manifest, by_cell: Mapping[tuple[str, str], Sums]) -> None:
    """Update a forecast with every ended episode of a run, from its sums by agent and suite; and with how many requests
    a step of an agent that is code takes, from the first one on."""
    for suite in manifest.suites.values():
        for agent in manifest.agents.values():
            sums = by_cell.get((agent.name, suite.name))
            if sums is not None and suite.environment in agent.packs:
                forecast.scale(agent.name, suite.name, asks_per_step(agent, sums))
                forecast.learn(
                    agent.name, suite.name, count=sums.ended, cost=sums.ended_cost, requests=sums.ended_steps
                )


def asks_per_step(agent: ManifestAgent, sums: Sums | None) -> float:
    """Requests of an agent for each step: one of a model."""
    return 1.0 if agent.code is None or sums is None else sums.asks_per_step


def read_priors(directory: Path) -> list[Prior]:
    """The priors with which a run started; none if it wrote none, or if nothing can be made of the file: they are made
    again."""
    path = directory / FILE
    try:
        data = read_whole(path) if path.stat().st_size <= MOST_BYTES else None
        return [] if data is None else list(decode(data, _File, FILE, "").cells)
    except (CorruptLogError, StorageError, OSError):
        return []


def write_priors(directory: Path, priors: Iterable[Prior]) -> None:
    """Write `forecast.json`. It is derived, so a disk that refuses it stops nothing."""
    with suppress(StorageError):
        write_parts_durably(
            directory / FILE, [msgspec.json.format(msgspec.json.encode(_File(version=1, cells=tuple(priors))))]
        )
