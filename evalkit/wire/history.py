"""What a model wrote, in a form that its provider takes back.

A chat goes on only if the provider accepts what its model sent before: calls by names that no tool may have, ids that
are too long, a reply without a word. The log, the environment and the reports have what the model wrote; only the
request differs. Everything here is a function of the message alone, so equal chats give equal bytes, and a call and its
result, which are rewritten apart, still name each other.

- A name like `functions.f`, `multi_tool_use.parallel` or none: OpenAI, Azure, Mistral and Anthropic take
  `[a-zA-Z0-9_-]{1,64}`, Gemini dots and colons too. Source: semantic-kernel #4447, vercel/ai #1972; mistral-common,
  `validator.py`; https://ai.google.dev/api/caching#FunctionDeclaration.
- An id of more than 40 characters in Chat Completions, 64 in Responses: OpenAI, which has given longer ones itself.
  Source: dify #28987, camel #2215; Roo-Code PR #10763, dsh-plugin-subscriptions #29.
- An id that is not nine letters and digits: Mistral and its templates. Source: mistral-common,
  `MistralRequestValidatorV3`.
- A reply without content and calls: Mistral (code 3240), DeepSeek, Moonshot. Source: OpenHands #8685; ProxyAI #834,
  AstrBot #7721; kimi-code #1985.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import groupby

from evalkit.dialogue import Message
from evalkit.wire.fields import object_text

MALFORMED_ARGUMENTS = "malformed_arguments"
"""In `Quirks.refuses`: the server parses the arguments of earlier calls, because its models' templates want objects,
and fails at any other: a single cut call would end the chat."""
CALL_IDS = "call_ids"
"""In `Quirks.refuses`: it takes no ids of calls but those of nine letters and digits."""

NOTHING_SAID = "(no content)"
"""Stands for a reply without a word and without a call."""
UNNAMED = "unnamed"
"""Stands for an empty name."""

PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NINE = re.compile(r"[a-zA-Z0-9]{9}")

_LONGEST_NAME = 64
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def plain_name(name: str) -> str:
    """A tool's name of letters, digits, `_` and `-`: `functions.f` is `functions_f`."""
    if PLAIN_NAME.fullmatch(name):
        return name
    return _NOT_PLAIN.sub("_", name)[:_LONGEST_NAME] or UNNAMED


def fitting_id(own: str, fits: re.Pattern[str]) -> str:
    """A call's id, or one of nine letters and digits that is made from it, which every provider takes."""
    if fits.fullmatch(own):
        return own
    number = int.from_bytes(sha256(own.encode("utf-8", "surrogatepass")).digest()[:8])
    letters = []
    for _ in range(9):
        number, digit = divmod(number, len(_DIGITS))
        letters.append(_DIGITS[digit])
    return "".join(letters)


def words_of(message: Message) -> str:
    """What an agent's message says; never nothing, unless it has calls."""
    return message.text if message.calls or message.text.strip() else NOTHING_SAID


def returnable(message: Message, refused: frozenset[str]) -> Message:
    """The message for a model that refuses malformed arguments, or ids of other forms."""
    if refused.isdisjoint((MALFORMED_ARGUMENTS, CALL_IDS)):
        return message
    calls, call_id = message.calls, message.call_id
    if MALFORMED_ARGUMENTS in refused:
        calls = tuple([replace(call, arguments=object_text(call.arguments).decode()) for call in calls])
    if CALL_IDS in refused:
        calls = tuple([replace(call, id=fitting_id(call.id, NINE)) for call in calls])
        call_id = call_id and fitting_id(call_id, NINE)
    return replace(message, calls=calls, call_id=call_id)


# Turns, for formats with a separate field for the system text and one turn for all user messages between two replies:
# messages are merged as they join a chat, so that it is not repeated for every body.

SYSTEM = b"\x01"
"""What an encoded system text begins with: a byte that JSON never holds."""

_END = b"]}"
"""What a turn ends with: of its content, then of itself."""


def extend_turns(parts: list[bytes], encoded: Iterable[bytes], _quirks: object = None, *, user: bytes) -> None:
    """Append encoded messages to a chat's parts, in place: system texts to the first part, which contains all of them,
    and the user's content to the open turn. `user` is what each turn of the user's begins with.

    Adjacent messages are merged in one operation: a reply may have as many results as fit into its body.
    """
    for kind, run in groupby(encoded, key=lambda part: _kind_of(part, user)):
        pieces = list(run)
        if kind == "system":
            _add_system(parts, [piece[1:] for piece in pieces if piece[1:]])
        elif kind == "user":
            contents = [piece.removeprefix(user).removesuffix(_END) for piece in pieces]
            if parts and parts[-1].startswith(user):
                contents.insert(0, parts.pop().removeprefix(user).removesuffix(_END))
            parts.append(user + b",".join(contents) + _END)
        else:
            parts.extend(pieces)


def _kind_of(part: bytes, user: bytes) -> str:
    if part.startswith(SYSTEM):
        return "system"
    return "user" if part.startswith(user) else ""


def _add_system(parts: list[bytes], texts: list[bytes]) -> None:
    if parts and parts[0].startswith(SYSTEM):
        texts.insert(0, parts.pop(0)[1:])
    if texts:
        parts.insert(0, SYSTEM + b",".join(texts))
