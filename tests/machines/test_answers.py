"""A coordinator in this process, and workers that are only messages: what it answers whom."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from msgspec import structs

from evalkit.engine.options import RunOptions, Stop
from evalkit.engine.outcome import RunOutcome
from evalkit.frozen.manifests import manifest_digest, read_manifest
from evalkit.machines import apart, on_ray
from evalkit.machines.messages import (
    ENDED,
    Hello,
    Question,
    Reply,
    Welcome,
    WorkerRefused,
    WorkGrant,
    WorkReport,
    decode_reply,
    encode,
)
from evalkit.machines.on_ray import patience_s
from evalkit.machines.process import worked
from evalkit.machines.setup import code_digests, resolved_from
from evalkit.machines.spread import Spread, WorkerSlot
from evalkit.playing.sweeps import run_sweep
from evalkit.results.verify import verify
from evalkit.store.files.journal import new_writer, newest_claim
from evalkit.store.files.schema import FORMAT
from evalkit.store.writing.opening import announce
from evalkit.version import __version__
from tests.sim.cluster import connected
from tests.support.patience import PATIENCE_S
from tests.support.small_sweeps import TWO_POLICIES, resolved

pytestmark = pytest.mark.exhaustive


def hello(run: Path) -> Hello:
    """What a worker with the same code says that reads the same run, and that has not announced itself."""
    digest, code = manifest_digest(run), code_digests(read_manifest(run))
    return Hello(evalkit=__version__, log=FORMAT, writer=new_writer(), manifest=digest, code=code)


Talk = Callable[["Site"], Coroutine[None, None, None]]


class Site:
    """A run that is coordinated, as the process of one slot reaches it."""

    def __init__(self, spread: Spread, slot: WorkerSlot) -> None:
        self.run, self.spread, self.slot = spread.session.options.directory, spread, slot
        self.let_in = asyncio.Event()

    async def ask(self, question: Question) -> Reply:
        """The coordinator's answer."""
        answer = decode_reply(await self.spread.hear(self.slot, encode(question)))
        if isinstance(answer, Welcome):
            self.let_in.set()
        return answer

    async def hello(self, writer: str) -> Reply:
        """Say hello as a worker that has the same code and reads the same run."""
        announce(self.run, writer)
        return await self.ask(structs.replace(hello(self.run), writer=writer))


def coordinated(tmp_path: Path, talk: Talk, *, stops: bool = True) -> RunOutcome:
    """Coordinate a small run while somebody talks to it; then it is stopped, unless it ends by itself."""
    stop = Stop()

    async def talks(spread: Spread) -> None:
        over = asyncio.Event()

        async def life(slot: WorkerSlot) -> tuple[int, str]:
            if slot.number:
                await over.wait()
                return ENDED, ""
            await asyncio.sleep(0)  # the process of the other slot was started, too
            try:
                await talk(Site(spread, slot))
            finally:
                over.set()
            if stops:
                stop.set("interrupt", "Enough.")
            return ENDED, ""

        async with asyncio.timeout(PATIENCE_S):
            await spread.play(life)

    given = resolved(tmp_path, TWO_POLICIES)
    given = replace(given, sweep=replace(given.sweep, on="ray", workers=2))
    with (
        mock.patch.object(on_ray, "check_ray"),
        mock.patch.object(apart, "on_cluster", connected),
        mock.patch.object(apart, "play_on_ray", talks),
    ):
        return asyncio.run(run_sweep(given, RunOptions(directory=tmp_path / "run", stop=stop), lambda view: None))


def test_a_worker_with_another_version_or_other_code_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        plain, writer = hello(site.run), new_writer()
        announce(site.run, writer)
        assert {"environment scheduling", "policy knuth of scheduling"} <= plain.code.keys()
        other = {**plain.code, "policy knuth of scheduling": "x"}
        for asked, said in (
            (structs.replace(plain, evalkit="0.0.1"), "This worker has evalkit 0.0.1"),
            (structs.replace(plain, log=FORMAT + 1), f"log format {FORMAT + 1}; its coordinator has"),
            (plain, "is another directory on this worker's node"),
            (structs.replace(plain, writer=writer, manifest="other"), "another description of the run"),
            (structs.replace(plain, writer=writer, code={}), "other code than its coordinator for environment sched"),
            (structs.replace(plain, writer=writer, code=other), "its coordinator for policy knuth of scheduling"),
        ):
            answer = await site.ask(asked)
            assert isinstance(answer, WorkerRefused)
            assert said in answer.why
            assert not answer.after

    assert coordinated(tmp_path, talk).reason == "interrupt"


def test_names_of_writers_follow_each_other(tmp_path: Path) -> None:
    """Of two that choose a name at once, the second comes too late with the earlier one."""

    async def talk(site: Site) -> None:
        early = new_writer()
        late = new_writer([early])
        assert isinstance(await site.hello(late), Welcome)
        refused = await site.hello(early)
        assert isinstance(refused, WorkerRefused)
        assert refused.after == late
        assert isinstance(await site.hello(new_writer([refused.after])), Welcome)

    coordinated(tmp_path, talk)


def test_one_that_is_lost_is_sealed_and_what_it_had_goes_to_a_later_one(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer()
        await site.hello(writer)
        had = await site.ask(WorkReport(writer=writer))
        assert isinstance(had, WorkGrant)
        assert sum(len(lane.episodes) for lane in had.lanes.values()) > 16 / 2, "its part of the width, and some ahead"
        await site.spread.close_lost(site.slot)
        assert (newest_claim(site.run, writer) or {})["kind"] == "seal"
        answer = await site.ask(WorkReport(writer=writer))
        assert isinstance(answer, WorkerRefused)
        assert "its journal was sealed" in answer.why
        assert await worked(site.run, site) == (ENDED, "")

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)
    assert verify(tmp_path / "run") == []


def test_one_that_is_there_ends_and_one_in_its_place_goes_on_with_what_another_had(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        lost = Site(site.spread, site.spread.slots[1])
        writer = new_writer()
        await lost.hello(writer)
        await lost.ask(WorkReport(writer=writer))
        working = asyncio.create_task(worked(site.run, site))
        await site.let_in.wait()  # it is to begin before the other is taken for lost
        await site.spread.close_lost(lost.slot)
        assert await working == (ENDED, "")
        assert not site.spread.ends
        assert await worked(site.run, site) == (ENDED, "")

    outcome = coordinated(tmp_path, talk, stops=False)
    assert (outcome.reason, outcome.ended) == ("complete", 16)
    assert verify(tmp_path / "run") == []


def test_one_that_has_not_reported_yet_may_read_the_log_for_long_unless_the_run_ends(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        writer = new_writer()
        await site.hello(writer)
        spread, silent_s = site.spread, site.spread.times.silent_s
        assert patience_s(spread, site.slot) > 10 * silent_s
        await site.ask(WorkReport(writer=writer))
        assert patience_s(spread, site.slot) == silent_s
        spread.allocator.members[writer].report = None
        spread.allocator.finishing = True
        assert patience_s(spread, site.slot) == silent_s

    coordinated(tmp_path, talk)


def test_a_worker_makes_the_sweep_again_from_the_run(tmp_path: Path) -> None:
    async def talk(site: Site) -> None:
        answer, run = await site.hello(new_writer()), read_manifest(site.run)
        assert isinstance(answer, Welcome)
        made = resolved_from(answer, run)
        assert made.manifest == run
        assert (made.sweep.width, made.sweep.budget, made.endpoints) == (64, None, {})
        assert made.sweep.deadline_s is None

    coordinated(tmp_path, talk)
