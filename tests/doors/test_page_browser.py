"""A person plays in a real browser, against `evalkit play --page` in a process of its own."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import evalkit
from tests.support.command_line import finish, interrupt, start
from tests.view.browser import chromium, tab

pytestmark = pytest.mark.exhaustive

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def started(folder: Path, suite: str, *more: str) -> tuple[subprocess.Popen[str], str]:
    """(the server, its address)."""
    process = start(folder, "play", suite, "--page", *more)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None, process.communicate()
    return process, found[0]


@contextmanager
def page_of(folder: Path, suite: str, *more: str) -> Iterator[str]:
    process, url = started(folder, suite, *more)
    try:
        yield url
    finally:
        interrupt(process)
        assert finish(process).code == 0


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def tool(page: Any, name: str) -> Any:
    """A tool's form, opened."""
    one = page.locator("details.tool", has=page.locator(f"summary .name:text-is('{name}')"))
    if one.get_attribute("open") is None:
        one.locator("summary").first.click()
    return one


def test_an_episode_is_played_with_the_keyboard_and_goes_on_after_a_kill(browser: Any, tmp_path: Path) -> None:
    port = free_port()
    process, url = started(tmp_path, "scheduling/basic", "--port", port)
    try:
        with tab(browser, url, width=400) as opened:
            page = opened.page
            page.get_by_role("link", name="Play the next one").click()
            page.get_by_role("button", name=re.compile("get_worker_ids")).focus()
            page.keyboard.press("Enter")
            page.wait_for_url("**#now")
            assert "W1" in page.locator("#chat").inner_text()
            form = tool(page, "write_notes")
            form.locator("textarea").first.fill(HOSTILE)
            page.keyboard.press("Tab")  # a text field lets go of the focus
            page.keyboard.press("Enter")
            page.get_by_text("you call write_notes").wait_for()
            assert page.locator("#chat img, #chat script").count() == 0
            form = tool(page, "read_notes")
            form.locator("input[type=number]").fill("0")
            left = page.locator("dl.facts").inner_text()
            before = page.locator("#chat").inner_text()
            process.send_signal(signal.SIGKILL)
            process.communicate()
            process, again = started(tmp_path, "scheduling/basic", "--port", port)
            assert again == url
            # The page that is still open has a form of the server that is gone.
            form.get_by_role("button", name="Call read_notes", exact=True).click()
            page.get_by_text("has been started again").wait_for()
            assert page.locator("dl.facts").inner_text() == left
            assert page.locator("#chat").inner_text() == before
            assert tool(page, "read_notes").locator("input[type=number]").input_value() == "0"
            tool(page, "read_notes").get_by_role("button", name="Call read_notes", exact=True).click()
            page.wait_for_url("**#now")
            assert HOSTILE in page.locator("#chat").inner_text()
            assert opened.overflow() <= 0
            assert page.evaluate("window.hacked") is None
            # Of a form that is not accepted the browser's console has the status, and nothing else.
            assert all("409" in one for one in opened.complaints), opened.complaints
    finally:
        interrupt(process)
        assert finish(process).code == 0
    episode = evalkit.load(tmp_path / "runs" / "human").episode("human:scheduling/basic:seed-0:0")
    calls = [call.name for reply in episode.replies if reply is not None for call in reply.calls]
    assert calls == ["get_worker_ids", "write_notes", "read_notes"]


def test_a_second_tab_is_told_and_a_double_click_is_one_reply(browser: Any, tmp_path: Path) -> None:
    with (
        page_of(tmp_path, "costbench/basic", "--instance", "location-0000") as url,
        tab(browser, url) as first,
        tab(browser, url) as second,
    ):
        chosen = ("mountain", "small_town", "historic_and_traditional", "architectural_marvel")
        for one in (first, second):
            form = tool(one.page, "Decide_Location_Preference")
            for number, value in enumerate(chosen):
                form.locator("select").nth(number).select_option(value)
        first.page.locator("details[open] button.go").first.dblclick()
        first.page.wait_for_url("**#now")
        assert "<dd>1" in re.sub(r"\s", "", first.page.locator("dl.facts").inner_html())
        second.page.locator("details[open] button.go").first.click()
        second.page.get_by_text("This turn has a reply already").wait_for()
        kept = tool(second.page, "Decide_Location_Preference").locator("select").first
        assert kept.locator("option:checked").inner_text() == "mountain"
        first.clean()
    episode = evalkit.load(tmp_path / "runs" / "human").episode("human:costbench/basic:location-0000:0")
    assert len(episode.replies) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_a_telephone_and_a_tablet(browser: Any, tmp_path: Path, dark: bool) -> None:
    with page_of(tmp_path, "costbench/basic") as url:
        for width in (400, 768, 1400):
            with tab(browser, url, width=width, dark=dark) as opened:
                assert opened.overflow() <= 0, (url, width)
                opened.page.goto(f"{url}/location-0000:0")
                tool(opened.page, "Decide_Location_Preference")
                assert opened.overflow() <= 0, width
                paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (paper == "rgb(255, 255, 255)") == (not dark)
                opened.clean()
