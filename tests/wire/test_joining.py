"""A message joins its chat once: what was joined before stays as it is, and how a chat came together does not show."""

import tracemalloc

import pytest

from evalkit.dialogue import Message, Sampling, Tool, ToolCall
from evalkit.wire.dialect import Dialect, Quirks, splice
from tests.support.formats import FORMATS
from tests.support.growth import assert_linear

TOOL = Tool(name="lookup", description="", parameters={"type": "object"})
OPENING = (Message(role="system", text="Be brief."), Message(role="user", text="Begin."))


def turn(number: int) -> tuple[Message, ...]:
    calls = tuple(ToolCall(id=f"c{number}_{place}", name="lookup", arguments="{}") for place in range(2))
    results = tuple(Message(role="tool", text="42", call_id=call.id) for call in calls)
    return (Message(role="assistant", calls=calls), *results, Message(role="user", text="Prices changed."))


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
def test_a_turn_leaves_all_parts_of_earlier_turns_as_they_are(dialect: Dialect) -> None:
    parts: list[bytes] = []
    dialect.join(parts, OPENING)
    for number in range(5):
        before = list(parts)
        dialect.join(parts, turn(number))
        assert all(now is then for now, then in zip(parts, before, strict=False))
        assert len(parts) > len(before)


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
def test_a_chat_joined_turn_by_turn_is_the_chat_joined_at_once(dialect: Dialect) -> None:
    head, tools = dialect.head("m", Sampling(), Quirks()), dialect.encode_tools([TOOL])
    singly: list[bytes] = []
    dialect.join(singly, OPENING)
    said = list(OPENING)
    for number in range(4):
        said += turn(number)
        for message in turn(number):
            dialect.join(singly, (message,))
        whole: list[bytes] = []
        dialect.join(whole, said)
        body = dialect.body(head, tools, singly, 7)
        assert body == dialect.body(head, tools, whole, 7)
        assert dialect.body(head, tools, singly, 7) == body, "making a body changed its parts"


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
def test_a_chat_holds_little_more_memory_than_its_bytes(dialect: Dialect) -> None:
    said = [turn(number) for number in range(200)]
    parts: list[bytes] = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for messages in said:
            dialect.join(parts, messages)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 2 * sum(map(len, parts)) + 100 * len(parts)  # an empty `bytes` takes 33 bytes, and its place 8


@pytest.mark.parametrize(
    ("parts", "whole"), [([], b"[]"), ([b"1"], b"[1]"), ([b"1", b"2"], b"[1,2]"), ([b"1", b"2", b"3"], b"[1,2,3]")]
)
def test_parts_are_spliced_with_commas(parts: list[bytes], whole: bytes) -> None:
    given = list(parts)
    assert splice(b"[", parts, b"]") == whole
    assert parts == given


def many_calls(n: int) -> tuple[Message, ...]:
    """A reply of about n bytes of calls in an order of its own, and their results."""
    calls = tuple(ToolCall(id=f"c{place}", name="f", arguments="{}") for place in range(max(1, n // 40)))
    blocks = ",".join(["null"] * len(calls))
    pairs = ",".join(["[null,null]"] * len(calls))
    layout = {"anthropic_messages": f'[{{"type":"thinking"}},{blocks}]', "gemini": f'[{{"thought":true}},{pairs}]'}
    return (
        *(Message(role="assistant", calls=calls, opaque=opaque.encode()) for opaque in layout.values()),
        *(Message(role="tool", text="no such tool", call_id=call.id, name="f") for call in calls),
    )


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
def test_a_reply_of_very_many_calls_joins_in_linear_time(dialect: Dialect) -> None:
    place = {"anthropic_messages": 0, "gemini": 1}.get(dialect.name)

    def join(messages: tuple[Message, ...]) -> None:
        said = messages[2:] if place is None else (messages[place], *messages[2:])
        parts: list[bytes] = []
        dialect.join(parts, OPENING)
        dialect.join(parts, said)

    assert_linear(many_calls, join, last=2**14)
