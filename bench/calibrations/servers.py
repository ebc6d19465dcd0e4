"""Which of several servers a request goes to, with other values of the rule's constants. In virtual time.

    python -m bench.calibrations.servers

Four servers, each with a cache of prompts, answer a lane whose episodes are chats that grow. A server reads what its
cache lacks of a prompt, one prompt after the other, and writes answers side by side, the slower the more there are. One
of the servers is half as fast. Shown are replies a second, the mean time of a reply with its wait in the lane, and the
part of later prompts that was in the cache.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean
from unittest import mock

from evalkit.client.lanes import servers
from evalkit.client.lanes.lane import Lane
from evalkit.client.lanes.servers import NOWHERE, Wish
from evalkit.dialogue import Usage
from evalkit.seeds import Stream
from evalkit.spec.model import Limits, ServerSpec
from tests.support.virtual_clock import run_virtual

SERVERS, AT_EACH = 4, 32
TURNS, FIRST_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 20, 2000, 500, 150
READ_PER_S = 8000.0
"""Tokens of a prompt."""
TOKEN_S, CROWDED_S = 0.012, 0.0004
"""A token of an answer takes so long, and longer by this with each request beside it."""
SLOW = 2.0
"""How much slower the last server is."""
BETWEEN_S = 0.4
"""From a reply to the episode's next request, on average: the log, and the environment."""
LONG_S = 480.0
WIDTHS = (64, 160, 256)
"""Half of what all servers take at once, a little more than that, and twice as much."""
FACTORS: Sequence[tuple[str, float, int]] = (
    ("as it stands", servers.STAYS, servers.LOOK_AHEAD),
    ("STAYS 0", 0.0, servers.LOOK_AHEAD),
    ("STAYS 0.1", 0.1, servers.LOOK_AHEAD),
    ("STAYS 0.5", 0.5, servers.LOOK_AHEAD),
    ("STAYS for ever", math.inf, servers.LOOK_AHEAD),
    ("LOOK_AHEAD 1", servers.STAYS, 1),
    ("LOOK_AHEAD 16", servers.STAYS, 16),
    ("never", -math.inf, 1),
)


@dataclass(slots=True)
class CachingServer:
    """One server."""

    slowness: float
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    writing: int = 0
    cached: dict[int, int] = field(default_factory=dict)
    """By episode, tokens of its prompt."""

    async def answer(self, episode: int, tokens: int, answer: int) -> float:
        """Answer; the part of the prompt that was there."""
        there = self.cached.get(episode, 0)
        async with self.reading:
            await asyncio.sleep(self.slowness * (tokens - there) / READ_PER_S)
        self.writing += 1
        await asyncio.sleep(self.slowness * answer * (TOKEN_S + CROWDED_S * self.writing))
        self.writing -= 1
        self.cached[episode] = tokens + answer
        return there / tokens


@dataclass(slots=True)
class Seen:
    """What came of it."""

    replies: int = 0
    took_s: list[float] = field(default_factory=list)
    found: list[float] = field(default_factory=list)


async def _episode(lane: Lane, fleet: Sequence[CachingServer], number: int, seen: Seen) -> None:
    loop, draws = asyncio.get_running_loop(), Stream(number, "bench.calibrations.servers")
    cached, tokens = NOWHERE, FIRST_TOKENS
    for _ in range(1 + draws.below(TURNS), TURNS + 1):
        since, wish = loop.time(), Wish(cached)
        ticket = lane.try_enter(4 * tokens, 1000, wish) or await lane.enter(4 * tokens, 1000, wish)
        cached = ticket.server.number
        answer = ANSWER_TOKENS // 2 + draws.below(ANSWER_TOKENS)
        found = await fleet[cached].answer(number, tokens, answer)
        lane.succeeded(ticket, Usage(input=tokens, output=answer))
        if loop.time() > LONG_S / 6:  # the windows have opened
            seen.replies += 1
            seen.took_s.append(loop.time() - since)
            seen.found += [found] if tokens > FIRST_TOKENS else []
        tokens += answer + TURN_TOKENS
        await asyncio.sleep(2 * BETWEEN_S * draws.uniform())
        if loop.time() > LONG_S:
            return
    for server in fleet:
        server.cached.pop(number, None)


async def _played(width: int) -> Seen:
    specs = [ServerSpec(url=f"s{number}", limits=Limits(in_flight=AT_EACH)) for number in range(SERVERS)]
    fleet = [CachingServer(SLOW if number == SERVERS - 1 else 1.0) for number in range(SERVERS)]
    lane, seen, numbers = Lane("p/m", limits=Limits(), width=width, servers=specs), Seen(), iter(range(10**9))

    async def player() -> None:
        while asyncio.get_running_loop().time() < LONG_S:
            await lane.join()
            await _episode(lane, fleet, next(numbers), seen)
            lane.part()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(width):
            tasks.create_task(player())
    return seen


@contextmanager
def _with(stays: float, look_ahead: int) -> Iterator[None]:
    with mock.patch.object(servers, "STAYS", stays), mock.patch.object(servers, "LOOK_AHEAD", look_ahead):
        yield


def main() -> None:
    """Print the table."""
    print(f"{'':16}" + "".join(f"{f'{width} episodes':>30}" for width in WIDTHS))
    print(f"{'':16}" + f"{'replies/s':>12}{'reply s':>9}{'cached':>9}" * len(WIDTHS))
    for name, stays, look_ahead in FACTORS:
        line = f"{name:16}"
        for width in WIDTHS:
            with _with(stays, look_ahead):
                seen = run_virtual(_played(width))
            rate = seen.replies / (LONG_S * 5 / 6)
            line += f"{rate:12.1f}{mean(seen.took_s):9.2f}{mean(seen.found):9.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
