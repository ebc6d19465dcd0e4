"""An episode replayed for readers: each row of its log with what the agent read, and what its reply brought about."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from evalkit.dialogue import Message, Reply, Tool
from evalkit.envs.environment import Environment, Facts, Kit
from evalkit.envs.replay import Position, Turn, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.replies import decode_reply
from evalkit.results.asks import Ask

ROW = (
    *("step", "period", "turn", "reply", "facts", "step_digest", "ending"),
    *("tokens_in", "tokens_out", "cost", "latency_s"),
)
"""What of the log is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One row, replayed."""

    row: Mapping[str, Any] = field(repr=False)
    """As it was logged, with the columns `ROW`."""
    period: int
    """By replay, as all that follows."""
    turn: int
    """Place in its chat, from 0."""
    opening: tuple[Message, ...]
    """What the chat began with, where this is its first turn; empty elsewhere."""
    offered: tuple[Tool, ...]
    """The tools that the request offered."""
    reply: Reply | None
    """None: the provider refused the request."""
    facts: Facts
    """Empty if there is no reply."""
    facts_text: str = ""
    """The facts as JSON with sorted keys."""
    messages: tuple[Message, ...] = ()
    """What the chat appended after the reply."""
    offered_next: tuple[Tool, ...] | None = None
    """What the chat offers from now on; None: the same as before, or the chat is over."""
    reproduced: bool = True
    """Whether facts, texts and request are those of the log."""
    ending: str = ""
    """Why the episode is over; empty while it continues."""
    asks: tuple[Ask, ...] = ()
    """What an agent's code asked on its way to this step."""


def moves(
    env: Environment[Any, Any],
    instance: Any,
    kit: Kit,
    rows: Iterable[Mapping[str, Any]],
    asks: Iterable[Ask] = (),
) -> Iterator[Move]:
    """The moves of an episode from its rows in effect, in order; `asks`: by step.

    Raises CorruptLogError if a reply cannot be read or follows the episode's end.
    """
    asked = {step: tuple(made) for step, made in groupby(asks, key=lambda one: one.step)}
    for move in _moves(env, instance, kit, rows):
        yield replace(move, asks=asked[move.row["step"]]) if asked and move.row["step"] in asked else move


def _moves(env: Environment[Any, Any], instance: Any, kit: Kit, rows: Iterable[Mapping[str, Any]]) -> Iterator[Move]:
    position = begin(env, instance, kit)
    for row in rows:
        opening = tuple(position.messages) if position.turn == 0 else ()
        if row["reply"] is None:
            yield Move(
                row=row,
                period=position.period,
                turn=position.turn,
                opening=opening,
                offered=position.tools,
                reply=None,
                facts={},
                ending=row["ending"],
            )
        else:
            yield _answered(env, position, row, opening)


def _answered(
    env: Environment[Any, Any], position: Position, row: Mapping[str, Any], opening: tuple[Message, ...]
) -> Move:
    if position.ending:
        raise CorruptLogError(f"step {row['step']} follows the end of its episode ({position.ending}).")
    data = row["reply"].encode() if isinstance(row["reply"], str) else row["reply"]
    reply = decode_reply(data)
    offered = position.tools
    done: Turn = advance(env, position, reply, data)
    goes_on = not done.new_chat and not done.ending
    return Move(
        row=row,
        period=done.period,
        turn=done.turn,
        opening=opening,
        offered=offered,
        reply=reply,
        facts=done.facts,
        facts_text=done.facts_bytes.decode(),
        messages=done.messages,
        offered_next=position.tools if goes_on and position.tools is not offered else None,
        reproduced=done.step_digest == row["step_digest"],
        ending=done.ending or row["ending"],
    )
