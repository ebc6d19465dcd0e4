"""A scheduling episode as values: its accepted assignments, and what they brought to light of preferences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evalkit.envs.arguments import Refusal, read_arguments
from evalkit.envs.calls import OK
from evalkit.envs.literals import read_mapping
from evalkit.envs.scheduling.assignment import read_assignment
from evalkit.envs.scheduling.instance import SchedulingInstance, expected_of, market_of
from evalkit.envs.scheduling.market import SchedulingMarket
from evalkit.envs.scheduling.scheduling import ACTION, RULES
from evalkit.envs.scheduling.score import value_of
from evalkit.results.moves import Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """One accepted assignment."""

    period: int
    matching: tuple[int, ...]
    """The task of each worker."""
    blocking: int
    """Pairs that block it."""
    told: tuple[tuple[int, int], ...]
    """Those (worker, task) that the agent was told."""
    score: float
    """1 is stable, 0 as good as a random one."""
    record: bool
    """Whether fewer pairs block it than all before."""
    repeat: bool
    """Whether the same was submitted before."""
    known: int
    """Comparisons of two tasks by a worker, or of two workers by a task, that were told so far or follow from those."""


def assigned(target: SchedulingInstance, moves: Sequence[Move]) -> tuple[Assigned, ...]:
    """The accepted assignments, in order."""
    market, _ = market_of(target)
    expected = expected_of(target)
    workers = {name: i for i, name in enumerate(market.workers)}
    tasks = {name: i for i, name in enumerate(market.tasks)}
    learned = _Learned(market.n)
    assignments: list[Assigned] = []
    best: int | None = None
    for move in moves:
        action, matching = move.facts.get("action"), _submitted(market, move)
        if action is None or matching is None:
            continue
        told = tuple((workers[w], tasks[t]) for w, t in action["shown"])
        learned.add(matching, told)
        assignments.append(
            Assigned(
                period=move.period,
                matching=matching,
                blocking=action["blocking"],
                told=told,
                score=value_of(action["blocking"], expected),
                record=best is None or action["blocking"] < best,
                repeat=action["repeat"],
                known=learned.count,
            )
        )
        best = action["blocking"] if best is None else min(best, action["blocking"])
    return tuple(assignments)


def _submitted(market: SchedulingMarket, move: Move) -> tuple[int, ...] | None:
    """The assignment that a move's reply submitted and that was accepted; None: there is none."""
    calls = move.reply.calls if move.reply else ()
    for call, fact in zip(calls, move.facts.get("calls", ()), strict=False):
        if call.name != ACTION or fact["outcome"] != OK:
            continue
        arguments = read_arguments(call.arguments)
        mapping = arguments if isinstance(arguments, Refusal) else read_mapping(arguments[RULES.argument])
        if isinstance(mapping, Refusal):
            return None
        matching = read_assignment(market, mapping.value)
        return None if isinstance(matching, Refusal) else matching
    return None


class _Learned:
    """Comparisons known of everybody: told ones and what follows from them, since preferences are transitive.

    That (w, t) blocks says that w would rather have t than its own task, and t rather w than its own worker.
    """

    def __init__(self, n: int) -> None:
        self._below = [[0] * n for _ in range(2 * n)]
        self._above = [[0] * n for _ in range(2 * n)]
        self._n, self.count = n, 0

    def add(self, matching: Sequence[int], told: Iterable[tuple[int, int]]) -> None:
        """What the pairs told of an assignment say."""
        for worker, task in told:
            self._prefer(worker, task, matching[worker])
            self._prefer(self._n + task, worker, matching.index(task))

    def _prefer(self, who: int, better: int, worse: int) -> None:
        below, above = self._below[who], self._above[who]
        if below[better] >> worse & 1:
            return
        lower, higher = below[worse] | 1 << worse, above[better] | 1 << better
        for index in _bits(higher):
            self.count += (lower & ~below[index]).bit_count()
            below[index] |= lower
        for index in _bits(lower):
            above[index] |= higher


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
