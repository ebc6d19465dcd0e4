"""An episode replayed for readers: each row of its log with what the agent read, what its reply brought about, and what
an agent's code asked on its way to it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from typing import Any

import orjson

from evalkit.dialogue import Message, Reply, Tool
from evalkit.envs.environment import Environment, Facts, Kit
from evalkit.envs.replay import Position, Turn, advance, begin
from evalkit.errors import CorruptLogError
from evalkit.money import usd
from evalkit.replies import decode_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of an agent that is code.

    step         the step on the way to which it was made
    key          the fork that asked, nested by `/`; empty for the agent itself
    n            its place among the requests of its key within the step, from 0
    role         the role that was asked
    reply        `Reply`; None if the provider refused the request
    refused      why: `context_length`, `content_filter`, ...; empty if there is a reply
    cost_pico_usd
                 of the reply, in 1e-12 USD; without failed attempts
    tokens_in, tokens_out
                 as counted by the provider
    latency_s    seconds that the reply took

    >>> import evalkit
    >>> @evalkit.agent(version=1)
    ... async def plain(seat: evalkit.Seat) -> None:
    ...     while not seat.ending:
    ...         await seat.act(await seat.ask())
    >>> instance = evalkit.suite("scheduling/basic", instances=["seed-0"])[0]
    >>> episode = evalkit.play(plain, instance, models={"main": "simulated/knuth"})
    >>> first = episode.asks[0]
    >>> first.step, first.key, first.n, first.role, first.refused
    (0, '', 0, 'main', '')
    """

    step: int
    key: str
    n: int
    role: str
    reply: Reply | None = field(repr=False)
    refused: str
    cost_pico_usd: int
    tokens_in: int
    tokens_out: int
    latency_s: float

    @property
    def cost_usd(self) -> Decimal:
        """Exactly `cost_pico_usd`."""
        return usd(self.cost_pico_usd)


def ask_of(row: Mapping[str, Any]) -> Ask:
    """An ask from its row, as `asks_made` gives it. Raises CorruptLogError."""
    return Ask(
        step=row["step"],
        key=row["ask_key"],
        n=row["ask_n"],
        role=str(orjson.loads(row["facts"]).get("model", "")),
        reply=None if row["reply"] is None else decode_reply(row["reply"]),
        refused=row["attempts"].rpartition(",")[2] if row["reply"] is None else "",
        cost_pico_usd=row["cost"],
        tokens_in=row["tokens_in"],
        tokens_out=row["tokens_out"],
        latency_s=row["latency_s"],
    )


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
