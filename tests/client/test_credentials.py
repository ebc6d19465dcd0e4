"""Keys that expire: how they are renewed, shared and forgotten, and what is said when there is none."""

import asyncio
import time
from collections.abc import Mapping

import pytest

from evalkit.client import credentials
from evalkit.client.credentials import Credentials, Grant, key_grant
from evalkit.errors import UsageError
from evalkit.redact import KEYS

TOKEN = "token-0123456789-abcdefghij"
URL = "https://acme.example/v1"


def bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_is_renewed_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    long, short = (key_grant(TOKEN, {}, 1000.0 + life) for life in (3600.0, 100.0))
    for moment, due in (
        (1079.0, (False, False)),
        (1081.0, (False, True)),
        (4299.0, (False, True)),
        (4301.0, (True, True)),
    ):
        now = moment
        assert (long.due(), short.due()) == due
    assert not long.over()


class Source:
    """Gives keys in turn, and counts how often it was asked."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.now = 0.0
        self.fails = False
        self.waits = asyncio.Event()
        self.waits.set()

    async def __call__(self) -> Grant:
        await self.waits.wait()
        if self.fails:
            raise UsageError(f"no key after {self.keys[-1:]}")
        key, until = f"{len(self.keys)}" * 20, self.now + 100
        self.keys.append(key)
        return Grant(
            headers=lambda _url, _given, _body: bearer(key),
            secrets=(key,),
            due=lambda: self.now >= until - 20,
            over=lambda: self.now >= until,
        )


async def asked(source: Credentials) -> tuple[str, int]:
    headers, number = await source.headers(URL, {}, b"")
    return headers["Authorization"].removeprefix("Bearer "), number


def test_one_renewal_serves_all_who_wait() -> None:
    async def main() -> None:
        source = Source()
        shared = Credentials(source)
        source.waits.clear()
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(asked(shared)) for _ in range(50)]
            await asyncio.sleep(0)
            source.waits.set()
        assert {one.result() for one in waiting} == {(source.keys[0], 1)}
        source.now = 80
        assert {await asked(shared) for _ in range(3)} == {(source.keys[1], 2)}
        assert len(source.keys) == 2

    asyncio.run(main())


def test_a_renewal_whose_asker_is_cancelled_is_done_by_the_next() -> None:
    async def main() -> None:
        source = Source()
        shared = Credentials(source)
        source.waits.clear()
        first, second = asyncio.create_task(asked(shared)), asyncio.create_task(asked(shared))
        await asyncio.sleep(0)
        first.cancel()
        source.waits.set()
        assert (await second)[1] == 1
        assert first.cancelled()

    asyncio.run(main())


def test_a_refused_key_is_renewed_once_however_many_were_refused() -> None:
    async def main() -> None:
        source = Source()
        shared = Credentials(source)
        _, number = await asked(shared)
        for _ in range(10):
            shared.refused(number)
        assert await asked(shared) == (source.keys[1], 2)
        shared.refused(number)  # it comes late, and its key is no longer the one in use
        assert await asked(shared) == (source.keys[1], 2)

    asyncio.run(main())


def test_a_failed_renewal_keeps_the_old_key_while_it_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)

    async def main() -> None:
        nonlocal clock
        source = Source()
        shared = Credentials(source)
        first = await asked(shared)
        source.now, source.fails = 85.0, True
        assert await asked(shared) == first
        source.fails = False
        assert await asked(shared) == first, "it was asked again at once"
        clock = credentials.AGAIN_S
        assert (await asked(shared))[1] == 2
        source.now, source.fails = 1000.0, True
        with pytest.raises(UsageError, match=r"no key after \['\*\*\*'\]"):
            await asked(shared)

    asyncio.run(main())


def test_the_last_keys_are_removed_from_answers_and_older_ones_forgotten() -> None:
    async def main() -> None:
        source = Source()
        KEYS.learn("sk-of-another-provider")
        shared = Credentials(source)
        for night in range(6):
            source.now = night * 1000.0
            await asked(shared)
        text = " ".join([*source.keys, "sk-of-another-provider"])
        assert KEYS.text(text).split() == [*source.keys[:3], "***", "***", "***", "***"]

    asyncio.run(main())
