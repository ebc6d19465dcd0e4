"""A submitted assignment: whether it is one, which blocking pairs are shown of it, and what the history says.

Source: specification of the reference, sections B.4 and B.6; math.md, section 1.
Differs: the reference prints offending ids as a set, in an order that varies between processes; here they are in order,
and so many at most. It dies of values that are lists; here they are not ids of tasks. That tasks are unknown can be no
refusal of its own: known workers that hold all n tasks hold no other.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace
from rpds import HashTrieMap

from evalkit.dialogue import as_dataclass
from evalkit.envs.arguments import Refusal, listed
from evalkit.envs.environment import fill
from evalkit.envs.mersenne import RandomStateSnapshot, RandomStateStream
from evalkit.envs.rules import AcceptedAction, PeriodsState
from evalkit.envs.scheduling.market import BlockingPairs, SchedulingMarket, blocking
from evalkit.seeds import Stream

STABLE = "stable"

Pair = tuple[int, int]

REFUSALS = {
    "missing_workers": frozenset({"ids"}),
    "missing_tasks": frozenset({"ids"}),
    "unknown_workers": frozenset({"ids"}),
}
"""Outcomes of an assignment that is none, in the order they are looked for."""

TEXTS = {
    "results.history_attempt": frozenset({"attempt", "assignment", "problems"}),
    "results.history_problem": frozenset({"number", "worker", "task", "other", "wanted"}),
}
"""What the history says of an assignment: `worker` holds `task`, `other` holds `wanted`, which `worker` would rather
have; these four ids stand in that order."""


@as_dataclass
class SchedulingWorld(msgspec.Struct, frozen=True, kw_only=True):
    """What scheduling adds to the state of the loop."""

    market: SchedulingMarket
    k: int
    """Blocking pairs shown at most."""
    seed: int
    random_state: RandomStateSnapshot | None
    """Where the reference's generator stands, from which its feedback is drawn; None: feedback is keyed by place."""
    at_random: bool = True
    """Whether the pairs shown are drawn; else they are the first in order, workers before tasks."""
    seen: "HashTrieMap[tuple[int, ...], tuple[Pair, ...]]" = msgspec.field(default_factory=HashTrieMap)
    """What was shown of each matching submitted so far."""


def submit(
    state: PeriodsState[SchedulingWorld], mapping: Mapping[Any, Any]
) -> AcceptedAction[SchedulingWorld] | Refusal:
    """Judge a submitted mapping. Outcomes: those of `REFUSALS`, or an accepted action.

    The action's facts: `blocking`, how many pairs block it; `shown`, the pairs shown, as ids; `repeat`, whether the
    same matching was submitted before.
    """
    market = state.world.market
    matching = read_assignment(market, mapping)
    if isinstance(matching, Refusal):
        return matching
    blocking_pairs = blocking(market, matching)
    before = state.world.seen.get(matching)
    world, shown = _feedback(state.world, matching, blocking_pairs) if before is None else (state.world, before)
    workers, tasks = market.workers, market.tasks
    return AcceptedAction(
        world=world,
        facts={
            "blocking": blocking_pairs.count,
            "shown": [[workers[w], tasks[t]] for w, t in shown],
            "repeat": before is not None,
        },
        history=_history(state, dict(mapping), matching, shown),
        ended="" if blocking_pairs.count else STABLE,
    )


def read_assignment(market: SchedulingMarket, mapping: Mapping[Any, Any]) -> tuple[int, ...] | Refusal:
    """A mapping from workers to tasks as a matching. The first of the reference's checks that fails is the refusal."""
    workers, tasks = market.workers, market.tasks
    assigned = {value for value in mapping.values() if isinstance(value, str)}
    for outcome, ids in (
        ("missing_workers", [worker for worker in workers if worker not in mapping]),
        ("missing_tasks", [task for task in tasks if task not in assigned]),
    ):
        if ids:
            return Refusal(outcome, {"ids": listed(ids)})
    if len(mapping) > len(workers):
        known = frozenset(workers)
        return Refusal("unknown_workers", {"ids": listed([worker for worker in mapping if worker not in known])})
    index_of = {task: i for i, task in enumerate(tasks)}
    return tuple(index_of[mapping[worker]] for worker in workers)


def _feedback(
    world: SchedulingWorld, matching: tuple[int, ...], blocking_pairs: BlockingPairs
) -> tuple[SchedulingWorld, tuple[Pair, ...]]:
    """The pairs shown of a matching that is new: all if they are at most k, else k of them.

    Reference: drawn by the permutation rule from the generator that made the instance. Native: keyed by the matching,
    so that it gets the same pairs whenever it is submitted.
    """
    chosen: Iterable[int] = range(min(blocking_pairs.count, world.k))
    random_state = world.random_state
    if blocking_pairs.count > world.k and world.at_random:
        if random_state is not None:
            stream = RandomStateStream(random_state)
            chosen = stream.sample(blocking_pairs.count, world.k)
            random_state = stream.leave()
        else:
            name = ",".join(map(str, matching))
            chosen = distinct(Stream(world.seed, "feedback", name), blocking_pairs.count, world.k)
    shown = tuple(blocking_pairs.pairs(chosen))
    return replace(world, random_state=random_state, seen=world.seen.insert(matching, shown)), shown


def distinct(stream: Stream, n: int, size: int) -> list[int]:
    """`size` different integers of 0..n-1, every choice and order alike: the front of a shuffle, drawn alone."""
    moved: dict[int, int] = {}
    chosen = []
    for i in range(size):
        j = i + stream.below(n - i)
        chosen.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return chosen


def _history(
    state: PeriodsState[SchedulingWorld], mapping: Mapping[str, str], matching: tuple[int, ...], shown: Iterable[Pair]
) -> str:
    """What the history tool appends for an assignment: the mapping in one line, and a line for each pair shown."""
    texts, market = state.setting.texts, state.world.market
    workers, tasks = market.workers, market.tasks
    problems = [
        fill(
            texts["results.history_problem"],
            number=number,
            worker=workers[w],
            task=tasks[matching[w]],
            other=workers[matching.index(t)],
            wanted=tasks[t],
        )
        for number, (w, t) in enumerate(shown, 1)
    ]
    text = texts["results.history_attempt"]
    return fill(text, attempt=state.period, assignment=mapping, problems="".join(problems))
