"""A dialect: OpenAI's chat completions, with the key in a header of its own and every text in capitals."""

from dataclasses import replace

from evalkit import Message
from evalkit.extend import OPENAI_CHAT


def loud(message: Message) -> bytes:
    """A message; what the user says is shouted."""
    if message.role == "user":
        message = replace(message, text=message.text.upper())
    return OPENAI_CHAT.encode_message(message)


def headers(key: str) -> dict[str, str]:
    """Who asks."""
    return {**OPENAI_CHAT.headers(key), "x-shout": "1"}


SHOUT = replace(OPENAI_CHAT, name="shout", encode_message=loud, headers=headers)
