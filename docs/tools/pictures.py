"""Makes the pictures of the documents, at docs/images: pages of runs/quickstart, the terminal while it is played,
and the table of docs/deciding.md as a chart.

    .venv/bin/evalkit run quickstart
    .venv/bin/python -m docs.tools.pictures

Names of pictures (`terminal`) make these alone. `deciding` needs neither that run nor a browser; the others need
Chromium at /usr/bin/chromium, or where CHROMIUM says.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from bench.calibrations.deciding import PAGE as DECIDING_PAGE
from docs.tools.deciding_picture import NAME as DECIDING
from docs.tools.deciding_picture import figure as deciding_figure
from evalkit.cli.display import render
from evalkit.engine.loop import finish
from evalkit.engine.view import View
from evalkit.playing.call import call_of
from evalkit.report.figures.draw import svg
from evalkit.report.views import open_views
from evalkit.spec.sweep import find_sweep, read_sweep

PROJECT = Path(__file__).resolve().parent.parent.parent
IMAGES = PROJECT / "docs" / "images"
RUN = PROJECT / "runs" / "quickstart"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
EPISODE = """
select episode from episodes
where agent = 'knuth' and suite = 'scheduling/medium' and instance = 'seed-0' and replicate = 0
"""
COMPARED = {
    "first": "quickstart",
    "second": "quickstart",
    "first_agent": "greedy",
    "second_agent": "replanner",
}
TERMINAL = "terminal"
SHARE = 0.55
"""Of the episodes that have ended where the terminal is shown."""
COLUMNS, LINES = 100, 30


def pages() -> Mapping[str, tuple[str, int, int]]:
    """By picture: the address of a page, its width and its height."""
    episode = open_views(RUN).sql(EPISODE).column("episode")[0].as_py()
    return {
        "episode": (f"/run/quickstart/episode/{episode}", 1280, 760),
        "run": ("/run/quickstart/", 1400, 840),
        "finding": (f"/compare?{urlencode(COMPARED)}", 1400, 760),
    }


@contextmanager
def served(*words: str) -> Iterator[str]:
    """The address of the pages that a command serves."""
    command = [sys.executable, "-m", "evalkit", *words]
    # Our own command, without a shell.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        assert server.stdout
        found = re.search(r"http://[\w.:]+", server.stdout.readline())
        assert found, f"evalkit {words[0]} said no address"
        try:
            yield found[0]
        finally:
            server.terminate()


def take(browser: Browser, address: str, name: str, *, width: int, height: int) -> None:
    """One picture of a page, once its charts are drawn."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector("main table, main .plot svg")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=str(IMAGES / f"{name}.png"))
    page.close()


def played() -> View:
    """What `evalkit run quickstart` shows in the middle, played here in a folder of its own."""
    views = list[View]()
    with TemporaryDirectory() as folder:
        call = call_of(read_sweep(find_sweep("quickstart")), directory=Path(folder) / "quickstart")
        finish(lambda stop: call.play(stop, views.append))
    return next(view for view in views if _ended(view) > SHARE)


def take_terminal(browser: Browser, shown: View) -> None:
    """One picture of the terminal."""
    console = Console(record=True, width=COLUMNS, height=LINES, file=io.StringIO())
    console.print("$ evalkit run quickstart")
    console.print(render(shown, COLUMNS, LINES))
    # Its fonts are not fetched from anywhere: the machine's own stand in for them.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="evalkit"), flags=re.DOTALL)
    page = browser.new_page(viewport={"width": 1240, "height": 800}, device_scale_factor=1)
    page.set_content(f"<style>body {{ margin: 0 }} svg {{ width: 1240px }}</style>{svg}")
    page.locator("svg").screenshot(path=str(IMAGES / f"{TERMINAL}.png"), omit_background=True)
    page.close()


def _ended(view: View) -> float:
    return sum(lane.done for lane in view.lanes) / sum(lane.episodes for lane in view.lanes)


def draw_deciding() -> None:
    """The chart of docs/deciding.md, of what its table says."""
    text = svg(deciding_figure(DECIDING_PAGE.read_text(encoding="utf-8")))
    (IMAGES / f"{DECIDING}.svg").write_text(text + "\n", encoding="utf-8")


def take_all(names: Sequence[str]) -> None:
    """Pictures that a browser takes, by name; all if none is named."""
    addresses = pages()
    with served("view", str(RUN)) as url, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name in names or [*addresses, TERMINAL]:
            if name == TERMINAL:
                take_terminal(browser, played())
            else:
                address, width, height = addresses[name]
                take(browser, f"{url}{address}", name, width=width, height=height)
        browser.close()


def main() -> None:
    """All pictures, or those that are named."""
    named = sys.argv[1:]
    taken = [name for name in named if name != DECIDING]
    IMAGES.mkdir(exist_ok=True)
    if taken or not named:
        take_all(taken)
    if DECIDING in named or not named:
        draw_deciding()


if __name__ == "__main__":
    main()
