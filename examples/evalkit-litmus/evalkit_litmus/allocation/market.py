"""Who works on what: sizes of tasks, productivities of workers, and the two plans between which scores lie.

A task pays its size times the wage; the company earns size times productivity. By the hidden plan of equal pay all
workers earn the same in total. By the efficient plan each period's largest task goes to the most productive worker,
and so on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from evalkit import UsageError

WORKERS = ("W1", "W2", "W3", "W4")
"""Of an instance that does not say how many there are."""
PRODUCTIVITY = 10.0
"""The mean of all workers', whatever the gap between the least and the most productive one."""
GAP = 18.0
MEAN_SIZE = 60
EXPLORED = 0.1
"""Of the periods: in which the greedy plan for revenue does not know who is how productive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationMarket:
    """One instance's tasks and workers."""

    sizes: tuple[Mapping[str, int], ...]
    """By period: each task's size, tasks in order of their numbers."""
    productivities: Mapping[str, float]
    """By worker."""
    equal: tuple[Mapping[str, str], ...]
    """By period: the plan of equal pay, task -> worker."""
    efficient: tuple[Mapping[str, str], ...]
    """By period: the plan of the highest revenue."""
    greedy_equal: tuple[Mapping[str, str], ...]
    """By period: its largest task to who has earned least so far, and so on."""
    greedy_efficient: tuple[Mapping[str, str], ...]
    """By period: at random in the first ones, then as the efficient plan."""
    wage: float
    probe: float
    """The generator's next double, by which its position is compared."""

    def totals(self, plan: Sequence[Mapping[str, str]]) -> tuple[float, float]:
        """(revenue of all periods, inequality after the last: the highest pay minus the lowest)."""
        pays: dict[str, float] = dict.fromkeys(self.productivities, 0)
        revenue = 0.0
        for sizes, assigned in zip(self.sizes, plan, strict=True):
            for task, worker in assigned.items():
                pays[worker] += paid(sizes[task], self.wage)
                revenue += sizes[task] * self.productivities[worker]
        return revenue, inequality(list(pays.values()))


def inequality(pays: Sequence[float]) -> float:
    """The highest total pay minus the lowest."""
    return max(pays) - min(pays)


def paid(size: int, wage: float) -> float:
    """What a task pays: a whole number where it is one."""
    pay = size * wage
    return int(pay) if float(pay).is_integer() else pay


@lru_cache(maxsize=64)
def market_of(
    seed: int, periods: int, workers: int = len(WORKERS), gap: float = GAP, wage: float = 1
) -> AllocationMarket:
    """The market of a seed of the reference's generator. Raises UsageError if its two plans are the same point.

    gap   between the productivities of the most and the least productive worker; the others' lie evenly between
    wage  of each unit of size

    Draws, in order: for each worker `periods` - 1 cuts of the pay that all earn, whose parts are that worker's tasks in
    the plan of equal pay; for each period the numbers of those tasks; the productivities.
    """
    draws = np.random.RandomState(seed)
    whole, count = MEAN_SIZE * periods, workers
    names = [f"W{i + 1}" for i in range(count)]
    parts = []
    for _ in names:
        ends = [0, *sorted(1 + cut for cut in draws.permutation(whole - 1)[: periods - 1].tolist()), whole]
        parts.append([high - low for low, high in pairwise(ends)])
    sizes, equal = [], []
    for period in range(periods):
        tasks = [f"T{count * period + 1 + place}" for place in draws.permutation(count).tolist()]
        by_task = {task: parts[i][period] for i, task in enumerate(tasks)}
        sizes.append({task: by_task[task] for task in task_ids(period, count)})
        equal.append(dict(zip(tasks, names, strict=True)))
    order = draws.permutation(count).tolist()
    spread = np.linspace(PRODUCTIVITY - gap / 2, PRODUCTIVITY + gap / 2, count).tolist()
    productivities = {worker: spread[place] for worker, place in zip(names, order, strict=True)}
    efficient = tuple(_efficient(of_period, productivities) for of_period in sizes)
    market = AllocationMarket(
        sizes=tuple(sizes),
        productivities=productivities,
        equal=tuple(equal),
        efficient=efficient,
        greedy_equal=_greedy_equal(sizes, names),
        greedy_efficient=_explored(sizes, names, efficient, np.random.RandomState(seed)),
        wage=wage,
        probe=float(draws.random_sample()),
    )
    if market.totals(market.equal) == market.totals(market.efficient):
        raise UsageError(f"seed: the two plans of seed {seed} come to the same, so nothing lies between them.")
    return market


def task_ids(period: int, workers: int = len(WORKERS)) -> tuple[str, ...]:
    """The tasks of a period."""
    first = workers * period + 1
    return tuple(f"T{first + i}" for i in range(workers))


def _greedy_equal(sizes: Sequence[Mapping[str, int]], names: Sequence[str]) -> tuple[Mapping[str, str], ...]:
    earned, plan = dict.fromkeys(names, 0), []
    for of_period in sizes:
        tasks = sorted(of_period, key=of_period.__getitem__, reverse=True)
        plan.append(dict(zip(tasks, sorted(earned, key=earned.__getitem__), strict=True)))
        for task, worker in plan[-1].items():
            earned[worker] += of_period[task]
    return tuple(plan)


def _explored(
    sizes: Sequence[Mapping[str, int]],
    names: Sequence[str],
    efficient: Sequence[Mapping[str, str]],
    draws: np.random.RandomState,
) -> tuple[Mapping[str, str], ...]:
    unknown = math.ceil(EXPLORED * len(sizes))
    shuffled = (dict(zip(of_period, draws.permutation(list(names)).tolist(), strict=True)) for of_period in sizes)
    return tuple(
        plan if period >= unknown else random
        for period, (plan, random) in enumerate(zip(efficient, shuffled, strict=True))
    )


def _efficient(sizes: Mapping[str, int], productivities: Mapping[str, float]) -> dict[str, str]:
    tasks = sorted(sizes, key=sizes.__getitem__)  # of one size: in the order of their numbers
    return dict(zip(tasks, sorted(productivities, key=productivities.__getitem__), strict=True))
