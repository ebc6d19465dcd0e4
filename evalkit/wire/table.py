"""All dialects by name: evalkit's own are listed here, one line each; others are found by their packages' entry
points."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from evalkit.plugins import PluginTable
from evalkit.wire.anthropic_messages import ANTHROPIC_MESSAGES, head
from evalkit.wire.anthropic_stream import ANTHROPIC_STREAM
from evalkit.wire.dialect import Dialect, bearer
from evalkit.wire.gemini import GEMINI
from evalkit.wire.openai_chat import OPENAI_CHAT
from evalkit.wire.openai_responses import OPENAI_RESPONSES

# Dialects as clouds speak them: Anthropic Messages on Amazon Bedrock and Google Vertex, and Gemini on Vertex.
#
# They differ in where things stand, and in nothing else: the path names the model, a field of the body the version of
# Anthropic's format, and a bearer token takes the place of the maker's own header. On Bedrock this is InvokeModel,
# whose streams have a framing of AWS's own, so it is not streamed; the format's streams on Vertex have a path of
# their own.
#
# Chosen: InvokeModel and not Converse. It serves all Claude models, by their inference profiles too, and its body is
# the format that is there already. Converse would add Bedrock's other models, in a format of its own.
#
# Source: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages.html,
# https://platform.claude.com/docs/en/api/claude-on-vertex-ai.

BEDROCK_VERSION = "bedrock-2023-05-31"
VERTEX_VERSION = "vertex-2023-10-16"


_CLOUDED = replace(ANTHROPIC_MESSAGES, headers=bearer, tier_field="", follows=frozenset())
ANTHROPIC_BEDROCK = replace(
    _CLOUDED,
    name="anthropic_bedrock",
    path="/model/{model}/invoke",
    head=partial(head, version=BEDROCK_VERSION),
    stream=None,
)
ANTHROPIC_VERTEX = replace(
    _CLOUDED,
    name="anthropic_vertex",
    path="/models/{model}:rawPredict",
    head=partial(head, version=VERTEX_VERSION),
    stream=replace(ANTHROPIC_STREAM, path="/models/{model}:streamRawPredict"),
)


def _vertex_tier(word: str) -> Mapping[str, str]:
    """Source: https://docs.cloud.google.com/vertex-ai/generative-ai/docs/flex-paygo; a tier without a word is what
    requests without these headers are served by. The second keeps it from capacity that was bought beforehand."""
    shared = {"X-Vertex-AI-LLM-Shared-Request-Type": word, "X-Vertex-AI-LLM-Request-Type": "shared"}
    return shared if word else {}


GEMINI_VERTEX = replace(
    GEMINI, name="gemini_vertex", headers=bearer, tier_field="", tier_headers=_vertex_tier, served_header=""
)


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
