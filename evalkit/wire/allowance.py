"""What a provider's headers say is left of its rate limits. Pure; `client/` decides what follows from it.

Source: OpenAI's `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, which most compatible servers copied.
`reset` is the time until the limit is whole again, as `6m0s`, `1.5s`, `120ms` or plain seconds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """One limit, as a response reported it."""

    limit: float
    remaining: float
    reset_s: float
    """Seconds until `remaining` is `limit` again if nothing is asked."""


def read_allowances(headers: Mapping[str, str]) -> tuple[Allowance | None, Allowance | None]:
    """(requests, tokens); None where the headers do not say, or say nonsense."""
    return _read(headers, "requests"), _read(headers, "tokens")


def _read(headers: Mapping[str, str], what: str) -> Allowance | None:
    reset_s = read_duration_s(headers.get(f"x-ratelimit-reset-{what}", ""))
    if reset_s is None:
        return None
    limit, remaining = headers.get(f"x-ratelimit-limit-{what}", ""), headers.get(f"x-ratelimit-remaining-{what}", "")
    return checked_allowance(limit, remaining, reset_s)


def checked_allowance(limit: str, remaining: str, reset_s: float) -> Allowance | None:
    """An allowance whose figures come as texts; None where they are nonsense."""
    try:
        whole, left = float(limit), float(remaining)
    except ValueError:
        return None
    if not 0 < whole < 1e15 or not 0 <= left <= whole:
        return None
    return Allowance(limit=whole, remaining=left, reset_s=reset_s)


def read_duration_s(text: str) -> float | None:
    """`1h2m3.5s` as seconds; None where it is no such text."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
