"""Whether a server is available: many consecutive failures without a success mean that it is not. Arithmetic only.

One that is down is sent one probe at a time, at intervals that grow to a few seconds: an outage costs these probes
instead of retries of every episode, and its end is noticed soon. After `GIVE_UP_S` without an answer it is given up.

Where others answer in its place, it is down sooner, since nobody has to wait for it; and it is probed less and less
often, since each probe is a request that another would have answered.
"""

from datetime import UTC, datetime

from evalkit.text import wording
from evalkit.wire.verdicts import LONGEST_WAIT_S

DOWN_AFTER = 10
"""Consecutive failures after which a lane counts as down ..."""
DOWN_FEW = 4
"""... or this many, if nothing has succeeded for `DOWN_S`: otherwise a lane with few episodes would use up their
attempts first."""
DOWN_S = 5.0
FIRST_PROBE_S = 1.0
LAST_PROBE_S = 2.0
"""A refused probe costs nothing, and an outage's end should not wait for it."""
LAST_PAID_PROBE_S = 300.0
"""One that may be billed is paid for at its bound each time: the intervals go on growing, threefold, so that the few
that a lane may make (`MOST_PAID`) last for most of `GIVE_UP_S`."""
MOST_PAID = 8
"""A lane ends after so many attempts at a server that may have been billed, without a reply in between: answers that
are no replies, and probes. What was cut off in flight together counts as one."""
GIVE_UP_S = 900.0
DOWN_AFTER_OF_SEVERAL = 3
"""The same as `DOWN_AFTER` where others answer in its place. A single failure may be a stray one. A server that refuses
at once has always the least load, so all would go there; and each of these costs a request one of its attempts."""
LAST_PROBE_OF_SEVERAL_S = 30.0
"""A probe may be charged, if it times out, and its request is late."""

OUTAGE = frozenset({"connect", "reset", "timeout", "truncated", "server_error", "overload"})
"""Kinds of failure that an unavailable provider shows."""
NO_ROOM = "no_room"
"""A cheap tier had no room for a request (`client/retry.py`): no failure of the server's."""
REFUSAL = "rate_limit"
"""A working server sends it, and a busy lane receives it often. If every request gets it for `DOWN_S`, that is an
outage too."""


class Health:
    """The circuit breaker of one server."""

    __slots__ = (
        *("_down_after", "_failing", "_failing_since", "_last_probe_s", "_paid", "_probe_s", "_streak"),
        *("down", "down_since", "last", "next_probe", "several"),
    )

    def __init__(self, *, replaceable: bool = False) -> None:
        """`replaceable`: whether others answer in its place."""
        self._down_after = DOWN_AFTER_OF_SEVERAL if replaceable else DOWN_AFTER
        self._last_probe_s = LAST_PROBE_OF_SEVERAL_S if replaceable else LAST_PROBE_S
        self.down = False
        self.down_since = 0.0
        self.next_probe = 0.0
        self.last = ""
        """The last failure, in words."""
        self._streak = 0
        self._failing = ""
        self.several = False
        """Whether the failures since the last answer are those of several requests: then no request is their cause."""
        self._paid = False
        self._failing_since = 0.0
        self._probe_s = FIRST_PROBE_S

    def answered(self) -> bool:
        """The provider answered. Returns whether that ended an outage."""
        was = self.down
        self.down, self._streak, self._probe_s = False, 0, FIRST_PROBE_S
        self._failing, self.several = "", False
        return was

    def failed(
        self, *, probe: bool, now: float, words: str, refusal: bool = False, paid: bool = False, request: str = ""
    ) -> None:
        """A failure of the kinds in `OUTAGE`, or a `REFUSAL`. `paid`: it may have been billed; `request`: whose it
        is."""
        self.last, self._paid = words, paid
        self.several = self.several or self._failing not in ("", request)
        self._failing = request
        if not self._streak:
            self._failing_since = now
        self._streak += 1
        if self.down:
            if probe:
                paid_s, free_s = min(LAST_PAID_PROBE_S, 3 * self._probe_s), min(self._last_probe_s, 2 * self._probe_s)
                self._probe_s = paid_s if paid else free_s
                self.next_probe = now + self._probe_s
        elif (self._streak >= self._down_after and not refusal) or (
            self._streak >= DOWN_FEW and now - self._failing_since >= DOWN_S
        ):
            self.down, self.down_since = True, now
            self.next_probe = now + self._probe_s

    def hasten(self, now: float) -> None:
        """The others are down too: it is probed as one that nobody replaces."""
        if self._paid:
            return
        self.next_probe = min(self.next_probe, now + LAST_PROBE_S)

    def trouble(self, *, answered: bool) -> str:
        """The last failure while the server is unavailable, or has not answered a request; else empty."""
        return self.last if self._streak and (self.down or not answered) else ""

    def given_up(self, now: float) -> bool:
        """Whether it has been down for too long to wait any longer."""
        return self.down and now - self.down_since >= GIVE_UP_S


# When a lane's refusals are no longer those of single episodes: pure counts, which `lane.py` keeps.
#
# A wrong setting, a spent account or a model that is gone refuses every request. Nothing is scored by that, but a run
# should not go through all its episodes to find out.

FIRST = 5
"""A lane ends when so many episodes were refused and none of its requests was ever answered."""
ALIKE = 10
"""A lane that was answered before ends when so many episodes in a row were refused in one wording."""


class RefusalCount:
    """The refusals of a lane since its last answer."""

    __slots__ = ("_alike", "_answered", "_episodes", "_wording")

    def __init__(self) -> None:
        self._answered = False
        self._episodes: set[str] = set()
        self._alike: set[str] = set()
        self._wording = ""

    def answered(self) -> None:
        """A reply came."""
        self._answered = True
        if self._episodes:
            self._episodes.clear()
            self._alike.clear()

    def refused(self, episode: str, words: str) -> str:
        """An episode's request was refused. Returns what shows that the lane should end, in words; empty: nothing."""
        said = wording(words)
        if said != self._wording:
            self._wording = said
            self._alike.clear()
        self._alike.add(episode)
        self._episodes.add(episode)
        if not self._answered and len(self._episodes) >= FIRST:
            return f"its first {FIRST} episodes were refused, and none of their requests was answered"
        if len(self._alike) >= ALIKE:
            return f"{ALIKE} episodes in a row were refused in the same words, after others had been answered"
        return ""


# How long a lane waits because its provider asks for it. Arithmetic and messages only.
#
# Beyond that the lane ends: its episodes remain, and a later run asks again.

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
