"""What to do about an outcome that is not a reply: one table over failure, status and the error's text.

Dialects share it: `judge` reads the spellings of an error that providers use. Pure: no clock is read (`allowance.py`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from evalkit.wire.allowance import date_of, seconds_of, spoken_wait_s, unix_of, until_s
from evalkit.wire.exhausted import Hopeless, row_of
from evalkit.wire.fields import object_of, text_of
from evalkit.wire.http import HttpResponse, Verdict
from evalkit.wire.lenient import MalformedReplyError, dumps_any, loads_lenient
from evalkit.wire.too_long import is_too_long
from evalkit.wire.unparsed import bad_call

ACCEPT = Verdict(action="accept", kind="ok")

LONGEST_WAIT_S = 86_400.0
"""A request to wait for more than a day counts as a day."""

UNREADABLE = frozenset({"unreadable", "oversize"})
"""Kinds of complete answers with a success status but without a reply. Their cost is unknown."""

_MESSAGE_CHARS = 500
_SHOWN_BYTES = 160
_ERROR_BYTES = 65_536
_WEIGHED_CHARS = 2000
"""Of a message, those whose words are looked at: what refuses a request says so at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorWords:
    """A provider's error body, as far as it could be read."""

    message: str = ""
    code: str = ""
    """Code, type, status and the reasons among its details, in lower case, separated by spaces."""
    wait_s: float | None = None
    """When to come back, if the body states it and no header does."""
    resets_at: datetime | None = None
    """When a limit is renewed, if the body states that."""

    @property
    def low(self) -> str:
        """The message's words in lower case."""
        return self.message[:_WEIGHED_CHARS].lower()


_DAILY = ("perday", "per_day")
"""In the names of quotas (Google) that are used up until the next day, whatever shorter wait the error speaks of."""
_RATES = ("rate_limit", "ratelimit", "quota", "perminute", "per_minute")
"""In the codes of a 429 that is about a rate."""
_PASSING = frozenset({407, 408, 409, 424, 425, 499})
_KEY_CODES = ("api_key_invalid", "failed_precondition", "no_db_connection")
"""With status 400: a key that does not exist, or one that may not be used here (Google: the place, no billing account;
a LiteLLM proxy looks unknown keys up in a database that it may not have)."""
_FILTER_CODES = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "moderation")
_FILTER_TEXTS = (
    "content management policy",
    "content policy",
    "content filtering policy",
    "flagged by moderation",
    "was flagged",
    "moderation",
)
_MODEL_CODES = ("model_not_found", "unknown_model", "invalid_model")
_MODEL_TEXTS = (
    "model not found",
    "is not a valid model",
    "unknown model",
    "unexpected model name format",
    "invalid model name",
    "model identifier is invalid",
    "with on-demand throughput isn",
)

_FAILURES: Mapping[str, Verdict] = {
    "reset": Verdict(action="retry", kind="reset", outcome="reset"),
    "timeout": Verdict(action="retry", kind="timeout", outcome="timeout"),
    "truncated": Verdict(action="retry", kind="truncated", outcome="truncated"),
    "oversize": Verdict(action="retry", kind="oversize", outcome="oversize"),
    "broken_off": Verdict(action="retry", kind="server_error", outcome="broken_off"),
    "connect": Verdict(action="retry", kind="connect", outcome="connect"),
    "tls": Verdict(action="end_lane", kind="tls", outcome="tls"),
}


def judge(response: HttpResponse) -> Verdict:
    """The verdict on a response whose error, if it is one, is written as most providers write it."""
    if response.status == 200 and not response.failure:
        return ACCEPT
    return verdict(response, _error_words(response.body) if response.status >= 300 else ErrorWords())


def accepted_with(response: HttpResponse, mark: bytes) -> Mapping[str, Any]:
    """The body of a response that `judge` accepts and that contains `mark`; empty for any other, or if it is not an
    object.

    `mark`: JSON of a text with its quotes. Within a text they would be escaped: most bodies need not be read twice.
    """
    if judge(response).action != "accept" or mark not in response.body:
        return {}
    try:
        value = loads_lenient(response.body)[0]
    except MalformedReplyError:
        return {}
    return value if isinstance(value, dict) else {}


def judge_error(response: HttpResponse, error: Mapping[str, Any], status: int, *, begun: bool) -> Verdict:
    """The verdict on an error that came in a body of status 200, as if it had come with a status of its own. `begun`:
    whether it cut a reply off."""
    body = dumps_any({"error": error})
    verdict = judge(replace(response, status=status, body=body))
    if status >= 500:  # it may have stated none
        verdict = _exhausted(body, limited=False) or verdict
        verdict = replace(verdict, outcome=str(status))
    return replace(verdict, outcome="broken_off") if begun else verdict


def unreadable(response: HttpResponse) -> Verdict:
    """The verdict on a complete response that should contain a reply but does not. Its words alone may refuse."""
    refused = _exhausted(response.body, limited=False) if response.body.lstrip().startswith(b"{") else None
    if refused is not None:
        return replace(refused, outcome="4xx")
    words = f"status {response.status} with {describe(response.body)} instead of a reply"
    return Verdict(action="retry", kind="unreadable", message=words, outcome="unreadable")


def describe(body: bytes) -> str:
    """What a body is, for people who expected something else."""
    start = body[:_ERROR_BYTES].lstrip()
    if not start:
        return "an empty body"
    if start.startswith(b"<"):
        title = _TITLE.search(start)
        return f"an HTML page ({_line(title[1])})" if title else f"a page of markup ({_line(start)})"
    try:
        loads_lenient(body)
    except MalformedReplyError:
        return f"text that is not JSON ({_line(start)})"
    return f"other JSON ({_line(start)})"


_TITLE = re.compile(rb"<title[^<>]*+>([^<]++)", re.IGNORECASE)


def _line(text: bytes) -> str:
    """The beginning, in one line."""
    words = " ".join(text[:_SHOWN_BYTES].decode("utf-8", "replace").split())
    return words + (" ..." if len(text) > _SHOWN_BYTES else "")


def _error_words(body: bytes) -> ErrorWords:
    """The error in its spellings: `error` as object or text, `message` or `detail` at the top, or plain text."""
    if body[:_ERROR_BYTES].lstrip().startswith(b"<"):
        return ErrorWords(message=describe(body))
    try:
        value = loads_lenient(body[:_ERROR_BYTES])[0]
    except MalformedReplyError:
        return ErrorWords(message=body[:500].decode("utf-8", "replace").strip())
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return ErrorWords(message=_words(value))
    error = value.get("error")
    inner = error if isinstance(error, dict) else object_of(value, "base_resp") or value
    said = (inner.get(name) for name in ("message", "detail", "msg", "status_msg"))
    message = next(filter(None, said), error if isinstance(error, str) else "")
    reasons, wait_s = _details(inner.get("details"))
    codes = [_words(inner[name]) for name in ("code", "type", "status", "status_code", "__type") if inner.get(name)]
    headers = object_of(object_of(inner, "metadata"), "headers")
    resets = {name.lower(): _words(text) for name, text in headers.items()}.get("x-ratelimit-reset")
    return ErrorWords(
        message=message if isinstance(message, str) else _words(message),
        code=" ".join(codes + reasons).lower()[:_WEIGHED_CHARS],
        wait_s=wait_s,
        resets_at=unix_of(resets),
    )


def _words(value: Any) -> str:
    """A value where text was expected: as JSON, since Python refuses to print deeply nested values."""
    return value if isinstance(value, str) else dumps_any(value).decode("utf-8", "replace")[:500]


def _details(details: Any) -> tuple[list[str], float | None]:
    """(reasons and names of the quotas that are used up, seconds to wait) of an error in Google's form."""
    reasons: list[str] = []
    wait_s: float | None = None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            violations = detail.get("violations")
            quotas = [quota for quota in violations if isinstance(quota, dict)] if isinstance(violations, list) else []
            reasons += filter(None, [text_of(detail, "reason"), *(text_of(quota, "quotaId") for quota in quotas)])
            asked_s = seconds_of(text_of(detail, "retryDelay").removesuffix("s"))
            wait_s = wait_s if asked_s is None else min(asked_s, LONGEST_WAIT_S)
    return reasons, wait_s


def verdict(response: HttpResponse, words: ErrorWords) -> Verdict:
    """The verdict on anything but a complete 200 response. Every status and failure has one.

    A refusal whose body was cut off is still that refusal, so a status that is an error outranks the failure.
    """
    status = response.status
    if response.failure and status < 300:
        base = _FAILURES[response.failure]
        return _say(base, None, response.detail or response.failure)
    text = words.message or response.detail or f"HTTP {status}"
    if 200 <= status < 300:
        return ACCEPT
    if status == 0:
        return _say(_FAILURES["reset"], None, text)
    drawn = bad_call(status, words.code, words.message)
    if drawn is not None:
        return drawn
    outcome = "broken_off" if response.failure == "broken_off" else str(status)
    return replace(_of_status(status, words, text, response.headers), outcome=outcome)


def _of_status(status: int, words: ErrorWords, text: str, headers: Mapping[str, str]) -> Verdict:
    low, wait_s = words.low, None
    if status in (408, 409, 424, 425, 429, 498, 499) or status >= 500:
        stated = (read_wait_s(headers), words.wait_s, until_s(words.resets_at, date_of(headers.get("date"))))
        wait_s = next((wait for wait in stated if wait is not None), spoken_wait_s(low) if status == 429 else None)
    limited = status in (429, 498)
    if limited and _has(words.code, _DAILY):
        return _ended(Verdict(action="end_lane", kind="quota", message=text), words)
    row = row_of(words.code, low if status < 500 else "", limited=limited) if status not in _PASSING else None
    if row is not None and (status < 500 or row.kind == "no_credit"):
        return _ended(Verdict(action=row.action, kind=row.kind, message=text), words)
    if status == 402:
        return _ended(Verdict(action="end_lane", kind="no_credit", message=text), words)
    if status == 429:
        named = _has(words.code, _RATES) or "rate limit" in low
        return Verdict(action="retry", kind="rate_limit", wait_s=wait_s, message=_short(text), names_limit=named)
    if status in (498, 503, 529):
        return Verdict(action="retry", kind="overload", wait_s=wait_s, message=_short(text))
    if status in (501, 505):
        return Verdict(action="end_lane", kind="not_supported", message=_short(text))
    if status >= 500 or status in (408, 409, 424, 425, 499):
        return Verdict(action="retry", kind="server_error", wait_s=wait_s, message=_short(text))
    return _of_refusal(status, words, text)


def _of_refusal(status: int, words: ErrorWords, text: str) -> Verdict:
    """3xx and the rest of 4xx: repeating the request would give the same answer."""
    low = words.low
    if status == 407:
        return Verdict(action="end_lane", kind="proxy", message=_short(text))
    if status == 401 or (status == 400 and _has(words.code, _KEY_CODES)):
        return Verdict(action="end_lane", kind="bad_key", message=_short(text))
    if _has(words.code, _FILTER_CODES) or (status in (400, 403) and _has(low, _FILTER_TEXTS)):
        return Verdict(action="end_episode", kind="content_filter", message=_short(text))
    if status == 403 and not _has(words.code, _MODEL_CODES):
        return Verdict(action="end_lane", kind="bad_key", message=_short(text))
    if status in (403, 404) or _has(words.code, _MODEL_CODES) or (status == 400 and _has(low, _MODEL_TEXTS)):
        return Verdict(action="end_lane", kind="unknown_model", message=_short(text))
    if status < 400:
        return Verdict(action="end_lane", kind="redirect", message=_short(text))
    if status in (405, 410):
        return Verdict(action="end_lane", kind="not_supported", message=_short(text))
    if status in (400, 413, 422) and is_too_long(words.code, low):
        return Verdict(action="end_episode", kind="context_length", message=_short(text))
    return Verdict(action="end_episode", kind="bad_request", message=_short(text))


def _exhausted(body: bytes, *, limited: bool) -> Verdict | None:
    """The verdict on a body that says, with whatever status, that no wait helps; None: it does not."""
    words = _error_words(body)
    row: Hopeless | None = row_of(words.code, words.low, limited=limited)
    if row is None or not words.message:
        return None
    return _ended(Verdict(action=row.action, kind=row.kind, message=words.message), words)


def _ended(verdict: Verdict, words: ErrorWords) -> Verdict:
    """The verdict in the provider's words, with the time at which its limit is renewed, if it says so."""
    at = words.resets_at
    until = f" (renewed at {at:%Y-%m-%d %H:%M} UTC)" if at is not None and verdict.kind == "quota" else ""
    return replace(verdict, message=_short(verdict.message).rstrip(".") + until if until else _short(verdict.message))


def read_wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds until the server wants to be asked again, if it said so: milliseconds, seconds, or a date."""
    retry_after, now = headers.get("retry-after"), date_of(headers.get("date"))
    moment = unix_of(retry_after)
    stated = (
        seconds_of(headers.get("retry-after-ms"), 0.001),
        seconds_of(retry_after) if moment is None else until_s(moment, now),
        until_s(date_of(retry_after), now),
    )
    waits = [wait_s for wait_s in stated if wait_s is not None]
    return min(next(filter(None, waits), 0.0), LONGEST_WAIT_S) if waits else None


def _has(text: str, any_of: tuple[str, ...]) -> bool:
    return any(word in text for word in any_of)


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + " ..."


def _say(base: Verdict, wait_s: float | None, text: str) -> Verdict:
    return Verdict(action=base.action, kind=base.kind, wait_s=wait_s, message=_short(text), outcome=base.outcome)
