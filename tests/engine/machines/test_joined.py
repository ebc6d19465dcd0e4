"""A coordinator that listens, in this process, and workers that are only messages: what it answers whom."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evalkit import __version__
from evalkit.engine.episode import Stop
from evalkit.engine.listen import Listen, coordinators_token, own_file, workers_token
from evalkit.engine.machines.link import WorkerLink
from evalkit.engine.machines.messages import (
    Attend,
    Bye,
    Directive,
    Hello,
    LaneReport,
    Renew,
    Welcome,
    WorkerRefused,
    WorkerSetup,
)
from evalkit.engine.machines.setup import code_digests, resolved_from
from evalkit.engine.machines.tcp import LastingLink, address_of, connect
from evalkit.engine.machines.worker import Worker
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.session import RunOptions
from evalkit.engine.sweep import run_sweep
from evalkit.errors import UsageError
from evalkit.results.verify import verify
from evalkit.spec.model import MachineTimes
from evalkit.store.events import read_events
from evalkit.store.files.journal import new_writer, newest_claims
from evalkit.store.files.schema import FORMAT
from evalkit.store.manifests import manifest_digest, read_manifest
from evalkit.store.meeting import meeting_place
from evalkit.store.writing.opening import announce
from tests.support.patience import PATIENCE_S
from tests.support.small_sweeps import TWO_POLICIES, resolved

pytestmark = pytest.mark.exhaustive

TOKEN = "a token of some length"
ATTEND = Attend(evalkit=__version__, log=FORMAT)
SHORT = MachineTimes(share_s=2.0, silent_s=2.1, orphan_s=3.0)
Talk = Callable[["Site"], Awaitable[None]]


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALKIT_JOIN_TOKEN", TOKEN)


class Site:
    """A run that is coordinated."""

    def __init__(self, run: Path) -> None:
        self.run, self.stop = run, Stop()
        self.link = LastingLink(self.connected, orphan_s=PATIENCE_S)

    async def connected(self) -> WorkerLink:
        """A connection."""
        place = None
        while place is None:
            place = meeting_place(self.run)
            await asyncio.sleep(0.01)
        return await connect(address_of(place.address, ""), TOKEN, None)

    async def hello(self, writer: str) -> object:
        """Say hello as a worker that has the same code and reads the same run."""
        announce(self.run, writer)
        code = code_digests(read_manifest(self.run))
        return await self.link.ask(Hello(writer=writer, manifest=manifest_digest(self.run), code=code))

    async def setup(self) -> WorkerSetup:
        """What there is to do."""
        answer = await self.link.ask(ATTEND)
        assert isinstance(answer, WorkerSetup)
        return answer


def coordinated(tmp_path: Path, talk: Talk, *, stops: bool = True) -> RunOutcome:
    """Coordinate a small run while somebody talks to it; then it is stopped, unless it ends by itself."""

    async def both() -> RunOutcome:
        sweep = resolved(tmp_path, TWO_POLICIES)
        sweep = replace(sweep, sweep=replace(sweep.sweep, on="join", times=SHORT))
        site = Site(tmp_path / "run")
        options = RunOptions(directory=site.run, stop=site.stop, listen=Listen())
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            playing = group.create_task(run_sweep(sweep, options, lambda view: None))
            try:
                await talk(site)
            finally:
                site.link.close()
                if stops:
                    site.stop.set("interrupt", "Enough.")
            return await playing

    return asyncio.run(both())


def until_lost(run: Path, count: int = 1) -> None:
    """Wait until so many workers were taken for lost."""
    until = time.monotonic() + PATIENCE_S
    while len(list(read_events(run, "worker_lost"))) < count and time.monotonic() < until:
        time.sleep(0.1)


def test_a_worker_with_another_version_or_other_code_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        for question, said in (
            (Attend(evalkit="0.0.1", log=FORMAT), "This worker has evalkit 0.0.1"),
            (Attend(evalkit=__version__, log=FORMAT + 1), f"log format {FORMAT + 1}; its coordinator has"),
        ):
            answer = await site.link.ask(question)
            assert isinstance(answer, WorkerRefused)
            assert said in answer.why
        setup = await site.setup()
        writer, digest = new_writer([setup.after]), manifest_digest(site.run)
        code = code_digests(read_manifest(site.run))
        assert {"environment scheduling", "policy knuth of scheduling"} <= code.keys()
        for hello, said in (
            (Hello(writer=writer, manifest="other", code=code), "another description of the run"),
            (Hello(writer=writer, manifest=digest), "other code than its coordinator for environment scheduling"),
            (
                Hello(writer=writer, manifest=digest, code={**code, "policy knuth of scheduling": "x"}),
                "other code than its coordinator for policy knuth of scheduling",
            ),
        ):
            answer = await site.link.ask(hello)
            assert isinstance(answer, WorkerRefused)
            assert said in answer.why
            assert not answer.after

    assert coordinated(tmp_path, talk).reason == "interrupt"


def test_names_of_writers_follow_each_other(tmp_path: Path) -> None:
    """Of two that choose a name at once, the second comes too late with the earlier one."""

    async def talk(site: Site) -> None:
        setup = await site.setup()
        early = new_writer([setup.after])
        late = new_writer([early])
        assert isinstance(await site.hello(late), Welcome)
        refused = await site.hello(early)
        assert isinstance(refused, WorkerRefused)
        assert refused.after == late
        assert isinstance(await site.hello(new_writer([refused.after])), Welcome)

    coordinated(tmp_path, talk)


def test_a_repeated_question_gets_the_same_answer(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer([(await site.setup()).after])
        assert await site.hello(writer) == await site.hello(writer)
        lanes = {"scripted/knuth": LaneReport(), "scripted/random": LaneReport()}
        question = Renew(writer=writer, number=1, lanes=lanes)
        first = await site.link.ask(question)
        site.link.close()
        assert await site.link.ask(question) == first, "also on another connection"
        assert isinstance(first, Directive)
        assert first.blocks
        bye = Bye(writer=writer, number=0)
        assert await site.link.ask(bye) == await site.link.ask(bye) == Directive(finish=True)

    coordinated(tmp_path, talk)


def test_one_that_is_silent_is_sealed_and_what_it_had_goes_to_a_later_one(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer([(await site.setup()).after])
        await site.hello(writer)
        had = await site.link.ask(Renew(writer=writer, number=1))
        assert isinstance(had, Directive)
        assert sum(map(len, had.blocks.values())) == 16, "all there are"
        await asyncio.to_thread(until_lost, site.run)
        assert newest_claims(site.run)[writer]["kind"] == "seal"
        answer = await site.link.ask(Renew(writer=writer, number=2))
        assert isinstance(answer, WorkerRefused)
        assert "its journal was sealed" in answer.why
        await Worker(site.run, await site.setup(), site.link).work()

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)
    assert verify(tmp_path / "run") == []


def test_one_that_is_there_begins_anew_and_goes_on_with_what_another_had(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer([(await site.setup()).after])
        await site.hello(writer)
        await site.link.ask(Renew(writer=writer, number=1))
        lives = 0
        again = True
        while again:  # it begins while the other is not yet taken for lost
            again = await Worker(site.run, await site.setup(), site.link).work()
            lives += 1
        assert lives == 2

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)
    assert verify(tmp_path / "run") == []


def test_one_that_has_not_begun_is_awaited_only_while_it_is_connected(tmp_path: Path) -> None:
    """It may read a long log; if its connection is closed it has died, and nobody may wait for it to go on."""

    async def talk(site: Site) -> None:
        first = new_writer([(await site.setup()).after])
        await site.hello(first)
        reads = new_writer([first])
        await site.hello(reads)
        other = LastingLink(site.connected, orphan_s=PATIENCE_S)
        await other.ask(Renew(writer=first, number=1))
        other.close()
        await asyncio.to_thread(until_lost, site.run)
        died = new_writer([reads])
        await site.hello(died)
        await site.hello(reads)
        site.link.close()
        await asyncio.to_thread(until_lost, site.run, 3)
        await Worker(site.run, await site.setup(), site.link).work()

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)


def test_a_worker_makes_the_sweep_again_from_the_run(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        setup, run = await site.setup(), read_manifest(site.run)
        made = resolved_from(setup, run)
        assert made.manifest == run
        assert (made.sweep.width, made.sweep.budget, made.endpoints) == (64, None, {})
        assert (setup.orphan_s, setup.deadline_s) == (SHORT.orphan_s, None)

    coordinated(tmp_path, talk)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        await site.setup()
        place = meeting_place(site.run)
        assert place is not None
        sweep = resolved(tmp_path, TWO_POLICIES, "other")
        sweep = replace(sweep, sweep=replace(sweep.sweep, on="join"))
        options = RunOptions(directory=tmp_path / "other", stop=Stop(), listen=Listen(address=place.address))
        with pytest.raises(UsageError, match=r"--listen 127\.0\.0\.1"):
            await run_sweep(sweep, options, lambda view: None)

    coordinated(tmp_path, talk)
    assert meeting_place(tmp_path / "run") is None, "it says so no more"


def test_a_token_is_made_for_each_coordinator_and_only_its_user_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVALKIT_JOIN_TOKEN")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = tmp_path / "run"
    assert workers_token(run, None) is None
    first, file = coordinators_token(run, None)
    assert file == own_file(run)
    assert file.stat().st_mode & 0o077 == 0
    assert workers_token(run, None) == first
    assert coordinators_token(run, None)[0] != first
    chosen, named = coordinators_token(run, tmp_path / "token")
    assert (named, workers_token(run, tmp_path / "token")) == (tmp_path / "token", chosen)
    assert coordinators_token(run, tmp_path / "token")[0] == chosen, "one that is there is kept"
    monkeypatch.setenv("EVALKIT_JOIN_TOKEN", TOKEN)
    assert coordinators_token(run, None) == (TOKEN, None)
    assert workers_token(run, tmp_path / "token") == TOKEN
    assert own_file(run) != own_file(tmp_path / "another")
