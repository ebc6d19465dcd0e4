"""Nights in which the provider refuses, fails or filters: they say what they could not measure, and raise no alarm."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from evalkit.client import retry
from evalkit.client.lanes import health, lane
from evalkit.nightly.night import Night, NightOptions, play_night
from evalkit.report.nights.history import CellNight, NightRecord, Rule, judged
from evalkit.store.lock import hold_run
from evalkit.view.home import nights_overview
from tests.support.command_line import Call
from tests.support.each_case import check_each
from tests.support.refusing import PROVIDER, Answer, Decide, Refusing, error, sweep_of, sweep_text

TEXT = sweep_text(replicates=1, width=8, instances=())
ODD = (400, error("max_tokens is too large: 16384.", "invalid_value"))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Waits of milliseconds in place of minutes, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retry, "FIRST_S", 0.01)
    monkeypatch.setattr(health, "FIRST_PROBE_S", 0.02)
    for module in (health, lane):
        monkeypatch.setattr(module, "GIVE_UP_S", 0.2)


def all_of(answer: Answer) -> Decide:
    return lambda episode, step, before: answer


def some(answer: Answer, share: int) -> Decide:
    """One of `share` episodes, at its second request; what is refused of others keeps the lane from seeing a row."""
    return lambda episode, step, before: answer if step == 1 and int(episode[:8], 16) % share == 0 else None


def good(episode: str, step: int, before: int) -> Answer | None:
    return None


class Nights:
    """Nights of one sweep, one day after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.played = folder, 0

    def __call__(self, decide: Decide) -> NightRecord:
        self.played += 1
        night = asyncio.run(self._play(decide, f"2026-11-{self.played:02}"))
        assert night.record is not None
        return night.record

    async def _play(self, decide: Decide, date: str) -> Night:
        async with Refusing(decide).listening() as url:
            options = NightOptions(directory=self.folder / "runs" / "mine", date=date, rule=Rule())
            with hold_run(options.folder):
                return await play_night(sweep_of(self.folder, url, TEXT), options, lambda view: None)


WHOLE = {
    "a refused parameter": all_of(ODD),
    "an outage": all_of((503, "")),
    "a spend limit as 400": all_of((400, error("Your credit balance is too low."))),
    "a filter": all_of((400, error("The prompt was filtered.", "content_filter"))),
    "a window that is too small at once": all_of((400, error("Too long.", "context_length_exceeded"))),
}
PART = {
    "a filter for some": some((400, error("The response was filtered.", "content_filter")), 2),
    "a parameter that some requests have": some(ODD, 3),
    "most requests at their second step": some((422, error("Role 'tool' may not be followed by 'user'.")), 1),
}


@pytest.mark.exhaustive
def test_nights_that_could_not_measure_raise_no_alarm_and_join_no_baseline(tmp_path: Path) -> None:
    play = Nights(tmp_path)
    for _ in range(3):
        assert play(good).remaining == 0

    def without_measurement(decide: Decide) -> None:
        record = play(decide)
        assert (record.measured, record.raised, record.remaining) == (False, (), 12)
        (cell,) = record.cells
        assert (cell.score, cell.low, cell.served) == (None, None, ())

    check_each(WHOLE.items(), without_measurement)

    def in_part(decide: Decide) -> None:
        record = play(decide)
        (cell,) = record.cells
        assert record.raised == ()
        assert record.remaining == sum(cell.gone.values()) > 0
        assert not cell.gone.keys() & cell.values.keys()
        assert cell.said is not None

    check_each(PART.items(), in_part)
    last = play(good)
    assert (last.remaining, last.raised, last.cells[0].why_unmeasured) == (0, (), "")
    assert len(last.cells[0].values) == 12


def a_night(number: int, high: int, low: int) -> NightRecord:
    """A night of 45 instances: so many of the 36 that score 0.9, and of the nine that score 0.1; the others were
    refused."""
    scores = {f"high{n}": 0.9 + number / 1000 for n in range(high)} | {f"low{n}": 0.1 for n in range(low)}
    gone = {f"high{n}": 1 for n in range(high, 36)} | {f"low{n}": 1 for n in range(low, 9)}
    cell = CellNight(
        agent="m",
        suite="s",
        key="k",
        pack="standard",
        planned=45,
        ended=dict.fromkeys(scores, 1),
        values={name: (score,) for name, score in scores.items()},
        score=None,
        low=None,
        high=None,
        episodes=len(scores),
        cost=0,
        tokens_in=0,
        tokens_out=0,
        steps=0,
        latency_s=0.0,
        served=("m-1",) if scores else (),
        refused=gone or msgspec.UNSET,
    )
    return NightRecord(format=1, night=f"2026-12-{number:02}", spent=0, query="", cells=(cell,))


@pytest.mark.parametrize("last", [[(0, 9)], [(1, 9), (36, 9)], [(36, 0), (0, 9)], [(0, 9), (0, 9), (0, 9)]])
def test_scores_of_other_instances_are_no_fall(last: list[tuple[int, int]]) -> None:
    history: list[NightRecord] = []
    for number, (high, low) in enumerate([*[(36, 9)] * 6, *last]):
        history.append(judged(history, a_night(number, high, low), {}, Rule()))
        assert history[-1].raised == (), history[-1].cells[0].why


@contextmanager
def beside(decide: Decide, folder: Path) -> Iterator[None]:
    """The provider in a thread of its own, for the command."""
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with Refusing(decide).listening() as url:
            (folder / "providers").mkdir(exist_ok=True)
            (folder / "providers" / "acme.toml").write_text(PROVIDER.format(url=url))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


def test_the_command_says_no_measurement_with_a_code_of_its_own(here: Path, call: Call) -> None:
    (here / "mine.toml").write_text(sweep_text(replicates=1, width=1, instances=()))
    for night in (1, 2):
        with beside(good, here):
            assert call("nightly", "mine.toml", "--date", f"2026-11-0{night}").code == 0
    with beside(all_of(ODD), here):
        said = call("nightly", "mine.toml", "--date", "2026-11-03")
    assert said.code == 5
    assert "no measurement: m on pricing/basic?periods=1: 5 of its 12 episodes were refused" in " ".join(
        said.out.split()
    )
    assert "max_tokens is too large: 16384." in said.out
    for words in ("REGRESSION", "another model", "No alarm."):
        assert words not in said.out
    looked = call("nightly", "mine.toml", "--look", "--json", "--html", "nights.html")
    told = json.loads(looked.out)
    assert (looked.code, told["measured"], told["alarms"], told["cells"][0]["refused"]) == (5, False, [], 5)
    page = (here / "nights.html").read_text()
    assert "no measurement" in page
    assert "served a different model" not in page
    with beside(good, here):  # mended: the same night goes on
        again = call("nightly", "mine.toml", "--date", "2026-11-03")
    assert (again.code, "No alarm." in again.out) == (0, True)


@pytest.mark.exhaustive
def test_an_alarm_stands_over_a_night_without_measurement(tmp_path: Path) -> None:
    """A model that never acts falls to 0: that is an alarm, and stays one after a night that could not measure."""
    play = Nights(tmp_path)
    silent = (200, '{"choices":[{"message":{"content":"no"},"finish_reason":"stop"}],"usage":{}}')
    for _ in range(3):
        play(good)
    fallen = play(all_of(silent))
    assert len(fallen.raised) == 1, fallen.cells[0].alarm
    assert play(all_of(ODD)).raised == ()
    after = play(all_of(silent))
    (cell,) = after.raised
    assert cell.alarm is not None
    assert cell.alarm.since == fallen.night
    assert nights_overview("mine", tmp_path / "runs" / "mine" / "nights", [fallen, after]).word == "regression"
