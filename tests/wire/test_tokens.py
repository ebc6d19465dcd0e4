from hypothesis import given
from hypothesis import strategies as st

from evalkit.dialogue import Reply, ToolCall
from evalkit.wire.tokens import cut, input_tokens, output_tokens

TEXTS = st.text(max_size=40)
CALLS = st.lists(st.builds(ToolCall, id=st.just("c"), name=st.text(max_size=8), arguments=TEXTS), max_size=4)
REPLIES = st.builds(Reply, text=TEXTS, calls=CALLS.map(tuple))


def size(reply: Reply) -> int:
    """UTF-8 bytes of all that counts, read aloud."""
    parts = [reply.text, *(call.name + call.arguments for call in reply.calls)]
    return sum(len(part.encode("utf-8")) for part in parts) + 16 * len(reply.calls)


def test_four_bytes_are_a_token_rounded_up() -> None:
    assert [input_tokens(size) for size in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]
    assert output_tokens(Reply()) == 1
    assert output_tokens(Reply(text="абвгд")) == 3


@given(REPLIES)
def test_output_tokens_are_those_of_the_definition(reply: Reply) -> None:
    assert output_tokens(reply) == max(1, -(-size(reply) // 4))


@given(REPLIES, st.integers(1, 60))
def test_a_cut_reply_is_the_longest_beginning_that_fits(reply: Reply, most: int) -> None:
    found = cut(reply, most)
    assert output_tokens(found) <= most
    if output_tokens(reply) <= most:
        assert found == reply
        return
    assert found.finish == "length"
    assert reply.text.startswith(found.text)
    whole = found.calls[:-1]
    assert whole == reply.calls[: len(whole)]
    if found.calls:
        last, was = found.calls[-1], reply.calls[len(whole)]
        assert (last.id, last.name) == (was.id, was.name)
        assert was.arguments.startswith(last.arguments)
    if found.text != reply.text:
        assert not found.calls
        # One more character would not have fitted.
        assert len(reply.text[: len(found.text) + 1].encode("utf-8")) > 4 * most


def test_lone_surrogates_are_counted_and_cut_like_any_character() -> None:
    reply = Reply(text="\ud800" * 10)
    assert output_tokens(reply) == 8
    assert cut(reply, 2).text == "\ud800" * 2
