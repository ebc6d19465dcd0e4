"""The loop of a run, and what an agent's code may do beside it without ending or holding up the run."""

import asyncio
import signal
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pytest

from evalkit.engine import loop as loops
from evalkit.engine.loop import interruptible, run_loop
from evalkit.engine.options import Stop


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for by the clock."""
    monkeypatch.setattr(loops, "GRACE_S", 0.01)
    monkeypatch.setattr(loops, "STUCK_S", 0.0)


async def leaving(flaw: BaseException) -> None:
    raise flaw


@pytest.mark.parametrize(
    ("flaw", "signals"),
    [
        (SystemExit(7), interruptible(Stop())),
        (KeyboardInterrupt(), interruptible(Stop())),
        (SystemExit(7), nullcontext()),
    ],
)
def test_what_a_task_beside_a_run_raises_does_not_end_it(
    flaw: BaseException, signals: AbstractContextManager[None]
) -> None:
    async def run() -> str:
        with signals:
            beside = asyncio.ensure_future(leaving(flaw))
            asyncio.get_running_loop().call_soon(lambda: (_ for _ in ()).throw(flaw))
            await asyncio.wait({beside})
            await asyncio.sleep(0)
            assert beside.exception() is flaw
        return "ended"

    assert run_loop(run()) == "ended"


@pytest.mark.parametrize("flaw", [SystemExit(7), KeyboardInterrupt(), ValueError("mine")])
def test_what_a_run_itself_raises_is_raised(flaw: BaseException) -> None:
    with pytest.raises(type(flaw)):
        run_loop(leaving(flaw))


def test_ctrl_c_before_a_run_hears_of_signals_ends_it() -> None:
    async def run() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_loop(run())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loop_that_is_stopped_goes_on() -> None:
    async def run() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "ended"

    assert run_loop(run()) == "ended"


def test_what_does_not_end_is_left_behind(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    over, kept = threading.Event(), list[Any]()
    monkeypatch.setattr(loops, "LEFT", [])

    async def deaf() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                kept.append("cancelled")

    async def run() -> str:
        kept.append(asyncio.ensure_future(deaf()))
        kept.append(asyncio.get_running_loop().run_in_executor(None, over.wait))
        await asyncio.sleep(0)
        return "ended"

    assert run_loop(run()) == "ended"
    assert kept[2:] == ["cancelled"]
    assert loops.LEFT[0] is kept[0]
    assert [type(one) for one in loops.LEFT[1:]] == [threading.Thread]
    blocked = [thread for thread in threading.enumerate() if thread.name.startswith("evalkit-loop")]
    assert len(blocked) == 1
    over.set()
    blocked[0].join()
    kept.clear()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_raised_in_what_holds_up_the_loop(number: int) -> None:
    stop = Stop()

    async def run() -> list[str]:
        said = []
        with interruptible(stop):
            signal.raise_signal(number)
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                said.append("raised")
            said.append(stop.reason)
            heard = asyncio.Event()
            stop.listen(heard.set)
            with suppress(asyncio.CancelledError):  # two signals end it at once
                await heard.wait()
        return [*said, stop.reason]

    said = run_loop(run())
    assert said[:2] == ["raised", ""]
    assert said[-1] == "interrupt"


def test_signals_that_the_loop_hears_are_raised_nowhere() -> None:
    async def run() -> int:
        stop, heard, told = Stop(), 0, asyncio.Event()
        stop.listen(told.set)
        with interruptible(stop):
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
                try:
                    await told.wait()
                except asyncio.CancelledError:
                    return heard
                heard += 1
                told.clear()
        return heard

    assert run_loop(run()) == 1
