"""Who works on what: sizes of tasks, productivities of workers, and the two plans between which scores lie.

A task pays its size; the company earns size times productivity. By the hidden plan of equal pay all workers earn the
same in total. By the efficient plan each period's largest task goes to the most productive worker, and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from evalkit import UsageError

WORKERS = ("W1", "W2", "W3", "W4")
PRODUCTIVITIES = (1.0, 7.0, 13.0, 19.0)
MEAN_SIZE = 60


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
    probe: float
    """The generator's next double, by which its position is compared."""

    def totals(self, plan: Sequence[Mapping[str, str]]) -> tuple[float, int]:
        """(revenue of all periods, inequality after the last: the highest pay minus the lowest)."""
        pays = dict.fromkeys(WORKERS, 0)
        revenue = 0.0
        for sizes, assigned in zip(self.sizes, plan, strict=True):
            for task, worker in assigned.items():
                pays[worker] += sizes[task]
                revenue += sizes[task] * self.productivities[worker]
        return revenue, inequality(list(pays.values()))


def inequality(pays: Sequence[int]) -> int:
    """The highest total pay minus the lowest."""
    return max(pays) - min(pays)


@lru_cache(maxsize=64)
def market_of(seed: int, periods: int) -> AllocationMarket:
    """The market of a seed of the reference's generator. Raises UsageError if its two plans are the same point.

    Draws, in order: for each worker `periods` - 1 cuts of the pay that all earn, whose parts are that worker's tasks in
    the plan of equal pay; for each period the numbers of those tasks; the productivities.
    """
    draws = np.random.RandomState(seed)
    whole, count = MEAN_SIZE * periods, len(WORKERS)
    parts = []
    for _ in WORKERS:
        ends = [0, *sorted(1 + cut for cut in draws.permutation(whole - 1)[: periods - 1].tolist()), whole]
        parts.append([high - low for low, high in pairwise(ends)])
    sizes, equal = [], []
    for period in range(periods):
        tasks = [f"T{count * period + 1 + place}" for place in draws.permutation(count).tolist()]
        by_task = {task: parts[i][period] for i, task in enumerate(tasks)}
        sizes.append({task: by_task[task] for task in task_ids(period)})
        equal.append(dict(zip(tasks, WORKERS, strict=True)))
    order = draws.permutation(count).tolist()
    productivities = {worker: PRODUCTIVITIES[place] for worker, place in zip(WORKERS, order, strict=True)}
    market = AllocationMarket(
        sizes=tuple(sizes),
        productivities=productivities,
        equal=tuple(equal),
        efficient=tuple(_efficient(of_period, productivities) for of_period in sizes),
        probe=float(draws.random_sample()),
    )
    if market.totals(market.equal) == market.totals(market.efficient):
        raise UsageError(f"seed: the two plans of seed {seed} come to the same, so nothing lies between them.")
    return market


def task_ids(period: int) -> tuple[str, ...]:
    """The tasks of a period."""
    first = len(WORKERS) * period + 1
    return tuple(f"T{first + i}" for i in range(len(WORKERS)))


def _efficient(sizes: Mapping[str, int], productivities: Mapping[str, float]) -> dict[str, str]:
    tasks = sorted(sizes, key=sizes.__getitem__)  # of one size: in the order of their numbers
    return dict(zip(tasks, sorted(productivities, key=productivities.__getitem__), strict=True))
