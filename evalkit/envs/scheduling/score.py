"""One scheduling episode's score, from the facts of its steps alone.

score = 1 - B / E: B is the number of blocking pairs of the last accepted assignment, E the expected number of a random
one. 1 is stable, 0 as good as random, below 0 worse. No accepted assignment at all scores 0, the random expectation.

Source: specification of the reference, sections D.2 and D.4.
Chosen: the first assignment counts as a best so far; exploration is distinct over submitted assignments, as in the
paper (the reference code computes something else).
"""

from collections.abc import Sequence

from evalkit.envs.environment import Facts, Score
from evalkit.envs.periods import NO_ACTION, RESTART
from evalkit.envs.scheduling.instance import SchedulingInstance, expected_of


def score(instance: SchedulingInstance, trajectory: Sequence[Facts]) -> Score:
    """The score with its secondary metrics.

    first_score, best_score: of the first and of the best assignment; best_so_far_rate: share of assignments with fewer
    blocking pairs than all before; exploration_rate: distinct over submitted; stable_period: the period that found a
    stable one; periods, no_action_periods, restarts, assignments, queries: counts.
    """
    expected = expected_of(instance)
    actions = [(facts["period"], facts["action"]) for facts in trajectory if "action" in facts]
    counts = [action["blocking"] for _, action in actions]
    endings = [facts.get("period_end") for facts in trajectory]
    metrics: dict[str, float] = {
        "periods": len(actions) + endings.count(NO_ACTION),
        "no_action_periods": endings.count(NO_ACTION),
        "restarts": endings.count(RESTART),
        "assignments": len(actions),
        "queries": len(trajectory),
    }
    if not counts:
        return Score(value=0.0, solved=False, metrics=metrics)
    metrics["first_score"] = value_of(counts[0], expected)
    metrics["best_score"] = value_of(min(counts), expected)
    metrics["best_so_far_rate"] = _records(counts) / len(counts)
    metrics["exploration_rate"] = sum(not action["repeat"] for _, action in actions) / len(actions)
    solved = counts[-1] == 0
    if solved:
        metrics["stable_period"] = actions[-1][0]
    return Score(value=value_of(counts[-1], expected), solved=solved, metrics=metrics)


def value_of(blocking: int, expected: tuple[int, int]) -> float:
    """1 - blocking / expected; `expected` is (numerator, denominator).

    Where E is 0 every matching is stable, and so is this one.
    """
    numerator, denominator = expected
    if blocking == 0:
        return 1.0
    # One rounding: the fraction is exact until the division.
    return (numerator - blocking * denominator) / numerator


def _records(counts: Sequence[int]) -> int:
    """How many counts are smaller than all before them."""
    best: int | None = None
    records = 0
    for count in counts:
        if best is None or count < best:
            best, records = count, records + 1
    return records
