"""The numbers in ids, by arithmetic: which preference a set of wishes comes to, and the pool of times.

The reference looks both up in a file of 48 MB that has to be made first; it holds nothing but what is computed here.
Source: specification, section 3.2.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import isqrt, prod

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.world import context_type
from evalkit.envs.mersenne import Mersenne

TIMES = 5000
"""How many pairs of times the reference draws, and the largest number in them."""
_PAIRS = TIMES * (TIMES - 1) // 2


def split_values(catalogue: Catalogue, task: str, split: str) -> Mapping[str, tuple[str, ...]]:
    """By dimension key: the values of one split of one task."""
    definition = catalogue.tasks[task]
    return definition.test if split == "test" else definition.train


@lru_cache(maxsize=1024)
def combinations(catalogue: Catalogue, task: str, split: str) -> int:
    """How many combinations of wishes a task has in a split (K); 0 if it has no values."""
    values = split_values(catalogue, task, split)
    return prod(len(values.get(key, ())) for key in catalogue.keys)


@lru_cache(maxsize=1024)
def has_context(catalogue: Catalogue, task: str) -> bool:
    """Whether the task's user is given a preference of the context's task. A graph says so by its start types."""
    if not catalogue.context or task == catalogue.context:
        return False
    graph = catalogue.tasks[task].graph
    return graph is None or context_type(catalogue) in graph.start


def index_of(catalogue: Catalogue, task: str, split: str, preferences: Mapping[str, str]) -> int:
    """The place, from 0, of one combination of wishes: mixed radix over the keys in alphabetical order, last fastest.

    Raises KeyError for a missing key and ValueError for a value that the split does not have.
    """
    values = split_values(catalogue, task, split)
    index = 0
    for key in catalogue.keys:
        index = index * len(values[key]) + values[key].index(preferences[key])
    return index


def preferences_at(catalogue: Catalogue, task: str, split: str, index: int) -> dict[str, str]:
    """The combination of wishes at a place from 0, by key in alphabetical order: the inverse of `index_of`."""
    values = split_values(catalogue, task, split)
    preferences: dict[str, str] = {}
    for key in reversed(catalogue.keys):
        index, digit = divmod(index, len(values[key]))
        preferences[key] = values[key][digit]
    return dict(sorted(preferences.items()))


def preference_number(
    catalogue: Catalogue, task: str, split: str, preferences: Mapping[str, str], context: int | None
) -> int:
    """The number, from 1, of the preference that wishes come to: the number of the right answer.

    `context`: the number of the context preference given with the task; None for a task that is given none. Raises
    KeyError for a missing key and ValueError for a value that the split does not have.
    """
    index = index_of(catalogue, task, split, preferences)
    before = 0 if context is None else (context - 1) * combinations(catalogue, task, split)
    return before + index + 1


def largest_number(catalogue: Catalogue, task: str, split: str) -> int:
    """The largest preference number of a task in a split."""
    contexts = combinations(catalogue, catalogue.context, split) if has_context(catalogue, task) else 1
    return contexts * combinations(catalogue, task, split)


def show_id(label: str, number: int, digits: int) -> str:
    """An id as all texts write it: `<DiningPreference00012>`."""
    return f"<{label}{number:0{digits}d}>"


def time_numbers(count: int, seed: int = 42) -> list[int]:
    """The numbers of the first `count` times: first elements of the reference's pairs, which begin again after 5000.

    The reference samples 5000 of the pairs (a, b), 1 <= a < b <= 5000; a pair's place in the list of all says which.
    """
    pool = _time_pool(seed)
    return [pool[i % TIMES] for i in range(count)]


@lru_cache(maxsize=1)
def _time_pool(seed: int) -> tuple[int, ...]:
    return tuple(_first_of_pair(index) for index in Mersenne(seed).sample(_PAIRS, TIMES))


def _first_of_pair(index: int) -> int:
    """`a` of the pair (a, b) at `index` in lexicographic order."""
    # Counted from the end, the pairs that begin with TIMES - m or later number m (m + 1) / 2.
    behind = _PAIRS - 1 - index
    return TIMES - 1 - (isqrt(8 * behind + 1) - 1) // 2
