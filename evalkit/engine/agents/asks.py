"""An ask as a row of the log."""

import time
from dataclasses import dataclass

import orjson

from evalkit.client.ask import Answer
from evalkit.digests import NOTHING, step_digest
from evalkit.engine.episode import ActiveEpisode, taken
from evalkit.errors import AskRefused
from evalkit.replies import encode_reply
from evalkit.store.files.record import ASK, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedAsk:
    """One request of an agent's code."""

    step: int
    key: str
    n: int
    role: str
    digest: bytes
    """Of the request."""

    @property
    def plain(self) -> bool:
        """Whether it is the one that a model which plays alone would make."""
        return not self.key and not self.n


def ask_record(
    active: ActiveEpisode, ask: PlacedAsk, outcome: Answer | AskRefused, nth: int, worker: str
) -> StepRecord:
    """The row of an ask that was answered or refused; `nth`: its place among those of its step, as they are logged.

    Its facts say which model it asked.
    """
    episode, facts = active.episode, orjson.dumps({"model": ask.role})
    reply = encode_reply(outcome.reply) if isinstance(outcome, Answer) else None
    return StepRecord(
        episode=episode.id,
        environment=episode.suite.environment,
        suite=episode.suite.name,
        instance=episode.target.id,
        agent=episode.cell.agent.name,
        replicate=episode.replicate,
        take=active.take,
        step=ask.step,
        period=active.position.period,
        turn=nth,
        reply=reply,
        facts=facts,
        observation_digest=NOTHING,
        request_digest=ask.digest,
        step_digest=step_digest(ask.digest, reply, facts, NOTHING),
        **(taken(outcome) if isinstance(outcome, Answer) else {"attempts": outcome.kind, "started_at": time.time()}),
        worker=worker,
        row_kind=ASK,
        ask_line=active.line,
        ask_key=ask.key,
        ask_n=ask.n,
    )
