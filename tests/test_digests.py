from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Message, Tool, ToolCall
from evalkit.digests import SIZE, chain_open, chain_turn, step_digest, texts_digest

CALL = ToolCall(id="a", name="go", arguments="{}")
MESSAGE = Message(role="assistant", text="x", calls=(CALL,), call_id="", opaque=b"{}")
TOOL = Tool(name="go", description="Goes.", parameters={"type": "object", "properties": {}})


@pytest.mark.parametrize(
    "other",
    [
        replace(MESSAGE, role="user"),
        replace(MESSAGE, text="y"),
        replace(MESSAGE, call_id="a"),
        replace(MESSAGE, opaque=b"[]"),
        replace(MESSAGE, calls=()),
        replace(MESSAGE, calls=(CALL, CALL)),
        replace(MESSAGE, calls=(replace(CALL, id="b"),)),
        replace(MESSAGE, calls=(replace(CALL, name="ago", arguments="{"),)),
    ],
)
def test_a_message_counts_in_all_its_parts(other: Message) -> None:
    assert texts_digest([MESSAGE]) != texts_digest([other])
    assert chain_open([MESSAGE], [TOOL]) != chain_open([other], [TOOL])
    assert chain_turn(b"p", b"r", [MESSAGE], None) != chain_turn(b"p", b"r", [other], None)


@pytest.mark.parametrize(
    "tools",
    [[], [TOOL, TOOL], [replace(TOOL, name="goes")], [replace(TOOL, parameters={"type": "object"})]],
)
def test_tools_count_where_they_are_sent(tools: list[Tool]) -> None:
    assert chain_open([MESSAGE], tools) != chain_open([MESSAGE], [TOOL])
    assert chain_turn(b"p", b"r", [], tools) != chain_turn(b"p", b"r", [], [TOOL])
    assert chain_turn(b"p", b"r", [], tools) != chain_turn(b"p", b"r", [], None)


def test_the_order_of_keys_in_a_schema_does_not_count() -> None:
    turned = replace(TOOL, parameters={"properties": {}, "type": "object"})
    assert chain_open([], [turned]) == chain_open([], [TOOL])


@given(st.lists(st.binary(max_size=4), min_size=4, max_size=4), st.lists(st.binary(max_size=4), min_size=4, max_size=4))
def test_no_two_rows_share_a_digest(one: list[bytes], two: list[bytes]) -> None:
    first, second = step_digest(*one), step_digest(*two)
    assert (first == second) == (one == two)
    assert len(first) == SIZE


def test_no_reply_is_not_an_empty_reply() -> None:
    assert step_digest(b"q", None, b"f", b"o") != step_digest(b"q", b"", b"f", b"o")


def test_texts_move_between_messages_with_a_trace() -> None:
    assert texts_digest([Message(role="user", text="ab"), Message(role="user", text="c")]) != texts_digest(
        [Message(role="user", text="a"), Message(role="user", text="bc")]
    )
    assert len(texts_digest([Message(role="user", text="\ud800")])) == SIZE
