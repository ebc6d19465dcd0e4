"""All dialects by name: evalkit's own are listed here, one line each; others are found by their packages' entry
points."""

from evalkit.plugins import PluginTable
from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES
from evalkit.wire.clouds import ANTHROPIC_BEDROCK, ANTHROPIC_VERTEX, GEMINI_VERTEX
from evalkit.wire.dialect import Dialect
from evalkit.wire.gemini import GEMINI
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.openai_responses import OPENAI_RESPONSES

DIALECTS = PluginTable(
    "dialects",
    {
        "openai_chat": OPENAI_CHAT,
        "openai_responses": OPENAI_RESPONSES,
        "anthropic_messages": ANTHROPIC_MESSAGES,
        "gemini": GEMINI,
        "anthropic_bedrock": ANTHROPIC_BEDROCK,
        "anthropic_vertex": ANTHROPIC_VERTEX,
        "gemini_vertex": GEMINI_VERTEX,
    },
    Dialect,
)
