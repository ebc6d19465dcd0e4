"""All dialects by name. A plain table: adding a dialect is adding a file and a line here."""

from collections.abc import Mapping

from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES
from evalkit.wire.dialect import Dialect
from evalkit.wire.gemini import GEMINI
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.openai_responses import OPENAI_RESPONSES

DIALECTS: Mapping[str, Dialect] = {
    "openai_chat": OPENAI_CHAT,
    "openai_responses": OPENAI_RESPONSES,
    "anthropic_messages": ANTHROPIC_MESSAGES,
    "gemini": GEMINI,
}
