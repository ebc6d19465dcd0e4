"""Whether a refused request is the model's doing: one table, by the kind of its verdict.

Only what the model did is scored. A refusal leaves its episode unscored and owed, unless the table says that the model
caused it, and the suite counts such a kind. `docs/statistics.md` has the same table for readers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

CONTEXT_LENGTH, CONTENT_FILTER = "context_length", "content_filter"


@dataclass(frozen=True, slots=True)
class ModelsPart:
    """What speaks for the model having caused a kind of refusal."""

    by_default: bool
    """Whether a suite that says nothing counts it."""
    why: str


MODELS_PART: Mapping[str, ModelsPart] = {
    CONTEXT_LENGTH: ModelsPart(
        True,
        # CostBench's reference ends an episode at any failed request and scores what it holds (spec, request loop);
        # EconAgentBench keeps whole histories. A chat that was accepted before has grown by what the model did.
        "the provider took an earlier request of the episode, so the conversation has outgrown the window",
    ),
    CONTENT_FILTER: ModelsPart(
        False,
        # Azure, OpenAI, Anthropic: the filter reads the whole prompt, of which the benchmark wrote a part.
        "the provider took an earlier request of the episode, so what was added since may have met the filter",
    ),
}
"""Kinds that may be the model's doing, each only after a request of the same episode was answered. All others never
are: their cause is a setting, an account, the history as evalkit wrote it, or the provider."""

COUNTED = tuple(kind for kind, part in MODELS_PART.items() if part.by_default)
"""What a suite counts as the model's doing if its sweep does not say."""


def is_models_doing(kind: str, counted: Collection[str], *, answered: bool) -> bool:
    """Whether a refusal ends its episode as the model's doing. `counted`: the kinds that its suite counts; `answered`:
    whether a request of the episode was answered before."""
    return answered and kind in MODELS_PART and kind in counted
