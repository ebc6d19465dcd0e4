"""Which night it is: the UTC date on which it began. No daylight saving time moves it."""

from collections.abc import Sequence
from datetime import UTC, date, datetime

from evalkit.errors import UsageError

RESUMED_WITHIN_S = 12 * 3600.0
"""A night that was killed can be resumed until this long after it began, also after midnight."""


def parse_date(text: str) -> str:
    """`2026-11-21`. Raises UsageError."""
    try:
        parsed = date.fromisoformat(text).isoformat()
    except ValueError:
        parsed = ""
    if parsed != text:
        raise UsageError(f"--date: {text!r} is not a date: write it as 2026-11-21.")
    return parsed


def utc_date(now: float) -> str:
    """The UTC date of a time in seconds since 1970."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def tonight(nights: Sequence[str], now: float, *, cut_short_at: float | None, asked: str | None, folder: str) -> str:
    """The night to play.

    nights        those that there are, in order
    now           seconds since 1970
    cut_short_at  when the last night began, if it was cut short (killed, interrupted); None if it was not
    asked         the date that the user gave; None: the clock's

    Raises UsageError for a night before the last one.
    """
    last = nights[-1] if nights else ""
    if asked is None and cut_short_at is not None and 0 <= now - cut_short_at < RESUMED_WITHIN_S:
        return last
    night = asked or utc_date(now)
    if night < last:
        raise UsageError(
            f"{night} is before the last night, {last}, and nights must be in order. Is the clock right? If "
            f"{last} was a mistake, move {folder}/{last} away and delete its line in {folder}/history.jsonl."
        )
    return night
