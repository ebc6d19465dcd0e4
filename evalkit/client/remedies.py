"""What a user can do about each kind of failure that a verdict names."""

import re
from collections.abc import Mapping

from evalkit.wire.dialect import MALFORMED_ARGUMENTS
from evalkit.wire.http import Verdict
from evalkit.wire.verdicts import UNREADABLE

_REMEDIES: Mapping[str, str] = {
    "bad_key": "Check the key in {key}.",
    "unknown_model": "Check the model name {model!r} and the url of provider {provider!r}.",
    "no_credit": "The account of provider {provider!r} has no credit left; top it up and run again.",
    "quota": "The quota of provider {provider!r} is used up; run again once it is renewed, or raise it.",
    "no_access": "The account of provider {provider!r} may not use {model!r} from here; see to that and run again.",
    "too_large": "Run again once the limits of the account at provider {provider!r} are raised, or with a lower "
    "`max_tokens`, which counts.",
    "tls": "The certificate of provider {provider!r} was not accepted; check its url and this machine's CA settings.",
    "proxy": "Check the environment's proxy and its credentials (https_proxy, http_proxy).",
    "redirect": "Correct the url of provider {provider!r}.",
    "not_supported": "Check the url and the dialect of provider {provider!r}.",
    "connect": "Check the url of provider {provider!r}, and this machine's network and proxy.",
    "unreadable": "Check the url and the dialect of provider {provider!r}, and any proxy or gateway on the way.",
    "bad_request": "Check `refuses` of {model!r} in the file of provider {provider!r}.",
    "rate_limit": "It works, but it is busy or a limit is reached: try again later.",
    "overload": "Try again later.",
    "server_error": "Try again later.",
}

_OF_THE_FILE = frozenset({"bad_request", "server_error"})
"""Kinds that a line of the provider's file may prevent. A server's chat template fails with a status of its own
errors."""
_FIELDS: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "topP": "top_p",
    "seed": "seed",
    "parallel_tool_calls": "parallel_calls",
    "tool_choice": "tool_choice",
    "reasoning_effort": "effort",
    "reasoning.effort": "effort",
    "reasoning.encrypted_content": "encrypted_reasoning",
    "stream_options": "stream_options",
}
"""Names of a request's fields -> what a provider's file says of a model that refuses them."""
_FIELD = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, sorted(_FIELDS, key=len, reverse=True))) + r")(?!\w)")
_NO_JSON = re.compile(
    r"expecting value|expecting ',' delimiter|expecting property name|expecting ':' delimiter|unterminated string"
    r"|invalid control character|invalid \\escape|extra data: line|json\.exception|as json|jsondecodeerror"
    r"|can only get item pairs from a mapping|has no (?:attribute|method) '?items|must be valid json|invalid json",
    re.IGNORECASE,
)
"""How JSON readers and chat templates complain about the arguments of an earlier call."""


_HISTORY: Mapping[re.Pattern[str], str] = {
    re.compile(r"unexpected role '?user'? after role '?tool|roles must alternate|invalid_request_message_order"): (
        'after_results = "bridged"'
    ),
    re.compile(r"reasoning_content\W.*(?:must be passed back|missing)|missing .?reasoning_content"): (
        'thinking_back = "always"'
    ),
    re.compile(r"reasoning_content\W.*(?:unsupported|not permitted|extra inputs)"): 'thinking_back = "never"',
    re.compile(r"tool call ids? (?:was|should be)\b.*length (?:of )?9"): 'refuses = ["call_ids"]',
}
"""How providers complain about what goes back of a chat, in lower case."""


def line_to_set(verdict: Verdict) -> str:
    """The line of a model's table in a provider's file that a refusal asks for; empty if it names none.

    >>> line_to_set(Verdict(action="end_episode", kind="bad_request", message="'temperature' must be 1."))
    'refuses = ["temperature"]'
    """
    message = verdict.message
    if verdict.kind not in _OF_THE_FILE:
        return ""
    if "max_completion_tokens" in message:
        return 'refuses = ["max_tokens"]'
    for said, line in _HISTORY.items():
        if said.search(message.lower()):
            return line
    named = sorted({_FIELDS[field] for field in _FIELD.findall(message)})
    if not named and _NO_JSON.search(message):
        named = [MALFORMED_ARGUMENTS]
    return "refuses = [" + ", ".join(f'"{name}"' for name in named) + "]" if named else ""


def with_remedy(verdict: Verdict, *, provider: str, model: str, key: str) -> str:
    """What went wrong, and what to do about it, in sentences. `key`: where the key comes from."""
    remedy, line = _REMEDIES.get(verdict.kind, ""), line_to_set(verdict)
    if line:
        remedy = "If that is why, write `{line}` for {model!r} into the file of provider {provider!r}."
    remedy = remedy.format(key=key, line=line, model=model, provider=provider)
    return f"{(verdict.message or verdict.kind).rstrip('.')}. {remedy}".rstrip()


def why_paid(lane: str, verdict: Verdict, provider: str, *, times: int, begun: bool, streamed: bool) -> str:
    """Why a lane ends after so many attempts that may have been billed, and what to do. `begun`: the last was a good
    answer that turned out to be no reply; `streamed`: whether it may have been a stream."""
    what = "answers in a row could not be read" if begun else "attempts in a row had no reply"
    stream = ' If its streams do not end as they should, set `stream = "off"` in its file.'
    return (
        f"{lane}: {times} {what}; the last one: {(verdict.message or verdict.kind).rstrip('.')}. "
        f"What they may have cost is charged. Check the url and the dialect of provider {provider!r}, "
        f"and any proxy or gateway on the way.{stream if streamed and verdict.kind not in UNREADABLE else ''}"
    )
