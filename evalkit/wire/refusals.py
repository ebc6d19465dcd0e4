"""Whether a refused request is the model's doing: one table, by the kind of its verdict.

Only what the model did is scored. A refusal leaves its episode unscored and owed, unless the table says that the model
caused it. `docs/statistics.md` has the same table for readers.
"""

from collections.abc import Mapping

CONTEXT_LENGTH, CONTENT_FILTER = "context_length", "content_filter"

MODELS_PART: Mapping[str, str] = {
    # CostBench's reference ends an episode at any failed request and scores what it holds (spec, request loop);
    # EconAgentBench keeps whole histories. A chat that was accepted before has grown by what the model did.
    CONTEXT_LENGTH: "the provider took an earlier request of the episode, so the conversation has outgrown the window",
}
"""Kinds that are the model's doing after a request of the same episode was answered, each with what speaks for it. All
others never are: their cause is a setting, an account, the history as evalkit wrote it, or the provider. Nor is
`CONTENT_FILTER`: Azure's, OpenAI's and Anthropic's filters read the whole prompt, of which the benchmark wrote a
part."""


def is_models_doing(kind: str, *, answered: bool) -> bool:
    """Whether a refusal ends its episode as the model's doing. `answered`: whether a request of the episode was
    answered before."""
    return answered and kind in MODELS_PART
