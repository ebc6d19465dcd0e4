"""The remaining rate limits that a provider's headers state. Pure; `client/` decides what follows from it.

Source: OpenAI's `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, which most compatible servers copied.
`reset` is the time until the limit is full again, as `6m0s`, `1.5s`, `120ms` or plain seconds; with some servers it is
the moment, in Unix time (docs.digitalocean.com, of its inference), which is measured against the response's own date.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from evalkit.wire.durations import LONGEST_S, date_of, span_of, unix_of, until_s

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
    moment = unix_of(reset)
    if moment is not None:
        reset_s = until_s(moment, date_of(headers.get("date")))
        reset_s = None if reset_s == LONGEST_S else reset_s  # no moment at which a limit is renewed
    else:
        reset_s = span_of(reset) if reset else None
    if reset_s is None:
        return None
    limit, remaining = headers.get(f"x-ratelimit-limit-{what}", ""), headers.get(f"x-ratelimit-remaining-{what}", "")
    return checked_allowance(limit, remaining, reset_s)


def checked_allowance(limit: str, remaining: str, reset_s: float) -> Allowance | None:
    """An allowance from figures that are strings; None if they are not valid: a limit below 1 would admit nothing."""
    if not _FIGURE.fullmatch(limit) or not _FIGURE.fullmatch(remaining):
        return None
    most, left = float(limit), float(remaining)
    return Allowance(limit=most, remaining=left, reset_s=reset_s) if most >= 1 and left <= most else None
