"""What plays the episodes of an agent that is code: its coroutine, and an asker for each model and setting."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import orjson

from evalkit.client.ask import Answer, Asker, Encoder
from evalkit.dialogue import Message, Sampling, Tool
from evalkit.digests import NOTHING, step_digest
from evalkit.engine.episode import ActiveEpisode, taken
from evalkit.errors import AgentError, AskRefused, nearest
from evalkit.replies import encode_reply
from evalkit.seats import AgentCode
from evalkit.store.files.record import ASK, StepRecord

MOST_SETTINGS = 64
"""Settings of a role whose askers are kept."""
ADJUSTABLE = tuple(sorted({one.name for one in fields(Sampling)} - {"seed", "extra"}))
"""Settings that a single request may have of its own."""


@dataclass(kw_only=True)
class RoleAskers:
    """One agent in one environment."""

    code: AgentCode
    lanes: Mapping[str, str]
    """By role; the first is the one in which episodes are admitted."""
    params: Mapping[str, Any]
    max_tokens: int
    """The most of a request."""
    make: Callable[[str, Mapping[str, Any]], Asker]
    """Makes the asker of a role with settings of its own."""
    _askers: dict[tuple[str, bytes], Asker] = field(default_factory=dict)

    @cached_property
    def free(self) -> bool:
        """Whether no model costs anything: then the log is not waited for."""
        return all(self.asker(role, b"{}").free for role in self.lanes)

    def is_own(self, role: str) -> bool:
        """Whether a role's lane is the one in which episodes are admitted."""
        return self.lanes[role] == next(iter(self.lanes.values()))

    def asker(self, role: str, settings: bytes) -> Asker:
        """The asker of a role with settings as `settings_of` gives them."""
        key = role, settings
        asker = self._askers.get(key)
        if asker is None:
            if len(self._askers) >= MOST_SETTINGS:
                self._askers.pop(next(iter(self._askers)))
            asker = self._askers[key] = self.make(role, orjson.loads(settings))
        return asker

    def settings_of(self, role: str, sampling: Mapping[str, Any]) -> bytes:
        """The settings of one request as canonical JSON. Raises AgentError for a role or settings that cannot be."""
        if role not in self.lanes:
            raise AgentError(f"ask: there is no role {role!r}.{nearest(str(role), self.lanes)}")
        for name in sampling:
            if name not in ADJUSTABLE:
                raise AgentError(f"ask: sampling: {name!r} cannot be set here.{nearest(str(name), ADJUSTABLE)}")
        most = sampling.get("max_tokens", 1)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= self.max_tokens:
            raise AgentError(f"ask: sampling: max_tokens must be 1 to the agent's {self.max_tokens:,}, not {most!r}.")
        try:
            return orjson.dumps(dict(sampling), option=orjson.OPT_SORT_KEYS)
        except TypeError as flaw:
            raise AgentError(f"ask: sampling: {flaw}.") from flaw


# An ask as a row of the log.


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
        base_take=active.base_take,
        ask_key=ask.key,
        ask_n=ask.n,
    )


# What the environment shows to an agent that is code, encoded for the model of one role.


class ShownChat:
    """What the environment shows, encoded for one role: each message once."""

    __slots__ = ("_joined", "_messages", "_parts", "_tools")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._parts: list[Any] = []
        self._joined = 0
        self._tools: tuple[tuple[Tool, ...], Any] | None = None

    def parts_of(self, asker: Encoder, messages: list[Message]) -> list[Any]:
        """The messages, encoded; of a chat that goes on the new ones alone are encoded."""
        if messages is not self._messages:
            self._messages, self._parts, self._joined = messages, [], 0
        asker.join(self._parts, messages[self._joined :])
        self._joined = len(messages)
        return self._parts

    def tools_of(self, asker: Encoder, tools: tuple[Tool, ...]) -> Any:
        """The tools, encoded."""
        if self._tools is None or self._tools[0] is not tools:
            self._tools = tools, asker.encode_tools(tools)
        return self._tools[1]
