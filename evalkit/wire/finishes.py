"""Why a reply ended, where a provider says so in a word of its own: which words tell of a failure of its own, and which
of a filter.

A reply that ended so is not what the model would have said: the attempt has failed, whatever text stands beside it. The
words that formats document for what a model does (`stop`, a call that it wrote badly, a refusal) are none.

Sources: docs.z.ai (`network_error`, `sensitive`), api-docs.deepseek.com (`insufficient_system_resource`), vLLM and
SGLang (`abort`), docs.cohere.com (`ERROR`, `ERROR_TOXIC`, `TIMEOUT`), ai.google.dev (`OTHER`, `MALFORMED_RESPONSE`; of
its filters `PROHIBITED_CONTENT`, `BLOCKLIST`, `RECITATION`, `SPII`); github.com/firebase/genkit/pull/6259,
github.com/UKGovernmentBEIS/inspect_ai/issues/1534.
"""

import re
from collections.abc import Mapping
from typing import Any

_FILTERED = re.compile(
    r"(?:content|safety|output|input)[ _-]?filter|sensitive|safety|toxic|moderat|policy|guardrail"
    r"|prohibited|blocklist|block_reason|blocked|recitation|spii|unsafe|harmful"
)
_FAILED = re.compile(
    r"error(?!_(?:toxic|limit))|abort|cancel|overload|time[ _-]?out|timed[ _-]?out|network|disconnect|unavailable"
    r"|interrupt|fail|exception|insufficient[ _-]system|rate[ _-]?limit|capacity|malformed_response"
)
_MODELS_OWN = ("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls")
_MOST_CHARS = 100


def odd(field: str, *ordinary: str) -> re.Pattern[bytes]:
    """Finds, in a body, a field that holds another word than the ordinary ones, or none."""
    known = "|".join(f'"{word}"' for word in ordinary)
    return re.compile(rf'"{field}"\s*+:\s*+(?!{known}|null)'.encode())


def is_filtered(word: Any) -> bool:
    """Whether a word says that a filter has ended the reply."""
    low = word.lower() if isinstance(word, str) else ""
    return bool(_FILTERED.search(low)) and not any(own in low for own in _MODELS_OWN)


def is_failure(word: Any) -> bool:
    """Whether a word says that the reply was ended by no doing of its model."""
    low = word.lower()[:_MOST_CHARS] if isinstance(word, str) else ""
    return bool(_FAILED.search(low)) and not is_filtered(low) and not any(own in low for own in _MODELS_OWN)


def failure_beside(word: Any, error: Any) -> Mapping[str, Any]:
    """The error of a reply that failed; empty if it did not. `word`: why it ended, or an object that says so; `error`:
    what the provider states beside."""
    if isinstance(error, dict) and any(error.get(name) for name in ("message", "code", "type", "status")):
        return error
    if isinstance(error, str) and error:
        return {"message": error}
    if isinstance(word, dict):  # SGLang's own form
        kind = word.get("type")
        status = {"code": word["status_code"]} if word.get("status_code") else {}
        return {"message": word.get("message") or kind, "type": kind, **status} if is_failure(kind) else {}
    return {"message": f"The provider ended the reply with {word!r}.", "type": word} if is_failure(word) else {}
