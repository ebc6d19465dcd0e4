"""What a player sends of each chat: its own messages and tools, each encoded once, told by the turn alone."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evalkit.client.ask import Answer, Question
from evalkit.client.outside import PolicyAsker
from evalkit.dialogue import Message, Reply, Tool
from evalkit.engine import episode
from evalkit.engine.episode import LaneContext, play
from evalkit.engine.options import Stop
from evalkit.engine.resume import Holdings
from evalkit.engine.universe import Choice, PlannedEpisode, episodes
from evalkit.envs.environment import Environment
from evalkit.envs.replay import Position, Turn, advance
from evalkit.policy.table import player
from evalkit.store.files.record import StepRecord
from tests.support.small_sweeps import resolved

SPEC = """
[[agents]]
name = "r"
policy = "random"
[[suites]]
name = "scheduling/basic"
"""


class Listening(PolicyAsker):
    """Notes what it is asked, and how often it has to encode tools."""

    def __init__(self, played: PlannedEpisode) -> None:
        super().__init__("random", player("random", played.cell.env.name), played.cell.sampling)
        self.asked: list[tuple[tuple[Message, ...], tuple[Tool, ...]]] = []
        self.encoded: list[tuple[Tool, ...]] = []

    def encode_tools(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        self.encoded.append(tools)
        return tools

    async def ask(self, question: Question) -> Answer:
        self.asked.append((tuple(question.messages), question.tools))
        return await super().ask(question)


class Log:
    """Keeps the digests of what was asked."""

    def __init__(self) -> None:
        self.digests: list[bytes] = []

    def append(self, record: StepRecord) -> None:
        self.digests.append(record.request_digest)

    async def durable(self) -> None:
        """At once."""

    async def room(self) -> None:
        """At once."""

    def event(self, kind: str, **facts: object) -> None:
        raise AssertionError((kind, facts))


def played(run: Path) -> tuple[Listening, Log]:
    """One episode from its beginning to its end."""
    manifest = resolved(run, SPEC).manifest
    one = next(iter(episodes(manifest, list(manifest.agents.values()), Choice())))
    asker, log = Listening(one), Log()
    activate = Holdings(episodes={}, rows={}).activate
    context = LaneContext(log=log, worker="w", stop=Stop())
    assert asyncio.run(play(one, activate, asker, context)) == "complete"
    return asker, log


def in_one_list(env: Environment[Any, Any], position: Position, reply: Reply, reply_bytes: bytes) -> Turn:
    """`advance` with one list for all chats, and a tool list that is made anew for each request."""
    before = position.messages
    turn = advance(env, position, reply, reply_bytes)
    before[:] = position.messages
    position.messages = before
    position.tools = (*position.tools,)
    return turn


def test_a_new_chat_is_told_by_the_turn_and_not_by_its_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asker, log = played(tmp_path)
    openings = [messages for messages, _ in asker.asked if messages[-1].role == "user" and len(messages) < 3]
    assert len(openings) > 2
    monkeypatch.setattr(episode, "advance", in_one_list)
    again, same = played(tmp_path)
    assert again.asked == asker.asked
    assert same.digests == log.digests


def test_tools_are_encoded_only_when_others_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for change in (advance, in_one_list):
        monkeypatch.setattr(episode, "advance", change)
        asker, _ = played(tmp_path)
        offered = [tools for _, tools in asker.asked]
        changes = [later for earlier, later in pairwise(offered) if later != earlier]
        assert asker.encoded == [offered[0], *changes]
