from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.wire import lenient
from evalkit.wire.lenient import DEPTH, MOST_PARTS, MalformedReplyError, dumps_any, loads_lenient
from tests.support.each_case import check_each
from tests.support.growth import assert_linear
from tests.support.hostile_replies import BODIES


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":"\\ud800x"}', {"a": "\ufffdx"}),
        (b'{"a":"\\ud83d\\ude00"} trailing', {"a": "\U0001f600"}),
        (b'{"a":"\xff\xfe"}', {"a": "\ufffd\ufffd"}),
        (b'{"a":1e999}', {"a": float("inf")}),
        (b'{"a":-Infinity}', {"a": float("-inf")}),
        (b'{"a":"\x01"}', {"a": "\x01"}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'{"\\udfff":0}\n\n: keep-alive', {"\ufffd": 0}),
    ],
)
def test_what_strict_json_refuses_is_read_with_replacement(body: bytes, value: object) -> None:
    assert loads_lenient(body) == (value, True)


def test_nan_is_read_and_said_to_be_lenient() -> None:
    value, lenient = loads_lenient(b'{"a":NaN}')
    assert lenient
    assert value["a"] != value["a"]


def test_numbers_of_any_length_are_read() -> None:
    value, lenient = loads_lenient(b'{"a":NaN,"b":%s,"c":123456789012345678901234567890}' % (b"9" * 5000))
    assert lenient
    assert value["b"] == float("inf")
    assert value["c"] == 123456789012345678901234567890
    assert b"123456789012345678901234567890" in dumps_any(value)


@pytest.mark.parametrize("depth", [DEPTH + 1, 5_000, 200_000])
def test_what_is_nested_too_deep_is_cut_off_and_the_rest_kept(depth: int) -> None:
    body = b'{"text":"a \\" [[[ b","deep":%s%s,"after":[1,{"x":2}]}' % (b"[" * depth, b"]" * depth)
    value, _ = loads_lenient(b"\xef\xbb\xbf" + body)
    assert value["text"] == 'a " [[[ b'
    assert value["after"] == [1, {"x": 2}]
    inner, levels = value["deep"], 0
    while inner:
        inner, levels = inner[0], levels + 1
    assert levels < DEPTH


@given(st.text('[]{}"\\1, ', max_size=40), st.integers(0, 3))
def test_a_text_is_cut_where_its_depth_is_counted_bracket_by_bracket(text: str, depth: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lenient, "DEPTH", depth)
        assert lenient._cut_depth(text) == cut_by_definition(text, depth)


def cut_by_definition(text: str, most: int) -> str:
    """The text up to the end of its first value; null stands for what is deeper."""
    kept, depth, place = "", 0, 0
    while place < len(text):
        char, end = text[place], place + 1
        if char == '"':
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            end += 1
        depth += char in "[{"
        if depth <= most:
            kept += text[place:end]
        elif depth == most + 1 and char in "[{":
            kept += "null"
        depth -= char in "]}"
        if char in "]}" and depth <= 0:
            return kept + text[end:]
        place = end
    return kept


@pytest.mark.parametrize("body", [b"", b"   ", b"<html>502</html>", b'{"a":', b"[" * 100_000, b'{"a":"' + b"x" * 100])
def test_a_body_that_does_not_hold_a_value_is_no_reply(body: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        loads_lenient(body)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_strict_and_lenient_reading_agree_where_both_apply(value: object) -> None:
    body = orjson.dumps(value)
    strict, lenient = loads_lenient(body)
    assert not lenient
    again, was_lenient = loads_lenient(b"\xef\xbb\xbf" + body)
    assert was_lenient
    assert again == strict


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_that_can_be_written_again_or_no_reply(body: bytes) -> None:
    try:
        value, _ = loads_lenient(b'{"a":' + body)
    except MalformedReplyError:
        return
    assert dumps_any(value)


def test_what_json_has_no_word_for_is_null_also_beside_an_integer_beyond_64_bits() -> None:
    body = b'{"big":123456789012345678901234567890,"much":[1e999,-1e999,NaN],"some":1.5}'
    written = dumps_any(loads_lenient(body)[0])
    assert written == b'{"big":123456789012345678901234567890,"much":[null,null,null],"some":1.5}'
    assert b"null" in dumps_any([1e999])


@pytest.mark.parametrize("depth", [150, 253, 254, 260, 900, 1000])
def test_whatever_strict_json_reads_can_be_written_however_deep(depth: int) -> None:
    value, _ = loads_lenient(b"[" * depth + b"]" * depth)
    assert loads_lenient(dumps_any(value))
    value, _ = loads_lenient(b'{"big":123456789012345678901234567890,"deep":%s%s}' % (b"[" * depth, b"]" * depth))
    assert loads_lenient(dumps_any(value))


def test_a_body_of_too_many_parts_is_no_reply_and_one_with_as_many_in_a_text_is() -> None:
    with pytest.raises(MalformedReplyError, match="more than 262144 objects, lists and members; it starts"):
        loads_lenient(b"[" + b"[]," * MOST_PARTS + b"1]")
    with pytest.raises(MalformedReplyError, match="more than 262144"):
        loads_lenient(b"{%s}" % b",".join(b'"%d":1' % i for i in range(MOST_PARTS + 1)))
    text = '[{:" \\' * MOST_PARTS
    assert loads_lenient(orjson.dumps({"a": text})) == ({"a": text}, False)
    assert loads_lenient(b"[" + b"1," * (2 * MOST_PARTS) + b"1]")[0][-1] == 1


def test_reading_and_writing_are_linear_in_any_body() -> None:
    def read(body: bytes) -> None:
        with suppress(MalformedReplyError):
            dumps_any(loads_lenient(body)[0])

    check_each(BODIES.items(), lambda make: assert_linear(make, read))
