"""An episode for programs: what the agent read, what it answered, and its score."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from evalkit.dialogue import Message, Reply
from evalkit.envs.environment import Facts, Score
from evalkit.money import usd
from evalkit.results.asks import Ask
from evalkit.text import many

if TYPE_CHECKING:
    from evalkit.results.moves import Move
    from evalkit.results.show import ReplayedEpisode


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Episode:
    """One episode: one agent on one instance. Its chats are rendered by replaying the logged replies.

    id           hexadecimal digits, derived from agent, instance and replicate
    agent        its name in the sweep
    environment, suite, instance
                 names; the suite with `?k=2` after it where parameters were varied
    replicate    from 0
    ending       `complete`, `stable`, `unresponsive`, ... as the environment says, or `context_length`, ... where the
                 provider refused; empty if the episode has not ended
    score        `Score`; None if the episode has not ended
    chats        every chat at its end: a tuple of tuples of `Message`, including the agent's messages
    replies      tuple of `Reply`, one per step; None if the provider refused a request
    asks         tuple of `Ask`: the requests of an agent that is code, by step and in the order of their replies
    facts        tuple with one mapping per step: the environment's response to the reply, as numbers and words
    cost_usd     Decimal; only replies, without failed attempts
    tokens_in, tokens_out
                 as counted by the provider
    latency_s    seconds, the sum over all replies
    reproduced   whether replay gave the same facts, texts and requests as the log, byte for byte

    `str(episode)` is what `evalkit show` prints.

    >>> import evalkit
    >>> instance = evalkit.suite("scheduling/basic", instances=["seed-0"])[0]
    >>> episode = evalkit.play("knuth", instance)
    >>> episode.ending, episode.score.value, len(episode.replies)
    ('stable', 1.0, 16)
    >>> episode.messages[0].role
    'system'
    """

    id: str
    agent: str
    environment: str
    suite: str
    instance: str
    replicate: int
    ending: str
    score: Score | None
    chats: tuple[tuple[Message, ...], ...]
    replies: tuple[Reply | None, ...]
    asks: tuple[Ask, ...]
    facts: tuple[Facts, ...]
    cost_usd: Decimal
    tokens_in: int
    tokens_out: int
    latency_s: float
    reproduced: bool
    text: str = field(compare=False)
    """As `evalkit show` prints it."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of all chats, in order."""
        return tuple(message for chat in self.chats for message in chat)

    def __repr__(self) -> str:
        score = "not ended" if self.score is None else f"score {self.score.value:g}"
        address = f"{self.agent}:{self.suite}:{self.instance}:{self.replicate}"
        return f"Episode({address}: {self.ending or 'not ended'}, {many(len(self.replies), 'step')}, {score})"

    def __str__(self) -> str:
        return self.text


def episode_of(replayed: "ReplayedEpisode", *, suite: str = "") -> Episode:
    """An episode of a run as the public record; `suite`: the suite's name, if the run has another one."""
    from evalkit.results.show import trajectory_of

    result = replayed.result
    score = None
    if result.score is not None:
        score = Score(value=result.score, solved=result.solved, metrics=result.metrics, path=result.path)
    return Episode(
        id=result.id,
        agent=result.agent,
        environment=result.environment,
        suite=suite or result.suite,
        instance=result.instance,
        replicate=result.replicate,
        ending=result.ending,
        score=score,
        chats=_chats(replayed.moves),
        replies=tuple(move.reply for move in replayed.moves),
        asks=replayed.asks,
        facts=tuple(move.facts for move in replayed.moves if move.reply is not None),
        cost_usd=usd(result.cost),
        tokens_in=result.tokens_in,
        tokens_out=result.tokens_out,
        latency_s=result.latency_s,
        reproduced=all(move.reproduced for move in replayed.moves),
        text=trajectory_of(replayed).plain(),
    )


def _chats(moves: "tuple[Move, ...]") -> tuple[tuple[Message, ...], ...]:
    """Every chat at its end."""
    chats: list[list[Message]] = []
    for move in moves:
        if move.turn == 0:
            chats.append(list(move.opening))
        if move.reply is not None:
            chats[-1] += (move.reply.message(), *move.messages)
    return tuple(map(tuple, chats))
