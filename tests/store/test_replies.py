import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall, Usage
from evalkit.errors import CorruptLogError
from evalkit.replies import decode_reply, encode_reply

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CALLS = st.lists(st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=TEXTS), max_size=3).map(tuple)
REPLIES = st.builds(Reply, text=TEXTS, calls=CALLS, finish=TEXTS, opaque=TEXTS.map(str.encode))


@given(REPLIES)
def test_a_reply_comes_back_as_it_was(reply: Reply) -> None:
    data = encode_reply(reply)
    assert decode_reply(data) == reply
    assert encode_reply(decode_reply(data)) == data


def test_the_form_is_fixed() -> None:
    reply = Reply(text="hé", calls=(ToolCall(id="1", name="f", arguments='{"a": 1}'),), finish="tool_calls")
    want = '{"calls":[["1","f","{\\"a\\": 1}"]],"finish":"tool_calls","text":"hé"}'
    assert encode_reply(reply) == want.encode()
    assert encode_reply(Reply(opaque=b"[1]")) == b'{"calls":[],"finish":"stop","opaque":"[1]","text":""}'


def test_what_a_reply_cost_is_no_part_of_it() -> None:
    dear = Reply(text="x", usage=Usage(input=5, output=7), model="m-2", fingerprint="f", response_id="r")
    assert encode_reply(dear) == encode_reply(Reply(text="x"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"calls":[],"finish":"stop"}',
        b'{"calls":{},"finish":"stop","text":""}',
        b'{"calls":[["a","b"]],"finish":"stop","text":""}',
        b'{"calls":[["a","b",1]],"finish":"stop","text":""}',
        b'{"calls":["abc"],"finish":"stop","text":""}',
        b'{"calls":[],"finish":null,"text":""}',
        b'{"calls":[],"finish":"stop","text":"","more":1}',
        b'{"calls":[],"finish":"stop","opaque":{},"text":""}',
        b'{"calls":[],"finish":"stop","text":"\xff"}',
    ],
)
def test_anything_else_is_a_damaged_log(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match="logged reply"):
        decode_reply(data)
