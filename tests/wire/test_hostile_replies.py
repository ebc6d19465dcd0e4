"""Hostile replies through the whole way of each dialect: judged, read, logged, sent back. Total, linear, and what is
sent back is strict JSON whatever came."""

from collections.abc import Callable

import orjson
import pytest

from evalkit.dialogue import Message, Reply, Sampling
from evalkit.replies import decode_reply, encode_reply
from evalkit.wire.dialect import Dialect, Quirks
from evalkit.wire.http import HttpResponse
from tests.support.each_case import check_each
from tests.support.formats import FORMATS
from tests.support.growth import assert_linear
from tests.support.hostile_replies import BODIES, Maker

HOLE = b"@@"
"""Where a hostile value stands."""

REPLIES: dict[str, tuple[bytes, ...]] = {
    "openai_chat": (
        b'{"id":@@,"model":"m","choices":[{"message":{"content":"hi"}}]}',
        b'{"choices":[{"message":{"content":@@},"finish_reason":"stop"}]}',
        b'{"choices":[{"message":{"content":[{"text":@@},@@,"x"]}}]}',
        b'{"choices":[{"message":{"content":null,"tool_calls":[{"id":@@,"function":{"name":"f","arguments":"{}"}}]}}]}',
        b'{"choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":@@,"arguments":@@}},@@]}}]}',
        b'{"choices":[{"message":{"tool_calls":[{"extra_content":@@}],"reasoning_content":@@,"reasoning_details":@@}}]}',
        b'{"choices":[{"message":{"content":"a","refusal":@@},"finish_reason":@@}],"usage":{"prompt_tokens":@@}}',
        b'{"choices":[{"finish_reason":"error","error":@@,"message":{}}]}',
        b'{"choices":@@,"error":{"message":@@,"code":@@,"details":@@}}',
        b'{"choices":[@@],"usage":@@}',
    ),
    "openai_responses": (
        b'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":@@},@@]}]}',
        b'{"output":[{"type":"function_call","call_id":@@,"name":@@,"arguments":@@}],"usage":{"output_tokens":@@}}',
        b'{"output":[{"type":"reasoning","encrypted_content":@@,"summary":@@},{"type":"message","content":@@}]}',
        b'{"output":[{"type":@@,"id":@@}],"status":@@}',
        b'{"output":@@,"status":"failed","error":{"code":@@,"message":@@}}',
        b'{"status":"incomplete","incomplete_details":{"reason":@@},"output":[@@]}',
    ),
    "anthropic_messages": (
        b'{"content":[{"type":"text","text":@@}],"stop_reason":@@,"usage":@@}',
        b'{"content":[{"type":"tool_use","id":@@,"name":@@,"input":@@}],"usage":{"output_tokens":@@}}',
        b'{"content":[{"type":"thinking","thinking":@@,"signature":@@},{"type":"text","text":"x"},@@]}',
        b'{"content":@@,"type":"error","error":{"type":@@,"message":@@}}',
    ),
    "gemini": (
        b'{"candidates":[{"content":{"parts":[{"text":@@}]},"finishReason":@@}],"usageMetadata":@@}',
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"id":@@,"name":@@,"args":@@}}]}}]}',
        b'{"candidates":[{"content":{"parts":[{"text":"a","thoughtSignature":@@},{"text":@@,"thought":true},@@]}}]}',
        b'{"promptFeedback":{"blockReason":@@},"usageMetadata":{"promptTokenCount":@@}}',
        b'{"candidates":@@,"error":{"message":@@,"details":[{"violations":@@,"retryDelay":@@}]}}',
    ),
}
LEAVES = (
    *b'null true 0 -1 1e999 -1e999 NaN 1.5 1e-999 -0 "" "x" [] {} [[]]'.split(b" "),
    *(b'{"":0}', b'"\\ud800"', b'"\xff\x00"', b"123456789012345678901234567890", b"9" * 5000),
    *(b"[" * 300 + b"]" * 300, b'{"a":' * 260 + b"123456789012345678901" + b"}" * 260),
)
"""What may stand in a field."""


def gone_through(dialect: Dialect, status: int, body: bytes) -> Reply | None:
    """The reply, if it is one, after all that is done with it; asserts that what is sent back is strict JSON."""
    verdict, reply, _ = dialect.understand(HttpResponse(status=status, headers={}, body=body))
    assert (reply is not None) == (verdict.action == "accept")
    assert len(verdict.message) < 1000
    if reply is None:
        return None
    logged = decode_reply(encode_reply(reply))
    assert (logged.text, logged.calls, logged.opaque) == (reply.text, reply.calls, reply.opaque)
    parts: list[bytes] = []
    results = [Message(role="tool", text="42", call_id=call.id, name=call.name) for call in reply.calls]
    dialect.join(parts, [Message(role="user", text="hi"), logged.message(), *results])
    head = dialect.head("m", Sampling(), Quirks())
    orjson.loads(dialect.body(head, b"", parts, 1))
    assert min(reply.usage.input, reply.usage.output, reply.usage.reasoning) >= 0
    return reply


WAYS = [pytest.param(FORMATS[name], body, id=f"{name}-{n}") for name in REPLIES for n, body in enumerate(REPLIES[name])]


@pytest.mark.parametrize(("dialect", "body"), WAYS)
@pytest.mark.parametrize("status", [200, 500])
def test_any_value_in_any_field_is_a_reply_that_can_be_sent_back_or_a_verdict(
    dialect: Dialect, body: bytes, status: int
) -> None:
    for leaf in LEAVES:
        gone_through(dialect, status, body.replace(HOLE, leaf))
        for one in range(body.count(HOLE)):
            pieces = body.split(HOLE)
            filled = [leaf if place == one else b"123456789012345678901" for place in range(len(pieces) - 1)]
            gone_through(dialect, status, b"".join(a + b for a, b in zip(pieces, [*filled, b""], strict=True)))


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
@pytest.mark.parametrize("status", [0, 200, 204, 302, 400, 429, 500])
def test_any_body_has_a_verdict(dialect: Dialect, status: int) -> None:
    bodies = [(f"{name}, {size}", (make, size)) for name, make in BODIES.items() for size in (1, 1000, 70_000)]
    check_each(bodies, lambda body: gone_through(dialect, status, body[0](body[1])))


def within(body: bytes, make: Maker) -> Callable[[int], bytes]:
    """A reply with something that grows where its first hole is, as a text and as it is."""
    return lambda n: body.replace(HOLE, make(n), 1).replace(HOLE, b'"x"')


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
def test_the_whole_way_is_linear_in_any_body(dialect: Dialect) -> None:
    for name, make in BODIES.items():
        assert_linear(make, lambda body: gone_through(dialect, 200, body), what=name)
        assert_linear(make, lambda body: gone_through(dialect, 500, body), what=name)
        assert_linear(refused(make), lambda body: gone_through(dialect, 500, body), what=name)


def refused(make: Maker) -> Maker:
    """What strict JSON refuses at every size. Of an error's body only 64 kB are read: a longer one, cut off, would be
    read by the slower parser and compared with a short one that was not."""
    return lambda n: make(n) + b"!"


GROWING: dict[str, Maker] = {
    "a text": lambda n: b'"' + b"\\u00e9" * (n // 6) + b'"',
    "a list": lambda n: b"[" + b"{}," * (n // 3) + b"1]",
    "a list of big integers": lambda n: b"[" + b"123456789012345678901," * (n // 22) + b"1e999]",
    "members": lambda n: b"{" + b",".join(b'"%x":[]' % i for i in range(n // 10)) + b"}",
}


@pytest.mark.parametrize(("dialect", "body"), WAYS)
def test_the_whole_way_is_linear_in_any_field(dialect: Dialect, body: bytes) -> None:
    for name, make in GROWING.items():
        assert_linear(within(body, make), lambda body: gone_through(dialect, 200, body), what=name)


REPEATED: dict[str, tuple[bytes, bytes, bytes]] = {
    "openai_chat": (
        b'{"choices":[{"message":{"tool_calls":[',
        b'{"id":"c","function":{"name":"f"},"extra_content":1},',
        b"0]}}]}",
    ),
    "openai_responses": (b'{"output":[', b'{"type":"function_call","call_id":"c"},{"type":"web"},', b"0]}"),
    "anthropic_messages": (
        b'{"content":[',
        b'{"type":"tool_use","id":"c"},{"type":"thinking"},{"type":"text","text":"a"},',
        b"0]}",
    ),
    "gemini": (
        b'{"candidates":[{"content":{"parts":[',
        b'{"functionCall":{"id":"call_1"},"x":1},{"thought":true},{"text":"a"},',
        b"0]}}]}",
    ),
}


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=list(FORMATS))
def test_very_many_calls_of_one_id_are_linear(dialect: Dialect) -> None:
    before, piece, after = REPEATED[dialect.name]

    def make(n: int) -> bytes:
        return before + piece * max(1, n // len(piece)) + after

    assert gone_through(dialect, 200, make(10_000)) is not None
    assert_linear(make, lambda body: gone_through(dialect, 200, body), last=2**14)
