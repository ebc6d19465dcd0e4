"""Shares of limits: each worker may use its part of a limit for a while, and the parts never exceed the limit.

What one worker loses another gets only when the first has confirmed its smaller share, or when all that it was ever
told has lapsed; and of requests in flight, when they have been answered. A worker counts a share's time from when it
sent the question, the coordinator from when that arrived: so the worker stops first. Pure: the caller gives the time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

FLOOR = 0.01
"""The part of a limit that a worker has at least, so that it can begin at once."""
EAGER = 1.25
"""What a worker that waits for nothing is given, times what it uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """One limit of the whole run."""

    most: float
    whole: bool = False
    """Whether it is divided in integers: requests in flight."""


@dataclass(slots=True)
class _Told:
    """Shares that a worker may be using."""

    version: int
    rates: dict[str, float]
    until: float


@dataclass(slots=True)
class _Sharer:
    demand: dict[str, float] = field(default_factory=dict)
    told: list[_Told] = field(default_factory=list)
    using: dict[str, float] = field(default_factory=dict)

    def most(self, limit: str) -> float:
        told = max((told.rates.get(limit, 0.0) for told in self.told), default=0.0)
        return max(told, self.using.get(limit, 0.0))


class Shares:
    """The limits of a run and who uses which part of them."""

    def __init__(self, capacities: Mapping[str, Capacity], *, valid_s: float) -> None:
        self._capacities, self.valid_s = dict(capacities), valid_s
        self._holders: dict[str, _Sharer] = {}
        self._version = 0

    def join(self, worker: str) -> None:
        """A worker begins."""
        self._holders[worker] = _Sharer()

    def leave(self, worker: str) -> None:
        """A worker has ended: its process is gone, so it sends nothing more."""
        self._holders.pop(worker, None)

    def confirm(self, worker: str, version: int) -> None:
        """The worker uses this version, and none before it."""
        holder = self._holders[worker]
        holder.told = [told for told in holder.told if told.version >= version]

    def wants(self, worker: str, demand: Mapping[str, float]) -> None:
        """How much of each limit a worker could use; `inf` for as much as there is."""
        self._holders[worker].demand = dict(demand)

    def uses(self, worker: str, in_flight: Mapping[str, float]) -> None:
        """How many requests a worker has in flight, by limit. A smaller share takes none of them back: what is above it
        is free once it was answered."""
        self._holders[worker].using = dict(in_flight)

    def used(self, limit: str, now: float) -> float:
        """The most that all workers together may be using."""
        self._forget(now)
        return sum(holder.most(limit) for holder in self._holders.values())

    def share(self, worker: str, now: float) -> tuple[int, dict[str, float]]:
        """(version, the worker's part of each limit), valid for `valid_s` from now."""
        self._forget(now)
        holder, rates = self._holders[worker], {}
        for limit, capacity in self._capacities.items():
            others = sum(other.most(limit) for name, other in self._holders.items() if name != worker)
            rates[limit] = max(0.0, min(self._targets(limit, capacity)[worker], capacity.most - others))
            if capacity.whole:
                rates[limit] = float(math.floor(rates[limit] + 1e-9))
        self._version += 1
        last = holder.told[-1] if holder.told else None
        if last is not None and last.rates == rates:
            last.until = now + self.valid_s
            return last.version, rates
        holder.told.append(_Told(self._version, rates, now + self.valid_s))
        return self._version, rates

    def _forget(self, now: float) -> None:
        for holder in self._holders.values():
            holder.told = [told for told in holder.told if told.until > now]

    def _targets(self, limit: str, capacity: Capacity) -> dict[str, float]:
        demands = {name: holder.demand.get(limit, 0.0) for name, holder in self._holders.items()}
        if capacity.whole:
            return _whole(demands, int(capacity.most))
        return divided(demands, capacity.most)


def divided(demands: Mapping[str, float], most: float) -> dict[str, float]:
    """Max-min division: nobody gets more than it demands while another lacks something; what nobody demands is divided
    equally. Everybody has `FLOOR` of it at least, or an equal part if they are many."""
    if not demands:
        return {}
    least = min(FLOOR * most, most / len(demands))
    parts = dict.fromkeys(demands, least)
    left, open_ = most - least * len(demands), sorted(demands, key=lambda name: demands[name])
    while open_:
        name, even = open_[0], left / len(open_)
        more = min(max(0.0, demands[name] - least), even)
        parts[name] += more
        left -= more
        open_.pop(0)
    for name in parts:
        parts[name] += left / len(parts)
    return parts


def _whole(demands: Mapping[str, float], most: int) -> dict[str, float]:
    """The same in integers: one each in turn, to those who demand more than they have, and then to all."""
    parts = dict.fromkeys(demands, 0)
    order = sorted(demands)
    for lacking in (True, False):
        while most > sum(parts.values()):
            short = [name for name in order if not lacking or parts[name] < demands[name]]
            if not short:
                break
            left = most - sum(parts.values())
            each = max(1, min(left // len(short), *(_lack(demands[name], parts[name]) for name in short)))
            for name in short[: left if each == 1 else len(short)]:
                parts[name] += each
    return {name: float(part) for name, part in parts.items()}


def _lack(demand: float, part: int) -> int:
    return max(1, math.ceil(demand - part)) if demand < math.inf else 1 << 30
