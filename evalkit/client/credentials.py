"""Keys that expire: asked for when they are needed, renewed before they expire, and once more when they are refused.

A key comes from a command that prints it, or from a cloud's own SDK (`clouds.py`). All requests of a provider share it:
one renewal serves them all, off the event loop, and they wait for it. A key stays in memory: it is in no file, no
argument of a command and no message, and each new one is removed from what providers send back.
"""

import asyncio
import os
import shlex
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from evalkit.client.redact import LEAST_ENCODED, Redactor
from evalkit.errors import UsageError

RENEWAL_S = 60.0
"""For one renewal, whatever it does."""
EARLY_S = 300.0
"""A key is renewed so long before it expires, or after four fifths of its life, whichever is later."""
AGAIN_S = 10.0
"""After a renewal has failed while the old key is still valid."""
_PRINTED_BYTES = 64 * 1024
_KEY_CHARS = 8 * 1024
"""Longer ones fit into no header that servers accept."""
_SAID_CHARS = 4096
_SHOWN_CHARS = 400
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

    def __init__(self, fetch: Fetch, redactor: Redactor) -> None:
        self._fetch = fetch
        self._redactor = redactor
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
                raise UsageError(self._redactor.text(str(flaw))) from None
            oldest = self._remembered[0] if len(self._remembered) == _REMEMBERED else ()
            self._remembered.append(fresh.secrets)
            kept = {secret for secrets in self._remembered for secret in secrets}
            # In a thread: the patterns of a long token take a tenth of a second.
            await asyncio.to_thread(self._redactor.learn, *fresh.secrets, forget={*oldest} - kept)
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


def from_command(
    command: Sequence[str], *, lasts_s: float, headers: Callable[[str], Mapping[str, str]], redactor: Redactor
) -> Fetch:
    """Keys that a command prints. `lasts_s`: how long one is valid, if the command does not say it itself.

    It prints the key alone, or a JSON object: `token` (or `access_token`, `accessToken`), and `expires_in` in seconds
    or `expires_at` (or `expires_on`) as Unix time or as a date in ISO format.
    """
    name = shlex.join(command)

    async def fetch() -> Grant:
        printed = await _printed(command, name, redactor)
        key, expires_at = _read(printed, name)
        if key == "" or not key.isascii() or not key.isprintable() or " " in key or len(key) > _KEY_CHARS:
            raise UsageError(
                f"key_command: `{name}` must print one key, or a JSON object with `token`; it printed "
                f"{len(printed)} characters in {len(printed.splitlines())} lines."
            )
        return key_grant(key, headers(key), time.time() + lasts_s if expires_at is None else expires_at)

    return fetch


def _read(printed: str, name: str) -> tuple[str, float | None]:
    """(key, when it expires if that is said)."""
    if not printed.startswith("{"):
        return printed, None
    try:
        value = orjson.loads(printed)
        key = next((value[name] for name in ("token", "access_token", "accessToken") if name in value), "")
        until = next((value[name] for name in ("expires_at", "expires_on") if name in value), None)
        within = value.get("expires_in")
        expires_at = _moment(until) if until is not None else None if within is None else time.time() + float(within)
    except (ValueError, TypeError) as flaw:
        # The error's own words could contain the key.
        raise UsageError(f"key_command: what `{name}` printed cannot be read ({type(flaw).__name__}).") from None
    return key if isinstance(key, str) else "", expires_at


def _moment(value: Any) -> float:
    """Unix time. Raises ValueError or TypeError."""
    try:
        return float(value)
    except ValueError:
        return datetime.fromisoformat(value).timestamp()


async def _printed(command: Sequence[str], name: str, redactor: Redactor) -> str:
    """What a command prints, stripped. Raises UsageError if it fails; what it printed then is not shown."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as flaw:
        raise UsageError(f"key_command: `{name}` cannot be started: {flaw}.") from None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            printed = group.create_task(_bounded(process.stdout))
            said = group.create_task(_bounded(process.stderr))
        code = await process.wait()
    finally:
        if process.returncode is None:
            # It and what it has started: a shell script's child holds the pipes open.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    key = printed.result().decode("utf-8", "replace").strip()
    if len(printed.result()) > _PRINTED_BYTES:
        raise UsageError(f"key_command: `{name}` printed more than {_PRINTED_BYTES} bytes.")
    if code == 0:
        return key
    words = said.result().decode("utf-8", "replace")[:_SAID_CHARS]
    for word in sorted(filter(lambda word: len(word) >= LEAST_ENCODED, key.split()), key=len, reverse=True):
        words = words.replace(word, "***")
    words = " ".join(redactor.text(words).split())[:_SHOWN_CHARS]
    raise UsageError(f"key_command: `{name}` ended with exit code {code}. {words}".rstrip())


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    """What comes, up to a bound; the rest is read and dropped."""
    kept = b""
    while piece := await stream.read(_PRINTED_BYTES):
        kept = (kept + piece)[: _PRINTED_BYTES + 1]
    return kept
