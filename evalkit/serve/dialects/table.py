"""All served dialects by name. A plain table: serving another one is adding a file and a line here."""

from collections.abc import Mapping

from evalkit.serve.dialects.anthropic_messages import SERVED_ANTHROPIC_MESSAGES
from evalkit.serve.dialects.clouds import SERVED_ANTHROPIC_BEDROCK, SERVED_ANTHROPIC_VERTEX, SERVED_GEMINI_VERTEX
from evalkit.serve.dialects.gemini import SERVED_GEMINI
from evalkit.serve.dialects.openai_chat import SERVED_OPENAI_CHAT
from evalkit.serve.dialects.openai_responses import SERVED_OPENAI_RESPONSES
from evalkit.serve.dialects.served import ServedDialect

SERVED_DIALECTS: Mapping[str, ServedDialect] = {
    "openai_chat": SERVED_OPENAI_CHAT,
    "openai_responses": SERVED_OPENAI_RESPONSES,
    "anthropic_messages": SERVED_ANTHROPIC_MESSAGES,
    "gemini": SERVED_GEMINI,
    "anthropic_bedrock": SERVED_ANTHROPIC_BEDROCK,
    "anthropic_vertex": SERVED_ANTHROPIC_VERTEX,
    "gemini_vertex": SERVED_GEMINI_VERTEX,
}


def base_urls(host: str) -> list[str]:
    """A line a dialect: its base URL, and the one for its official SDK where that is another. `host`: `http://...`."""
    width = max(map(len, SERVED_DIALECTS))
    lines = []
    for name, served in SERVED_DIALECTS.items():
        own, theirs = host + served.base_path, host + served.sdk_path
        lines.append(f"{name:<{width}}  {own}" + ("" if own == theirs else f"  (its official SDK: {theirs})"))
    return lines
