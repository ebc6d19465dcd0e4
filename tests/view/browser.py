"""Headless Chromium for tests: pages that may ask this machine alone, and whose every complaint is kept."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.command_line import interrupt
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@contextmanager
def chromium() -> Iterator["Browser"]:
    """The browser; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}: install Debian's package chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass(slots=True)
class Tab:
    """One page."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of its console, scripts that failed, requests that left the machine."""

    def clean(self) -> None:
        """Nothing went wrong, nobody outside was asked, and no script of a model's ran."""
        assert self.complaints == []
        assert self.page.evaluate("window.hacked") is None

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window, once its style is there."""
        self.page.wait_for_load_state()
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


@contextmanager
def tab(browser: "Browser", url: str, *, width: int = 1280, dark: bool = False) -> Iterator[Tab]:
    """A page at an address, with a fresh profile."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", locale="en-US"
    )
    opened = Tab(context.new_page())

    def allow(route: Any) -> None:
        if route.request.url.startswith(("http://127.0.0.1:", "file:///", "data:")):
            route.continue_()
        else:
            opened.complaints.append(f"asked for {route.request.url}")
            route.abort()

    context.route("**/*", allow)
    opened.page.on(
        "console", lambda said: opened.complaints.append(said.text) if said.type in ("error", "warning") else None
    )
    opened.page.on("pageerror", lambda flaw: opened.complaints.append(str(flaw)))
    opened.page.set_default_timeout(PATIENCE_S * 1000)
    opened.page.goto(url)
    yield opened
    context.close()


@contextmanager
def viewing(folder: Path, *runs: str) -> Iterator[str]:
    """The address of `evalkit view` in a folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evalkit", "view", *runs],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://[\w.:]+", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        interrupt(process)
        assert process.wait(PATIENCE_S) == 0
        process.stdout.close()
