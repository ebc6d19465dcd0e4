"""An episode's conversation as pages show it: periods, each with a line that says what came of it, turns, texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from evalkit.errors import QUIT
from evalkit.money import show_usd
from evalkit.report.charts.drawing import period_lines
from evalkit.results.moves import Move
from evalkit.results.show import ReplayedEpisode
from evalkit.results.trajectory import TrajectoryPart, pending_parts, trajectory_parts, usage_words
from evalkit.text import BOUND, many, seconds

OPEN = 5
"""Periods up to which all are unfolded at once."""

PENDING = 20_000
"""Characters of replies that no act has followed yet."""

FOLDED = frozenset({"system", "tools"})
"""Titles of what is folded: long, and mostly the same in every chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """One text of the conversation."""

    kind: str
    """As of `results.trajectory.TrajectoryPart`: `read`, `ask`, `thought`, `said`, `call`, `facts`, `warning`."""
    title: str
    text: str
    folded: bool
    raw: str = ""
    """Of facts: the JSON whose words the text is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """One request and its reply."""

    anchor: str
    """`p12t3`."""
    title: str
    numbers: str
    """Tokens, cost and latency."""
    parts: Sequence[PartView]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodView:
    """One period: a line that says what came of it, and its chat."""

    number: int
    anchor: str
    """`p12`."""
    line: str
    numbers: str
    """Turns, tokens, cost and latency of all of it."""
    warned: bool
    opening: Sequence[PartView]
    """What its chats began with."""
    turns: Sequence[TurnView]
    """Empty where they come when it is opened."""
    open: bool
    href: str
    """The page of this period alone; empty where there is none."""


def periods_of(
    replayed: ReplayedEpisode, address: str, *, only: int | None = None, most: int = BOUND
) -> Iterator[PeriodView]:
    """The periods in order, texts cut to `most`; `only`: one of them."""
    lines = period_lines(replayed.result.environment, replayed.target, replayed.moves)
    open_all = replayed.result.periods <= OPEN
    for number, group in groupby(replayed.moves, key=lambda move: move.period):
        if only is not None and number != only:
            continue
        played = list(group)
        parts = list(trajectory_parts(played, most=most))[:-1]  # behind the last one stands how the episode ended
        opening, turns = _turns(parts)
        yield PeriodView(
            number=number,
            anchor=f"p{number}",
            line=_line(lines.get(number, ""), played),
            numbers=_numbers([move.row for move in played], turns=True),
            warned=any(part.kind == "warning" for part in parts),
            opening=opening,
            turns=turns,
            open=open_all or only is not None,
            href=period_address(address, number) if address else "",
        )


def pending_of(replayed: ReplayedEpisode) -> TurnView | None:
    """What an agent's code has asked on its way to a step that is not there yet; None: nothing."""
    pending = replayed.pending
    if not pending:
        return None
    title, *parts = pending_parts(pending, min(BOUND, PENDING // len(pending)))
    step, _, numbers = title.title.partition(" · ")
    return TurnView(anchor="pending", title=step, numbers=numbers, parts=[_view(part) for part in parts])


def _line(line: str, played: Sequence[Move]) -> str:
    """What came of a period, in a line."""
    last = played[-1]
    if line or last.reply is None:
        return line or ("ended by the agent" if last.ending == QUIT else "refused by the provider")
    ending = str(last.facts.get("period_end") or last.ending or "continues").replace("_", " ")
    return {"restart": "restarted", "no action": "no action was accepted"}.get(ending, ending)


def _turns(parts: Iterable[TrajectoryPart]) -> tuple[list[PartView], list[TurnView]]:
    """(what the chat begins with, its turns). A chat that is begun again is part of the turn before."""
    opening: list[PartView] = []
    turns: list[TurnView] = []
    into, used = opening, set[str]()
    for part in parts:
        if part.kind == "turn" and part.move is not None:
            into = []
            row, turn_anchor = part.move.row, f"p{part.move.period}t{part.move.turn}"
            # A period that was restarted, or a refused request, has the place of an earlier turn.
            anchor = f"{turn_anchor}s{row['step']}" if turn_anchor in used else turn_anchor
            used.add(anchor)
            turns.append(
                TurnView(
                    anchor=anchor,
                    title=f"turn {part.move.turn}",
                    numbers=f"step {row['step']} · {_numbers([row])}",
                    parts=into,
                )
            )
        elif part.kind != "period":
            into.append(_view(part))
    return opening, turns


def _view(part: TrajectoryPart) -> PartView:
    if part.kind in ("thought", "ask"):
        folded = bool(part.text)
    else:
        folded = part.title in FOLDED and len(part.text) > len("(as before)")
    return PartView(kind=part.kind, title=part.title, text=part.text, folded=folded, raw=part.raw)


def _numbers(rows: Sequence[Mapping[str, Any]], *, turns: bool = False) -> str:
    count = [many(len(rows), "turn")] if turns else []
    tokens_in, tokens_out = (sum(row[key] for row in rows) for key in ("tokens_in", "tokens_out"))
    cost, latency = int(sum(row["cost"] for row in rows)), sum(row["latency_s"] for row in rows)
    tokens = [f"{tokens_in:,} in, {tokens_out:,} out{usage_words(rows)}"] if tokens_in or tokens_out else []
    return " · ".join([*count, *tokens, *([show_usd(cost)] if cost else []), seconds(latency)])


def period_address(address: str, number: int) -> str:
    """Where the page of a period is."""
    return f"{address}/period/{number}"


def bounded_to(periods: Sequence[PeriodView], room: int) -> list[PeriodView]:
    """The periods with as much text as a page may hold: warned ones first, then from the first on."""
    kept = set[int]()
    for period in sorted(periods, key=lambda period: (not period.warned, period.number)):
        size = _size(period)
        if size > room and kept:
            continue
        room -= size
        kept.add(period.number)
    return [period if period.number in kept else replace(period, opening=(), turns=()) for period in periods]


def _size(period: PeriodView) -> int:
    """Characters of a period's texts, with what their markup adds."""
    parts = [*period.opening, *(part for turn in period.turns for part in turn.parts)]
    return sum(len(part.text) + 120 for part in parts) + 200 * len(period.turns)
