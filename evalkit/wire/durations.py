"""How long a server says something takes. Whatever it writes is a finite number of seconds, from 0 to a month, or none.

Pure: a moment is measured against the response's own `Date`, so no clock is read here and no skew matters.
"""

import re
from datetime import datetime
from email.utils import parsedate_to_datetime

LONGEST_S = 31 * 86_400.0
"""No limit lasts longer than a month; more is taken to mean so much."""

_NUMBER = re.compile(r"([+-]?[0-9]++(?:\.[0-9]*+)?)((?:[eE][+-]?[0-9]{1,9})?)")
_PART = re.compile(r"([0-9]++(?:\.[0-9]++)?)(ms|s|m|h|d|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_NUMBER_CHARS = 1000
"""Of a longer number these count: it is beyond all bounds, or more exact than a float."""


def bounded_s(seconds: float) -> float:
    """The duration within its bounds; whatever is no number counts as the longest."""
    return max(0.0, seconds) if seconds < LONGEST_S else LONGEST_S


def seconds_of(text: str | None, unit_s: float = 1.0) -> float | None:
    """A number of units as seconds; None where the text is none. Words for no number (`nan`, `inf`) are none."""
    match = _NUMBER.fullmatch("" if text is None else text.strip(" \t"))
    return bounded_s(float(match[1][:_NUMBER_CHARS] + match[2]) * unit_s) if match else None


def span_of(text: str) -> float | None:
    """`1h2m3.5s`, `120ms` or plain seconds as seconds; None where it is no such text."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return bounded_s(sum(float(number[:_NUMBER_CHARS]) * _SECONDS[unit] for number, unit in parts))


def date_of(text: str | None) -> datetime | None:
    """A moment as headers write it (RFC 9110); None where the text is none, or says no time zone."""
    try:
        moment = parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None
    return moment if moment is None or moment.tzinfo else None


def instant_of(text: str | None) -> datetime | None:
    """A moment as RFC 3339 writes it; None where the text is none, or says no time zone."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except (ValueError, OverflowError):
        return None
    return moment if moment is None or moment.tzinfo else None


def until_s(moment: datetime | None, now: datetime | None) -> float | None:
    """Seconds from one moment to another, 0 where it is past; None where one of them is not known."""
    return None if moment is None or now is None else bounded_s((moment - now).total_seconds())
