"""How the simulated provider counts tokens: four bytes per token, rounded up. `plan` counts the same way.

Real tokenizers differ by model, and evalkit does not guess them. This rule is monotone, exact and free, so that a
prediction and a bill can be compared to the token.
"""

from dataclasses import replace

from evalkit.dialogue import Reply

BYTES_PER_TOKEN = 4
_CALL_ENVELOPE_BYTES = 16
"""What a tool call costs beyond its name and arguments, about the braces and keys around them."""


def input_tokens(body_bytes: int) -> int:
    """Input tokens of a request whose body has that many bytes."""
    return -(-body_bytes // BYTES_PER_TOKEN)


def output_tokens(reply: Reply) -> int:
    """Output tokens of a reply: its reasoning, its text, and the names and arguments of its calls, as UTF-8. At least
    1."""
    size = _bytes(reply.text) + _bytes(reply.reasoning)
    for call in reply.calls:
        size += _bytes(call.name) + _bytes(call.arguments) + _CALL_ENVELOPE_BYTES
    return max(1, -(-size // BYTES_PER_TOKEN))


def is_far_beyond(reply: Reply, max_tokens: int) -> bool:
    """Whether a reply has more bytes than a model can write in that many tokens: it is none that was asked for."""
    size = _bytes(reply.text) + _bytes(reply.reasoning) + len(reply.opaque)
    size += sum(_bytes(call.name) + _bytes(call.arguments) for call in reply.calls)
    return size > most_bytes(max_tokens)


def most_bytes(max_tokens: int) -> int:
    """What `max_tokens` tokens and what a provider adds to them are at most, in bytes."""
    return LONGEST_TOKEN * max_tokens + _ADDED_BYTES


LONGEST_TOKEN = 128
"""Bytes of the longest token of the usual vocabularies, a run of blanks; the average is four."""
_ADDED_BYTES = 1 << 16
"""Signatures, encrypted thoughts and ids of a short reply."""


def cut(reply: Reply, max_tokens: int) -> Reply:
    """The reply as a provider that stops after `max_tokens` output tokens would have sent it.

    Text comes first, then the calls in order. The part that does not fit is cut in mid-word, arguments too, and
    everything after it is dropped; the finish reason is then `length`. A call without room for its name is dropped.
    """
    if output_tokens(reply) <= max_tokens:
        return reply
    room = max_tokens * BYTES_PER_TOKEN
    text = _first_bytes(reply.text, room)
    room -= _bytes(text)
    calls = []
    for call in reply.calls if text == reply.text else ():
        room -= _bytes(call.name) + _CALL_ENVELOPE_BYTES
        if room < 0:
            break
        arguments = _first_bytes(call.arguments, room)
        calls.append(replace(call, arguments=arguments))
        room -= _bytes(arguments)
        if arguments != call.arguments:
            break
    return replace(reply, text=text, calls=tuple(calls), finish="length")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _first_bytes(text: str, size: int) -> str:
    """The longest beginning of at most `size` UTF-8 bytes."""
    if text.isascii():
        return text[:size]
    # A character that the cut splits is dropped with its torn bytes; lone surrogates are kept as they are.
    raw = text.encode("utf-8", "surrogatepass")[:size]
    while raw:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as flaw:
            raw = raw[: flaw.start]
    return ""
