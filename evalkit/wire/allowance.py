"""The remaining rate limits that a provider's headers state. Pure; `client/` decides what follows from it.

Source: OpenAI's `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, which most compatible servers copied.
`reset` is the time until the limit is full again, as `6m0s`, `1.5s`, `120ms` or plain seconds; with some servers it is
the moment, in Unix time (docs.digitalocean.com, of its inference), which is measured against the response's own date.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

# Durations as servers state them. Every text becomes a finite number of seconds, from 0 to a month, or None.
#
# Pure: a moment is measured against the response's own `Date`, so no clock is read here and no skew matters.

LONGEST_S = 31 * 86_400.0
"""No limit lasts longer than a month; a longer duration counts as a month."""

_NUMBER = re.compile(r"([+-]?[0-9]++(?:\.[0-9]*+)?)((?:[eE][+-]?[0-9]{1,9})?)")
_PART = re.compile(r"([0-9]++(?:\.[0-9]++)?)(ms|s|m|h|d|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_NUMBER_CHARS = 1000
"""Only this many digits of a longer number are read: it is beyond all bounds, or more exact than a float."""


def bounded_s(seconds: float) -> float:
    """The duration within its bounds; anything that is not a number counts as the longest."""
    return max(0.0, seconds) if seconds < LONGEST_S else LONGEST_S


def seconds_of(text: str | None, unit_s: float = 1.0) -> float | None:
    """A number of units as seconds; None if the text is not a number. `nan` and `inf` are not numbers."""
    match = _NUMBER.fullmatch("" if text is None else text.strip(" \t"))
    return bounded_s(float(match[1][:_NUMBER_CHARS] + match[2]) * unit_s) if match else None


def span_of(text: str) -> float | None:
    """`1h2m3.5s`, `120ms` or plain seconds as seconds; None for any other text."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return bounded_s(sum(float(number[:_NUMBER_CHARS]) * _SECONDS[unit] for number, unit in parts))


_UNIX = re.compile(r"([0-9]{10,19})(?:\.[0-9]*)?")
_SPOKEN = re.compile(
    r"(?:again|retry(?:ing)?|wait|available|renewed|reset\w*) (?:in|after|for|about|at least)? ?"
    r"((?:[0-9]++(?:\.[0-9]++)?\s?(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)\b\s?)++"
    r"|(?:[0-9]++(?:\.[0-9]++)?(?:ms|s|m|h|d))++)"
)
_SPOKEN_PART = re.compile(r"([0-9.]++)\s?(ms|milli|s|m|h|d)")


def unix_of(text: str | None) -> datetime | None:
    """A moment as Unix time, in seconds, or in thousandths, millionths or billionths of them; None if the text is not
    one. A moment of this century has as many digits as no duration has."""
    found = _UNIX.fullmatch("" if text is None else text.strip(" \t"))
    if found is None:
        return None
    digits = found[1]
    unit = next((unit for size, unit in ((10, 0), (13, 3), (16, 6), (19, 9)) if len(digits) == size), None)
    return None if unit is None else datetime.fromtimestamp(int(digits) // 10**unit, UTC)


def spoken_wait_s(message: str) -> float | None:
    """Seconds that a sentence in lower case asks to wait (`try again in 9m38.016s`); None if it does not."""
    found = _SPOKEN.search(message)
    if found is None:
        return None
    seconds = {"milli": 0.001, **_SECONDS}
    parts = [(number.rstrip("."), unit) for number, unit in _SPOKEN_PART.findall(found[1])]
    return bounded_s(sum(float(number[:_NUMBER_CHARS]) * seconds[unit] for number, unit in parts))


def date_of(text: str | None) -> datetime | None:
    """A moment as headers write it (RFC 9110); None if the text is not one, or has no time zone."""
    from email.utils import parsedate_to_datetime  # a fiftieth of a second, which most commands have no use for

    try:
        moment = parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None
    return moment if moment is None or moment.tzinfo else None


def instant_of(text: str | None) -> datetime | None:
    """A moment as RFC 3339 writes it; None if the text is not one, or has no time zone."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except (ValueError, OverflowError):
        return None
    return moment if moment is None or moment.tzinfo else None


def until_s(moment: datetime | None, now: datetime | None) -> float | None:
    """Seconds from one moment to another, 0 if it is past; None if one of them is unknown."""
    return None if moment is None or now is None else bounded_s((moment - now).total_seconds())


_FIGURE = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """One limit, as a response reported it."""

    limit: float
    remaining: float
    reset_s: float
    """Seconds until `remaining` is `limit` again without further requests, at most `durations.LONGEST_S`."""


def part_of(allowance: Allowance, part: float) -> Allowance:
    """What one of several processes may use of it."""
    return replace(allowance, limit=part * allowance.limit, remaining=part * allowance.remaining)


def read_allowances(headers: Mapping[str, str]) -> tuple[Allowance | None, Allowance | None]:
    """(requests, tokens); None if the headers do not state them, or are not valid."""
    return _read(headers, "requests"), _read(headers, "tokens")


def _read(headers: Mapping[str, str], what: str) -> Allowance | None:
    reset = headers.get(f"x-ratelimit-reset-{what}")
    if not reset:
        return None
    moment = unix_of(reset)
    reset_s = span_of(reset) if moment is None else until_s(moment, date_of(headers.get("date")))
    if reset_s is None or (moment is not None and reset_s == LONGEST_S):  # no moment at which a limit is renewed
        return None
    limit, remaining = headers.get(f"x-ratelimit-limit-{what}", ""), headers.get(f"x-ratelimit-remaining-{what}", "")
    return checked_allowance(limit, remaining, reset_s)


def checked_allowance(limit: str, remaining: str, reset_s: float) -> Allowance | None:
    """An allowance from figures that are strings; None if they are not valid: a limit below 1 would admit nothing."""
    if not _FIGURE.fullmatch(limit) or not _FIGURE.fullmatch(remaining):
        return None
    most, left = float(limit), float(remaining)
    return Allowance(limit=most, remaining=left, reset_s=reset_s) if most >= 1 and left <= most else None
