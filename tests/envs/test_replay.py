from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, Tool
from evalkit.digests import chain_open, chain_turn, step_digest, texts_digest
from evalkit.envs.replay import Position, Turn, advance, again, begin
from tests.support.guessing_game import BOTH, GUESS_ONLY, GUESSING, KIT, Secret, calls, guess, hint, say

SECRET = Secret(value=7, family="odd")
REPLIES = st.one_of(
    st.integers(-2, 12).map(guess),
    st.just(hint()),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(say),
    st.just(calls(("hint", "{"), ("guess", '{"value": 3}'), ("guess", "[]"), ("fly", "{}"))),
)


def as_bytes(reply: Reply) -> bytes:
    return orjson.dumps([reply.text, [[call.name, call.arguments] for call in reply.calls]])


def play(replies: list[Reply]) -> tuple[Position, list[Turn]]:
    position = begin(GUESSING, SECRET, KIT)
    turns: list[Turn] = []
    for reply in replies:
        if position.ending:
            break
        turns.append(advance(GUESSING, position, reply, as_bytes(reply)))
    return position, turns


@given(st.lists(REPLIES, max_size=8))
def test_the_same_replies_give_the_same_digests(replies: list[Reply]) -> None:
    (here, one), (there, two) = play(replies), play(replies)
    assert [turn.step_digest for turn in one] == [turn.step_digest for turn in two]
    assert here == there
    assert [turn.step for turn in one] == list(range(len(one)))


@given(st.lists(REPLIES, min_size=1, max_size=8), st.data())
def test_another_reply_changes_every_digest_of_its_chat_from_there_on(
    replies: list[Reply], data: st.DataObject
) -> None:
    _, before = play(replies)
    at = data.draw(st.integers(0, len(before) - 1))
    other = [*replies[:at], say("something else entirely"), *replies[at + 1 :]]
    _, after = play(other)
    assert before[at].step_digest != after[at].step_digest
    assert before[at].request_digest == after[at].request_digest
    assert [turn.step_digest for turn in before[:at]] == [turn.step_digest for turn in after[:at]]


@given(st.lists(REPLIES, max_size=8))
def test_a_position_is_what_its_digest_says(replies: list[Reply]) -> None:
    """The definition read aloud: render the whole chat anew and digest it from its first request."""
    position = begin(GUESSING, SECRET, KIT)
    chat: list[tuple[tuple[Tool, ...], bytes | None, int]] = [(position.tools, None, len(position.messages))]
    for reply in replies:
        if position.ending:
            return
        turn = advance(GUESSING, position, reply, as_bytes(reply))
        if turn.new_chat:
            chat = []
        chat.append((position.tools, None if turn.new_chat else as_bytes(reply), len(position.messages)))
        if position.ending:
            return
        digest, offered, before = chain_open(position.messages[: chat[0][2]], chat[0][0]), chat[0][0], chat[0][2]
        for tools, data, length in chat[1:]:
            assert data is not None
            seen = position.messages[before + 1 : length]
            digest = chain_turn(digest, data, seen, None if tools == offered else tools)
            offered, before = tools, length
        assert position.request_digest == digest


def test_a_position_moves_through_chats() -> None:
    position = begin(GUESSING, SECRET, KIT)
    first = position.messages
    assert (position.tools, position.period, position.turn, position.ending) == (BOTH, 0, 0, "")
    turn = advance(GUESSING, position, hint(), b"1")
    assert position.messages is first
    assert [message.role for message in first] == ["system", "user", "assistant", "tool"]
    assert (position.tools, position.step, position.period, position.turn) == (GUESS_ONLY, 1, 0, 1)
    assert (turn.step, turn.period, turn.turn, turn.new_chat) == (0, 0, 0, False)
    turn = advance(GUESSING, position, guess(3), b"2")
    assert turn.new_chat
    assert position.messages is not first
    assert position.messages[1].text == "Attempt 1. Your last guess: 3."
    assert (position.tools, position.step, position.period, position.turn) == (BOTH, 2, 1, 0)
    turn = advance(GUESSING, position, guess(7), b"3")
    assert (turn.ending, position.ending, turn.new_chat) == ("stable", "stable", False)
    with pytest.raises(ValueError, match="ended \\(stable\\) before step 3"):
        advance(GUESSING, position, guess(7), b"3")


def test_a_row_is_covered_by_its_digest() -> None:
    position = begin(GUESSING, SECRET, KIT)
    asked = position.request_digest
    turn = advance(GUESSING, position, guess(3), b"reply")
    assert turn.request_digest == asked
    assert turn.facts_bytes == b'{"calls":[{"outcome":"ok","tool":"guess"}],"value":3}'
    # A new chat's opening is what the agent reads next, so it belongs to what the reply brought about.
    assert turn.observation_digest == texts_digest([*turn.messages, *position.messages])
    assert turn.step_digest == step_digest(asked, b"reply", turn.facts_bytes, turn.observation_digest)


def test_equal_tools_in_another_tuple_are_the_same_tools() -> None:
    afresh = replace(GUESSING, tools=lambda state: (*GUESSING.tools(state),))
    position, twin = begin(GUESSING, SECRET, KIT), begin(afresh, SECRET, KIT)
    for reply in (say("a"), guess(1), hint(), guess(2)):
        kept = twin.tools
        one, two = advance(GUESSING, position, reply, b"r"), advance(afresh, twin, reply, b"r")
        assert one.step_digest == two.step_digest
        assert twin.tools == position.tools
        if not two.new_chat and twin.tools == kept:
            assert twin.tools is kept
    assert position.request_digest == twin.request_digest


@given(st.lists(REPLIES, min_size=1, max_size=8))
def test_one_position_may_be_gone_on_from_twice(replies: list[Reply]) -> None:
    beginning = begin(GUESSING, SECRET, KIT, keep_facts=True)
    untouched = begin(GUESSING, SECRET, KIT, keep_facts=True)
    digests = []
    for position in (again(beginning), again(beginning)):
        played = []
        for reply in replies:
            if not position.ending:
                played.append(advance(GUESSING, position, reply, as_bytes(reply)).step_digest)
        digests.append(played)
    assert digests[0] == digests[1] == [turn.step_digest for turn in play(replies)[1]]
    assert beginning == untouched
