"""How long a lane waits because its provider asks for it. Arithmetic and messages only.

Beyond that the lane ends: its episodes remain, and a later run asks again.
"""

from datetime import UTC, datetime

from evalkit.wire.verdicts import LONGEST_WAIT_S

MOST_PAUSE_S = 3600.0
"""A run does not sleep longer than this for one provider."""
NOTICED_S = 60.0
"""If a request waits longer than this because of a provider's headers, the user is told."""


def too_long(wait_s: float, left_s: float) -> bool:
    """Whether a wait that a provider asks for is too long; `left_s` seconds remain before the deadline."""
    return wait_s > min(MOST_PAUSE_S, left_s)


def why_ended(lane: str, wait_s: float, now: float, message: str) -> str:
    """Why a lane ends instead of waiting, and when to run again. `now` in Unix seconds; `message`: the failure."""
    resumes_at = datetime.fromtimestamp(now + wait_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    why = "longer than evalkit waits for a provider" if wait_s > MOST_PAUSE_S else "later than the run's deadline"
    return (
        f"{lane}: its provider asks to wait {_length(wait_s)}, {why} ({message.rstrip('.')}). "
        f"Its episodes remain: run again at about {resumes_at}."
    )


def used_up(lane: str, wait_s: float, now: float, limit: str) -> str:
    """Why a lane ends because its provider's headers say that `limit` (`requests`, `tokens`) admits nothing for this
    long; empty: the lane does not end. `now` in Unix seconds."""
    if wait_s <= MOST_PAUSE_S:
        return ""
    return why_ended(lane, min(wait_s, LONGEST_WAIT_S), now, f"its headers say that its limit on {limit} is used up")


def why_paced(lane: str, wait_s: float, limit: str) -> str:
    """What a user should know about a lane that is slowed down by its provider's headers."""
    return (
        f"{lane}: its provider's headers said that its limit on {limit} was nearly used up. Requests waited for it; "
        f"the first of them {_length(wait_s)}."
    )


def _length(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
