"""An episode that is played from outside: by a program that calls tools, or by a person."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from evalkit.api.games import Game, env
from evalkit.dialogue import Reply
from evalkit.envs.environment import Facts
from evalkit.envs.replay import Turn


class PlaySession:
    """One episode: replies come one by one, however many are sent at once."""

    def __init__(self, game: Game, *, keep: Callable[[Reply], Awaitable[None]] | None = None, tag: str = "") -> None:
        """`keep` returns once the reply is on disk; None: nothing is kept. `tag`: the episode's name in a run."""
        self.game, self.tag = game, tag
        self._keep = keep
        self._lock = asyncio.Lock()

    @property
    def talks(self) -> bool:
        """Whether a text alone can act."""
        return env(self.game.instance.environment).talk

    async def reply(self, reply: Reply) -> Turn | None:
        """What the environment makes of the reply; None if the episode has ended before. Raises ValueError for text
        that is not Unicode, EvalkitError if the reply cannot be kept."""
        async with self._lock:
            if self.game.ending:
                return None
            if self._keep is not None:
                await self._keep(reply)
            return self.game.reply(reply)

    def closing(self) -> dict[str, Any]:
        """How the episode has ended, as JSON values."""
        score = self.game.score()
        return {
            "ending": self.game.ending,
            "score": score.value,
            "solved": score.solved,
            "metrics": dict(score.metrics),
        }


def outcome_of(facts: Facts) -> str:
    """`ok`, or the first outcome that is not, of a reply's calls."""
    found: list[str] = [call["outcome"] for call in facts.get("calls", ())]
    return next((outcome for outcome in found if outcome != "ok"), "ok")
