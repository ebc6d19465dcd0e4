"""Two paths side by side: which calls of the agent are those of the optimal path, which are extra, missed or failed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from evalkit.envs.calls import OK

Relation = Literal["agrees", "instead", "extra", "missed", "failed", "refused"]
"""`failed`: charged, and stopped by something that happened or by a ban; `refused`: neither charged nor carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One call that was looked at. Costs in cents."""

    step: int
    turn: int
    tool: str
    """As the agent wrote it."""
    outcome: str
    charged: bool
    """Whether it is part of the agent's path."""
    cost: int
    spent: int
    """By the agent so far, this call included."""
    left: int | None
    """The cheapest rest from where the agent stands now, as things are now; None: the goal is out of reach."""
    lost: int | None
    """By how much the call makes the cheapest total dearer; 0: it begins an optimal plan, or cost nothing."""
    world: int | None
    """By how much what happened in its turn does; below 0 if that makes things cheaper."""
    events: tuple[str, ...]
    """Kinds of what happened in its turn."""
    goal: bool
    """Whether the goal is held after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row of the alignment: a call of the agent's, one of the optimal path's, or both."""

    relation: Relation
    call: Called | None
    tool: str
    """Of the optimal path; empty: none."""
    cost: int
    """Cents of that; 0: none."""


def aligned(calls: Sequence[Called], optimal: Sequence[str], costs: Sequence[int]) -> tuple[Pair, ...]:
    """The two paths aligned with the fewest insertions, deletions and replacements; refused calls stand in between."""
    refused = [call for call in calls if not call.charged]
    pairs: list[Pair] = []
    for pair in _charged_pairs([call for call in calls if call.charged], optimal, costs):
        while pair.call is not None and refused and refused[0].step < pair.call.step:
            pairs.append(_alone("refused", refused.pop(0)))
        pairs.append(pair)
    return (*pairs, *(_alone("refused", call) for call in refused))


def _charged_pairs(charged: Sequence[Called], optimal: Sequence[str], costs: Sequence[int]) -> Iterator[Pair]:
    from rapidfuzz.distance import Levenshtein

    for code in Levenshtein.opcodes([call.tool for call in charged], list(optimal)):
        own, theirs = range(code.src_start, code.src_end), range(code.dest_start, code.dest_end)
        if code.tag == "delete":
            yield from (_alone("extra" if charged[i].outcome == OK else "failed", charged[i]) for i in own)
        elif code.tag == "insert":
            yield from (Pair(relation="missed", call=None, tool=optimal[j], cost=costs[j]) for j in theirs)
        else:
            relation: Relation = "agrees" if code.tag == "equal" else "instead"
            for i, j in zip(own, theirs, strict=True):
                yield Pair(relation=relation, call=charged[i], tool=optimal[j], cost=costs[j])


def _alone(relation: Relation, call: Called) -> Pair:
    return Pair(relation=relation, call=call, tool="", cost=0)
