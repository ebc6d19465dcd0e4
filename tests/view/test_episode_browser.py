"""The page of an episode in a real browser: periods that come when they are opened, addresses of turns, keys."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evalkit.view import chat
from evalkit.view import episode as module
from evalkit.view.reading import Reading
from evalkit.view.run_cache import RunCache
from evalkit.view.server import serving
from tests.support.patience import PATIENCE_S
from tests.view.browser import chromium, tab
from tests.view.test_episode import id_of

pytestmark = pytest.mark.exhaustive


@contextmanager
def served(*runs: Path) -> Iterator[str]:
    """The address of a server in a thread of this process, which sees what a test has patched."""
    loop, ready, told = asyncio.new_event_loop(), threading.Event(), list[str]()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(RunCache(runs)) as url:
            told.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield told[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_periods_come_when_they_are_opened(run: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INLINE", 10)
    monkeypatch.setattr(chat, "OPEN", 1)
    where = f"/run/shown/episode/{id_of(reading, 'oracle', 'pricing')}"
    with chromium() as browser, served(run) as url, tab(browser, f"{url}{where}#p2t1") as opened:
        page = opened.page
        focused = "place => [document.activeElement.id, document.activeElement.parentElement.id].includes(place)"
        page.wait_for_function(focused, arg="p2t1")
        assert page.locator("details.period[open]").count() == 1
        assert page.locator("#p2 .part").count() > 2
        assert page.locator("#p1 .part").count() == 0
        for key, place in (("k", "p2t0"), ("k", "p1t1"), ("]", "p2"), ("]", "p3"), ("j", "p3t0"), ("[", "p2")):
            page.keyboard.press(key)
            page.wait_for_function(focused, arg=place)
        page.locator("#p0 summary").first.click()
        page.locator("#p0t0").wait_for()
        page.goto(f"{url}{where}/period/1")
        page.keyboard.press("]")
        page.wait_for_url("**/period/2")
        opened.clean()
