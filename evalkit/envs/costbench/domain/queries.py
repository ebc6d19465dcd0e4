"""Where queries come from: the reference's raw structures by arithmetic, and a native generator keyed by place.

Source: specification, section 3.3, step 1; section 3.3 of the paper. Differs: the reference has a language model judge
which combinations of wishes make sense; the native generator reads that from the catalogue's conflicts.
"""

from collections.abc import Iterator, Mapping

from evalkit.envs.costbench.domain import ids
from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.query import Query
from evalkit.envs.costbench.domain.wording import context_label, requirements
from evalkit.envs.costbench.domain.world import LEAST_LENGTH, context_type, filled, output_type
from evalkit.envs.mersenne import Mersenne
from evalkit.errors import UsageError
from evalkit.seeds import Stream

_MOST_DRAWS = 2000
"""Combinations drawn before a catalogue's conflicts are taken to leave none."""


def reference_queries(catalogue: Catalogue, split: str, total: int, seed: int = 42) -> Iterator[dict[str, object]]:
    """The reference's raw queries in its order and with its fields; there, `total` is 1000 (test) or 6000 (train), and
    `seed`, of times and wishes, is 42.

    Tasks with a graph have none. Raises ValueError if the split has no values.
    """
    chain = catalogue.chain
    tasks = [name for name, task in catalogue.tasks.items() if task.graph is None]
    if chain is None:
        return
    draws, times = Mersenne(seed), iter(ids.time_numbers(total * len(catalogue.constants), seed))
    digits, number = catalogue.digits[split], 0
    for task_index, task in enumerate(tasks):
        size = ids.combinations(catalogue, task, split)
        for i in range(total // len(tasks) + (task_index < total % len(tasks))):
            number += 1
            context = i % ids.combinations(catalogue, catalogue.context, split) + 1 if catalogue.context else None
            if task == catalogue.context:
                index, context = i % size, None
            else:
                index = draws.below(size)
            wishes = ids.preferences_at(catalogue, task, split, index)
            row: dict[str, object] = {"query_id": f"<Query{number:05d}>"}
            row |= {name: ids.show_id(name, next(times), digits) for name in catalogue.constants}
            row["task"] = task
            if catalogue.context:
                row[f"is_{catalogue.context}"] = int(task == catalogue.context)
            row["goal_type"] = output_type(chain, task, LEAST_LENGTH, LEAST_LENGTH - 1)
            row["preferences"] = wishes
            if context is not None:
                row[f"{catalogue.context}_preference"] = ids.show_id(context_label(catalogue), context, digits)
            answer = ids.preference_number(catalogue, task, split, wishes, context)
            row["groundtruth"] = ids.show_id(filled(chain.first.label, chain, task, 0), answer, digits)
            yield row


def conflicts(catalogue: Catalogue, task: str, preferences: Mapping[str, str]) -> bool:
    """Whether nobody asks for this combination: some entry of the task's conflicts has all its dimensions' values."""
    return any(
        all(preferences.get(key) in values for key, values in conflict.items())
        for conflict in catalogue.tasks[task].conflicts
    )


def native_query(catalogue: Catalogue, task: str, split: str, seed: int, index: int) -> Query:
    """The query at one place, the same whatever others are made: `<dining-7-0003>` is place 3 of seed 7.

    Wishes and the context's preference are drawn evenly from the combinations without a conflict, constants from 1 to
    5000. Raises UsageError if the split has no values, or conflicts leave no combination.
    """
    name = (catalogue.name, task, split, index)
    wishes = _wishes(catalogue, task, split, Stream(seed, "wishes", *name))
    given: dict[str, int] = {}
    draws = Stream(seed, "constants", *name)
    most = min(ids.TIMES, 10 ** catalogue.digits[split] - 1)
    for constant in _constants(catalogue, task):
        given[constant] = 1 + draws.below(most)
    context = None
    if ids.has_context(catalogue, task):
        chosen = _wishes(catalogue, catalogue.context, split, Stream(seed, "context", *name))
        context = 1 + ids.index_of(catalogue, catalogue.context, split, chosen)
        given[context_type(catalogue)] = context
    return Query(
        id=f"<{task}-{seed}-{index:04d}>",
        preferences=wishes,
        given=given,
        number=ids.preference_number(catalogue, task, split, wishes, context),
        text=requirements(catalogue, task, wishes, Stream(seed, "wording", *name)),
    )


def _constants(catalogue: Catalogue, task: str) -> tuple[str, ...]:
    graph = catalogue.tasks[task].graph
    return tuple(name for name in catalogue.constants if graph is None or name in graph.start)


def _wishes(catalogue: Catalogue, task: str, split: str, draws: Stream) -> dict[str, str]:
    size = ids.combinations(catalogue, task, split)
    if size == 0:
        raise UsageError(f"catalogue {catalogue.name}: task {task} has no values in the split {split!r}.")
    for _ in range(_MOST_DRAWS):
        wishes = ids.preferences_at(catalogue, task, split, draws.below(size))
        if not conflicts(catalogue, task, wishes):
            return wishes
    raise UsageError(
        f"catalogue {catalogue.name}: task {task}: {_MOST_DRAWS} draws in the split {split!r} gave no "
        "combination of wishes without a conflict. Remove some of its conflicts."
    )
