"""Agents as code that the simulation plays, and what it hears of their asks."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from evalkit.dialogue import Message, Reply
from evalkit.engine.agents.seat import EpisodeSeat
from evalkit.errors import AgentError, AskRefused
from evalkit.seats import Fork, Seat, agent
from evalkit.seeds import derive
from evalkit.store.reading.index import read_index
from evalkit.store.reading.reader import ask_rows

Place = tuple[int, str]
"""Of an ask in its episode: its step, and how its requests name it; a model's own request has no name."""


Asks = dict[tuple[str, int, str], tuple[bytes, bytes | None]]
"""What asks hold (the request's digest, the reply) by episode and place."""


def address(key: str, n: int) -> str:
    """How the requests of an ask name it beside its episode and step."""
    return f"{derive(key, n):08x}" if key or n else ""


def _told(*replies: Reply) -> Message:
    """Replies in words, as a question."""
    return Message(
        role="user", text="\n".join(f"{one.text} {[call.arguments for call in one.calls]}" for one in replies)
    )


@agent(version=1, models=("main", "judge"), parallel=3)
async def best_of(seat: Seat) -> None:
    """Three drafts at once, of which a judge chooses one."""
    while not seat.ending:
        drafts = await asyncio.gather(*(seat.fork(f"draft-{number}").ask() for number in range(3)))
        verdict = await seat.ask([_told(*drafts)], model="judge", tools=())
        await seat.act(drafts[len(verdict.text) % 3])


@agent(version=1)
async def plain(seat: Seat) -> None:
    """What a model alone does."""
    while not seat.ending:
        await seat.act(await seat.ask())


@agent(version=1, models=("planner", "executor"))
async def planned(seat: Seat) -> None:
    """One model plans each period, another acts; a plan and an act are asks of one key."""
    plan, period = Reply(), -1
    while not seat.ending:
        if seat.period != period:
            period = seat.period
            plan = await seat.ask(model="planner")
        await seat.act(await seat.ask([*seat.messages, _told(plan)], model="executor"))


@agent(version=1, parallel=2)
async def branching(seat: Seat) -> None:
    """Two branches at once: one asks twice, the other through a fork of its own."""

    async def twice(fork: Fork) -> Reply:
        first = await fork.ask()
        return await fork.ask([*seat.messages, _told(first)])

    while not seat.ending:
        a, b = seat.fork("a"), seat.fork("b")
        replies = await asyncio.gather(twice(a), b.fork("a").ask())
        await seat.act(replies[seat.draws(seat.step).below(2)])


@agent(version=1, parallel=8)
async def wide(seat: Seat) -> None:
    """Eight drafts at once."""
    while not seat.ending:
        drafts = await asyncio.gather(*(seat.fork(str(number)).ask() for number in range(8)))
        await seat.act(drafts[seat.draws(seat.step).below(8)])


@agent(version=1, parallel=2)
async def hasty(seat: Seat) -> None:
    """Waits for the first of two drafts alone, and leaves after three acts."""
    while not seat.ending and seat.step < 3:
        second = asyncio.ensure_future(seat.fork("b").ask())
        try:
            first = await seat.fork("a").ask()
        finally:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
        await seat.act(first)


@agent(version=1, parallel=2)
async def careful(seat: Seat) -> None:
    """Two drafts at once: where one is refused it takes the other, where both are it asks with less."""
    while not seat.ending:
        drafts = await asyncio.gather(*(seat.fork(name).ask() for name in "ab"), return_exceptions=True)
        for draft in drafts:
            if isinstance(draft, BaseException) and not isinstance(draft, AskRefused):
                raise draft
        good = [draft for draft in drafts if isinstance(draft, Reply)]
        await seat.act(good[-1] if good else await seat.ask(seat.messages[-1:]))


@contextmanager
def heard(answered: Callable[[str, Place], None]) -> Iterator[None]:
    """Tell of each ask (its episode and place) at the moment when its agent has the reply or the refusal."""
    real = EpisodeSeat.ask_for

    async def ask_for(seat: EpisodeSeat, key: str, n: int, *how: Any) -> Reply:
        step = seat.step
        asked = seat._active.episode.id, (step, address(key, n))
        try:
            reply = await real(seat, key, n, *how)
        except AskRefused:
            answered(*asked)
            raise
        answered(*asked)
        return reply

    with mock.patch.object(EpisodeSeat, "ask_for", ask_for):
        yield


def asks_of(run: Path) -> Asks:
    """The log's asks. Raises AgentError for one that is there twice."""
    held: Asks = {}
    for episode, rows in ask_rows(run, read_index(run).episodes).items():
        for row in rows:
            place = episode, row.step, address(row.ask_key, row.ask_n)
            if place in held:
                raise AgentError(f"{place} is in the log twice")
            held[place] = row.request_digest, row.reply
    return held
