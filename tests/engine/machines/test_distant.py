"""A coordinator of workers that are elsewhere, in this process, and workers that are only messages: what it answers
whom."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from evalkit.engine.machines import apart, on_ray
from evalkit.engine.machines.messages import (
    Attend,
    Directive,
    Hello,
    Question,
    Renew,
    Reply,
    Welcome,
    WorkerRefused,
    WorkerSetup,
)
from evalkit.engine.machines.on_ray import DistantWorkers
from evalkit.engine.machines.setup import code_digests, resolved_from
from evalkit.engine.machines.spread import MachineTimes, Spread
from evalkit.engine.machines.worker import Worker
from evalkit.engine.options import RunOptions, Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.engine.run import run_sweep
from evalkit.frozen.manifests import manifest_digest, read_manifest
from evalkit.results.verify import verify
from evalkit.store.events import read_events
from evalkit.store.files.journal import new_writer, newest_claim
from evalkit.store.files.schema import FORMAT
from evalkit.store.writing.opening import announce
from evalkit.version import __version__
from tests.sim.cluster import connected
from tests.support.patience import PATIENCE_S
from tests.support.small_sweeps import TWO_POLICIES, resolved

pytestmark = pytest.mark.exhaustive

ATTEND = Attend(evalkit=__version__, log=FORMAT)
SHORT = MachineTimes(share_s=1.0, silent_s=1.1, orphan_s=3.0)
Talk = Callable[["Site"], Coroutine[None, None, None]]


class Site:
    """A run that is coordinated, as one that asks reaches it."""

    def __init__(self, spread: Spread) -> None:
        self.run = spread.session.options.directory
        self.connected = set[str]()
        """Writers that are there, as far as anybody says."""
        self.given_up = set[str]()
        self._spread = spread

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer."""
        return await self._spread.answer(question)

    async def hello(self, writer: str) -> object:
        """Say hello as a worker that has the same code and reads the same run."""
        announce(self.run, writer)
        self.connected.add(writer)
        code = code_digests(read_manifest(self.run))
        return await self.ask(Hello(writer=writer, manifest=manifest_digest(self.run), code=code))

    async def setup(self) -> WorkerSetup:
        """What there is to do."""
        answer = await self.ask(ATTEND)
        assert isinstance(answer, WorkerSetup)
        return answer


def coordinated(tmp_path: Path, talk: Talk, *, stops: bool = True) -> RunOutcome:
    """Coordinate a small run while somebody talks to it; then it is stopped, unless it ends by itself."""
    stop = Stop()

    async def both(spread: Spread) -> None:
        site = Site(spread)
        distant = DistantWorkers(
            spread, is_connected=site.connected.__contains__, is_given_up=site.given_up.__contains__
        )
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            talking = group.create_task(talk(site))
            await distant.watch(group, talking.done)
            if stops:
                stop.set("interrupt", "Enough.")
            spread.look(starting=False)

    given = resolved(tmp_path, TWO_POLICIES)
    given = replace(given, sweep=replace(given.sweep, on="ray"))
    with (
        mock.patch.object(on_ray, "check_ray"),
        mock.patch.object(apart, "on_cluster", connected),
        mock.patch.object(apart, "play_on_ray", both),
        mock.patch.object(Spread, "times", SHORT),
    ):
        return asyncio.run(run_sweep(given, RunOptions(directory=tmp_path / "run", stop=stop), lambda view: None))


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
            answer = await site.ask(question)
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
            answer = await site.ask(hello)
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


def test_one_that_is_silent_is_sealed_and_what_it_had_goes_to_a_later_one(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer([(await site.setup()).after])
        await site.hello(writer)
        had = await site.ask(Renew(writer=writer))
        assert isinstance(had, Directive)
        assert sum(map(len, had.blocks.values())) == 16, "all there are"
        await asyncio.to_thread(until_lost, site.run)
        assert (newest_claim(site.run, writer) or {})["kind"] == "seal"
        answer = await site.ask(Renew(writer=writer))
        assert isinstance(answer, WorkerRefused)
        assert "its journal was sealed" in answer.why
        await Worker(site.run, await site.setup(), site).work()

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)
    assert verify(tmp_path / "run") == []


def test_one_that_is_there_begins_anew_and_goes_on_with_what_another_had(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer([(await site.setup()).after])
        await site.hello(writer)
        await site.ask(Renew(writer=writer))
        lives = 0
        again = True
        while again:  # it begins while the other is not yet taken for lost
            again = await Worker(site.run, await site.setup(), site).work()
            lives += 1
        assert lives == 2

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)
    assert verify(tmp_path / "run") == []


def test_one_that_has_not_begun_is_awaited_only_while_it_is_connected(tmp_path: Path) -> None:
    """It may read a long log; if nothing answers there it has died, and nobody may wait for it to go on."""

    async def talk(site: Site) -> None:
        first = new_writer([(await site.setup()).after])
        await site.hello(first)
        reads = new_writer([first])
        await site.hello(reads)
        await site.ask(Renew(writer=first))
        await asyncio.to_thread(until_lost, site.run)
        died = new_writer([reads])
        await site.hello(died)
        site.connected.clear()
        await asyncio.to_thread(until_lost, site.run, 3)
        await Worker(site.run, await site.setup(), site).work()

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)


def test_a_worker_makes_the_sweep_again_from_the_run(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        setup, run = await site.setup(), read_manifest(site.run)
        made = resolved_from(setup, run)
        assert made.manifest == run
        assert (made.sweep.width, made.sweep.budget, made.endpoints) == (64, None, {})
        assert setup.deadline_s is None

    coordinated(tmp_path, talk)
