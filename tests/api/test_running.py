"""`run` and `run_async`: from files, names and mappings; in threads, within loops, twice, at once, cancelled."""

import asyncio
import gc
import json
import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import evalkit
from evalkit.cli.main import main
from evalkit.serve.launch import simulated
from tests.api.specs import KNUTH, LAB, policies, served


def test_a_mapping_runs_as_its_file_does(here: Path) -> None:
    file = here / "mine.toml"
    file.write_text(
        'replicates = 1\n[[agents]]\npolicy = "knuth"\n[[agents]]\npolicy = "random"\n'
        '[[suites]]\nname = "scheduling/basic"\ninstances = ["seed-0", "seed-3"]\nvary = { periods = [4] }\n'
    )
    by_file, by_text = evalkit.run(file, name="file"), evalkit.run("mine.toml", directory="elsewhere")
    mapped = evalkit.run(policies())
    assert (by_file.name, by_file.directory) == ("file", here / "runs" / "file")
    assert (by_text.name, by_text.directory) == ("mine", here / "elsewhere")
    query = "select episode, score, ending from episodes order by episode"
    assert mapped.sql(query) == by_file.sql(query) == by_text.sql(query)
    assert mapped.reason == "complete"
    assert (mapped.planned, mapped.ended, mapped.void, mapped.spent_usd) == (4, 4, 0, Decimal(0))


def test_a_call_resumes_and_extends() -> None:
    begun = evalkit.run(policies(), limit=1)
    assert (begun.reason, begun.planned, begun.ended) == ("limit", 4, 1)
    rest = evalkit.run(policies())
    assert (rest.reason, rest.ended) == ("complete", 4)
    more = evalkit.run(policies(replicates=2), only={"suite": ["scheduling/basic"], "agent": ["random"]})
    assert (more.reason, more.planned, more.ended) == ("complete", 8, 6)
    assert evalkit.run(policies(replicates=2)).ended == 8
    assert main(["verify", "mine"]) == 0


def test_what_it_counts_is_what_the_report_counts(capsys: pytest.CaptureFixture[str]) -> None:
    run = evalkit.run(policies(replicates=2), limit=5)
    for void in (False, True):
        if void:
            assert main(["tools", "void", "mine", "--episode", KNUTH, "--reason", "a trial"]) == 0
        capsys.readouterr()
        assert main(["report", "mine", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)["run"]
        run = evalkit.load("mine")
        assert (run.planned, run.ended, run.void) == (said["planned"], said["ended"], said["void"])
    assert run.void == 1


def test_a_mapping_may_hold_what_python_has_for_the_values_of_a_file(here: Path) -> None:
    (here / "mine.toml").write_text('[scheduling]\nsystem = "Match them."\n')
    agents = ({"policy": "knuth", "prompts": here / "mine.toml", "tags": ("open",)},)
    suites = ({"name": "scheduling/basic", "instances": ("seed-0",), "vary": {"periods": (4, 5)}},)
    spec = MappingProxyType({"name": "mine", "budget_usd": Decimal("1.50"), "agents": agents, "suites": suites})
    before = repr(spec)
    run = evalkit.run(spec)
    assert (run.reason, run.ended) == ("complete", 2)
    assert run.table("agents").select(["pack", "tags"]).to_pylist() == [{"pack": "mine", "tags": ["open"]}]
    assert repr(spec) == before


def test_a_plan_is_made_within_a_loop_too() -> None:
    async def notebook() -> evalkit.Plan:
        return evalkit.plan(policies())

    assert [cell.episodes for cell in asyncio.run(notebook()).cells] == [2, 2]


def test_a_loop_that_runs_stands_still_for_it() -> None:
    async def notebook() -> evalkit.Run:
        return evalkit.run(policies())

    assert asyncio.run(notebook()).reason == "complete"


def test_off_the_main_thread_and_several_at_once() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda name: evalkit.run(policies(name)), ["a", "b", "c"]))
    assert [(run.name, run.reason, run.ended) for run in runs] == [(name, "complete", 4) for name in "abc"]
    assert {number: signal.getsignal(number) for number in before} == before


def test_in_a_thread_that_has_a_loop_of_its_own() -> None:
    async def within() -> evalkit.Run:
        return evalkit.run(policies())

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, within()).result().ended == 4


def test_two_at_once_on_one_loop() -> None:
    async def both() -> list[evalkit.Run]:
        return list(await asyncio.gather(evalkit.run_async(policies("a")), evalkit.run_async(policies("b"))))

    assert [run.ended for run in asyncio.run(both())] == [4, 4]


def test_two_of_one_directory_at_once_are_refused() -> None:
    async def both() -> list[object]:
        return await asyncio.gather(
            *(evalkit.run_async(policies(replicates=20)) for _ in range(2)), return_exceptions=True
        )

    done = asyncio.run(both())
    assert sorted(type(one).__name__ for one in done) == ["Run", "RunError"]


def test_handlers_of_the_caller_are_in_place_afterwards() -> None:
    def mine(number: int, frame: Any) -> None: ...

    before, at_first = signal.signal(signal.SIGTERM, mine), signal.getsignal(signal.SIGINT)
    try:
        evalkit.run(policies())

        async def notebook() -> None:
            evalkit.run(policies("other"))

        asyncio.run(notebook())
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGINT) is at_first


def test_a_run_is_read_from_wherever_one_works_by_then(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = evalkit.run(policies())
    (here / "other").mkdir()
    monkeypatch.chdir(here / "other")
    assert run.table("episodes").num_rows == 4


def test_runs_that_overlap_leave_the_collector_as_it_was() -> None:
    before = gc.get_threshold()

    async def overlapping() -> None:
        short = asyncio.create_task(evalkit.run_async(policies("short")))
        await asyncio.gather(short, evalkit.run_async(policies("long", replicates=30)))

    asyncio.run(overlapping())
    assert gc.get_threshold() == before


def test_progress_comes_as_values_and_its_last_is_the_end() -> None:
    seen: list[evalkit.Progress] = []
    where: list[threading.Thread] = []

    def look(now: evalkit.Progress) -> None:
        seen.append(now)
        where.append(threading.current_thread())

    evalkit.run(policies(replicates=3), on_progress=look)
    last = seen[-1]
    assert (last.name, last.planned, last.ended, last.playing, last.stopping) == ("mine", 12, 12, 0, "")
    assert (last.spent_usd, last.budget_usd, last.steps) == (Decimal(0), None, last.steps)
    assert last.steps > 12
    assert list(last.lanes) == ["policy"]
    assert [now.ended for now in seen] == sorted(now.ended for now in seen)
    assert set(where) == {threading.main_thread()}


def test_what_a_listener_raises_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def look(now: evalkit.Progress) -> None:
        raise ValueError("a slip of the listener's")

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        assert evalkit.run(policies(), on_progress=look).ended == 4
    assert "a slip of the listener's" in caplog.text


def test_a_cancelled_run_drains_and_the_next_call_goes_on(here: Path) -> None:
    (here / "providers").mkdir()
    with simulated({"latency": "0.02s", "bill": str(here / "bill.jsonl")}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))

        async def some() -> evalkit.Progress:
            reached: asyncio.Future[evalkit.Progress] = asyncio.get_running_loop().create_future()

            def look(now: evalkit.Progress) -> None:
                if now.steps and not reached.done():
                    reached.set_result(now)

            task = asyncio.create_task(evalkit.run_async(served(), on_progress=look))
            await reached
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return reached.result()

        seen = asyncio.run(some())
        begun = evalkit.load("mine")
        assert begun.reason == "interrupt"
        assert begun.ended < begun.planned == 24
        steps = begun.sql("select count(*) as n from steps").column("n")[0].as_py()
        billed = [json.loads(line) for line in (here / "bill.jsonl").read_text().splitlines()]
        assert len(billed) == steps >= seen.steps > 0  # what was asked for was awaited and kept
        assert begun.spent_usd == Decimal(sum(line["cost"] for line in billed)) / 10**12

        done = evalkit.run(served())
        assert (done.reason, done.ended) == ("complete", 24)
        assert done.spent_usd > begun.spent_usd
        asked = [
            json.loads(line)["request_id"].rpartition("/")[0] for line in (here / "bill.jsonl").read_text().splitlines()
        ]
        assert len(set(asked)) == len(asked)


@pytest.mark.exhaustive
def test_cancelled_twice_it_stops_at_once(here: Path) -> None:
    (here / "providers").mkdir()
    with simulated({"latency": "3600s"}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))

        async def some() -> None:
            reached, drains = asyncio.Event(), asyncio.Event()

            def look(now: evalkit.Progress) -> None:
                if any(lane["in_flight"] for lane in now.lanes.values()):
                    (drains if now.stopping else reached).set()

            task = asyncio.create_task(evalkit.run_async(served(), on_progress=look))
            await reached.wait()
            task.cancel()
            await asyncio.wait([task, asyncio.ensure_future(drains.wait())], return_when=asyncio.FIRST_COMPLETED)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(some())
    assert evalkit.load("mine").reason == "interrupt"


@pytest.mark.exhaustive
def test_a_timeout_drains_too(here: Path) -> None:
    (here / "providers").mkdir()
    with simulated({"latency": "0.05s"}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))

        async def some() -> None:
            async with asyncio.timeout(None) as limit:

                def look(now: evalkit.Progress) -> None:
                    if now.steps:
                        limit.reschedule(asyncio.get_running_loop().time())

                await evalkit.run_async(served(replicates=50, width=2), on_progress=look)

        with pytest.raises(TimeoutError):
            asyncio.run(some())
        run = evalkit.load("mine")
        assert run.reason == "interrupt"
        assert main(["verify", "mine"]) == 0


@pytest.mark.exhaustive
def test_a_budget_is_an_outcome(here: Path) -> None:
    (here / "providers").mkdir()
    with simulated({}) as url:
        (here / "providers" / "lab.toml").write_text(LAB.format(url=url))
        run = evalkit.run(served(budget_usd=Decimal("0.30")))
        assert run.reason == "budget"
        assert 0 < run.spent_usd <= Decimal("0.30")
        assert "budget" in " ".join(run.messages)
        assert evalkit.load("mine") == run
        rest = evalkit.run(served(budget_usd="5"))
        assert (rest.reason, rest.ended) == ("complete", 24)
