"""Replay on the real environment: what was played live comes back from the logged replies alone."""

from typing import Any

import pytest

from evalkit.dialogue import Request
from evalkit.envs.environment import Kit
from evalkit.envs.replay import Position, Turn, advance, begin
from evalkit.envs.scheduling.scheduling import SCHEDULING
from evalkit.policy.conversation import answer
from evalkit.policy.table import find_policy
from evalkit.replies import decode_reply, encode_reply
from evalkit.seeds import derive
from evalkit.spec.packs import read_pack

KIT = Kit(pack=read_pack("standard", "scheduling", ""))


def live(policy: str, instance: Any) -> tuple[Position, list[Turn], list[bytes]]:
    found = find_policy(policy, "scheduling")
    assert found is not None
    play = found.reply
    assert play is not None
    position, turns, log = begin(SCHEDULING, instance, KIT), [], []
    while not position.ending:
        request = Request(
            messages=tuple(position.messages),
            tools=position.tools,
            sampling=SCHEDULING.defaults,
            seed=derive(policy, position.step),
        )
        reply = answer(policy, play, request)
        log.append(encode_reply(reply))
        turns.append(advance(SCHEDULING, position, reply, log[-1]))
    return position, turns, log


@pytest.mark.parametrize("policy", ["knuth", "noisy", "random"])
def test_logged_replies_reproduce_what_was_played(policy: str) -> None:
    for line in SCHEDULING.generate({"n": 8, "k": 2}, 2, 5):
        position, turns, log = live(policy, SCHEDULING.load(line))
        # A resume reads the instance anew, from its line.
        again = begin(SCHEDULING, SCHEDULING.load(line), KIT)
        replayed = [advance(SCHEDULING, again, decode_reply(data), data) for data in log]
        assert [turn.step_digest for turn in replayed] == [turn.step_digest for turn in turns]
        assert [turn.facts_bytes for turn in replayed] == [turn.facts_bytes for turn in turns]
        assert (again.ending, again.messages, again.request_digest) == (
            position.ending,
            position.messages,
            position.request_digest,
        )
        assert position.step == len(log) > 1


def test_a_resume_at_any_step_asks_the_same_request() -> None:
    (line,) = SCHEDULING.generate({"n": 8, "k": 2}, 1, 7)
    _, turns, log = live("noisy", SCHEDULING.load(line))
    for stop in range(0, len(log), 7):
        position = begin(SCHEDULING, SCHEDULING.load(line), KIT)
        for data in log[:stop]:
            advance(SCHEDULING, position, decode_reply(data), data)
        assert position.request_digest == turns[stop].request_digest
        assert (position.period, position.turn) == (turns[stop].period, turns[stop].turn)
