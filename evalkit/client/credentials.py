"""Keys that expire: asked for when they are needed, renewed before they expire, and once more when they are refused.

A key comes from a cloud's own SDK (`clouds.py`). All requests of a provider share it:
one renewal serves them all, off the event loop, and they wait for it. A key stays in memory: it is in no file, no
argument of a command and no message, and each new one is removed from what providers send back.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalkit.errors import UsageError
from evalkit.redact import KEYS

RENEWAL_S = 60.0
"""For one renewal, whatever it does."""
EARLY_S = 300.0
"""A key is renewed so long before it expires, or after four fifths of its life, whichever is later."""
AGAIN_S = 10.0
"""After a renewal has failed while the old key is still valid."""
_REMEMBERED = 3
"""Keys of one provider that are removed from responses: one may come back after the next one was issued."""

Headers = Callable[[str, Mapping[str, str], bytes], Mapping[str, str]]
"""(URL, headers that are sent anyway, body) -> the headers that authenticate the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A key, or a set of credentials, for as long as it is valid."""

    headers: Headers = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    due: Callable[[], bool] = field(repr=False)
    """Whether it is time to renew it."""
    over: Callable[[], bool] = field(repr=False)
    """Whether it has expired."""


Fetch = Callable[[], Coroutine[Any, Any, Grant]]
"""Gives new credentials. Raises UsageError saying why there are none."""


class Credentials:
    """What authenticates one provider's requests, renewed as needed."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._grant: Grant | None = None
        self._count = 0
        """Grants so far."""
        self._worked = 0
        """The number of the last grant with which a request was answered."""
        self._again_at = 0.0
        self._renewal = asyncio.Lock()
        self._remembered: deque[tuple[str, ...]] = deque(maxlen=_REMEMBERED)

    async def headers(self, url: str, given: Mapping[str, str], body: bytes) -> tuple[Mapping[str, str], int]:
        """The headers that authenticate a request, and the number of the grant they are made from, counted from 1.

        Raises UsageError if there is no valid grant.
        """
        grant = self._grant
        if grant is None or (grant.due() and time.monotonic() >= self._again_at):
            grant = await self._renewed()
        return grant.headers(url, given, body), self._count

    def refused(self, number: int) -> None:
        """A request with this grant was refused: the next one waits for another, unless there is one already."""
        if number == self._count:
            self._grant = None

    def answered(self, number: int) -> None:
        """A request with this grant was answered."""
        self._worked = max(self._worked, number)

    def worked(self, number: int) -> bool:
        """Whether a request with this grant, or a later one, was answered."""
        return number <= self._worked

    async def _renewed(self) -> Grant:
        async with self._renewal:
            grant = self._grant
            if grant is not None and not (grant.due() and time.monotonic() >= self._again_at):
                return grant  # another request has renewed it meanwhile
            try:
                async with asyncio.timeout(RENEWAL_S):
                    fresh = await self._fetch()
            except (UsageError, TimeoutError) as flaw:
                if grant is not None and not grant.over():
                    self._again_at = time.monotonic() + AGAIN_S
                    return grant
                if isinstance(flaw, TimeoutError):
                    raise UsageError(f"No credentials within {RENEWAL_S:g} s.") from None
                raise UsageError(KEYS.text(str(flaw))) from None
            oldest = self._remembered[0] if len(self._remembered) == _REMEMBERED else ()
            self._remembered.append(fresh.secrets)
            kept = {secret for secrets in self._remembered for secret in secrets}
            # In a thread: the patterns of a long token take a tenth of a second.
            await asyncio.to_thread(KEYS.learn, *fresh.secrets, forget={*oldest} - kept)
            self._grant, self._count, self._again_at = fresh, self._count + 1, 0.0
            return fresh


def key_grant(key: str, headers: Mapping[str, str], expires_at: float) -> Grant:
    """A key that the same headers carry in every request. `expires_at`: Unix time, infinite if it is unknown."""
    now = time.time()
    renew_at = expires_at - min(EARLY_S, (expires_at - now) / 5) if expires_at > now else expires_at
    return Grant(
        headers=lambda _url, _given, _body: headers,
        secrets=(key,),
        due=lambda: time.time() >= renew_at,
        over=lambda: time.time() >= expires_at,
    )
