"""Keys that a command prints: how they are read, renewed, shared and forgotten, and what is said when there is none."""

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from evalkit.client import credentials
from evalkit.client.credentials import Credentials, Grant, from_command, key_grant
from evalkit.client.redact import Redactor
from evalkit.errors import UsageError

TOKEN = "token-0123456789-abcdefghij"
URL = "https://acme.example/v1"


def bearer(key: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {key}"}


def printed(value: object, lasts_s: float = float("inf")) -> Grant:
    """What is made of a command that prints this text, or this object as JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    return asyncio.run(from_command(("printf", "%s", text), lasts_s=lasts_s, headers=bearer, redactor=Redactor())())


@pytest.mark.parametrize("name", ["token", "access_token", "accessToken"])
def test_a_command_prints_a_key_alone_or_in_an_object(name: str) -> None:
    for value in (f"  {TOKEN}\n", {name: TOKEN}):
        grant = printed(value)
        assert grant.headers(URL, {}, b"") == {"Authorization": f"Bearer {TOKEN}"}
        assert grant.secrets == (TOKEN,)
        assert not grant.due()
        assert TOKEN not in repr(grant)


@pytest.mark.parametrize(
    ("left_s", "due", "over"), [(3600, False, False), (200, False, False), (0, True, True), (-5, True, True)]
)
def test_it_says_when_the_key_expires(left_s: float, due: bool, over: bool) -> None:
    moment = time.time() + left_s
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    for said in ({"expires_in": left_s}, {"expires_at": moment}, {"expires_on": str(int(moment))}, {"expires_at": iso}):
        grant = printed({"token": TOKEN, **said})
        assert (grant.due(), grant.over()) == (due, over), said
    assert printed(TOKEN, lasts_s=left_s).due() == due


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


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('%s'); sys.exit('not logged in as %s')", "ended with exit code 1. not logged in as ***"),
        ("print('one %s')", "must print one key"),
        ("print('%s\\nmore')", "in 2 lines"),
        ("print()", "it printed 0 characters"),
        ('print(\'{"tokens": "%s"}\')', "or a JSON object with `token`"),
        ('print(\'{"token": "%s"\')', "cannot be read (JSONDecodeError)"),
        ('print(\'{"token": "%s", "expires_at": "soon"}\')', "cannot be read (ValueError)"),
        ("print('%s' * 9000)", "printed more than 65536 bytes"),
        ("print('%s' * 400)", "must print one key"),
    ],
)
def test_what_a_command_does_wrong_is_said_without_the_key(code: str, says: str, tmp_path: Path) -> None:
    script = tmp_path / "print_key.py"  # what it is called with is shown
    script.write_text(code.replace("%s", TOKEN))
    source = from_command((sys.executable, str(script)), lasts_s=60.0, headers=bearer, redactor=Redactor())
    with pytest.raises(UsageError) as flaw:
        asyncio.run(source())
    assert says in str(flaw.value)
    assert TOKEN not in str(flaw.value)
    assert len(str(flaw.value)) < 1000


def test_a_command_that_is_not_there_is_named() -> None:
    source = from_command(("no-such-program", "x y"), lasts_s=1.0, headers=bearer, redactor=Redactor())
    with pytest.raises(UsageError, match=r"key_command: `no-such-program 'x y'` cannot be started: .*No such file"):
        asyncio.run(source())


def test_no_shell_reads_a_command() -> None:
    assert printed("${HOME}$(echo`id`)").secrets == ("${HOME}$(echo`id`)",)


def test_a_command_that_does_not_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RENEWAL_S", 1.0)
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $$ $! > {shlex.quote(str(pids))}; wait"
    source = from_command(("sh", "-c", script), lasts_s=1.0, headers=bearer, redactor=Redactor())
    with pytest.raises(UsageError, match="No credentials within 1 s"):
        asyncio.run(Credentials(source, Redactor()).headers(URL, {}, b""))
    shell, child = map(int, pids.read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(shell, 0)
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


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
        key, until = f"key-number-{len(self.keys)}-of-the-night", self.now + 100
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
        shared = Credentials(source, Redactor())
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
        shared = Credentials(source, Redactor())
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
        shared = Credentials(source, Redactor())
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
        redactor = Redactor()
        shared = Credentials(source, redactor)
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
        source, redactor = Source(), Redactor("sk-of-another-provider")
        shared = Credentials(source, redactor)
        for night in range(6):
            source.now = night * 1000.0
            await asked(shared)
        text = " ".join([*source.keys, "sk-of-another-provider"])
        assert redactor.text(text).split() == [*source.keys[:3], "***", "***", "***", "***"]

    asyncio.run(main())
