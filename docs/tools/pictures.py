"""Makes the pictures of the documents: pages of runs/quickstart in headless Chromium, at docs/images.

    .venv/bin/evalkit run quickstart
    .venv/bin/python -m docs.tools.pictures

Needs Chromium at /usr/bin/chromium, or where CHROMIUM says.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from evalkit.report.views import open_views

PROJECT = Path(__file__).resolve().parent.parent.parent
IMAGES = PROJECT / "docs" / "images"
RUN = PROJECT / "runs" / "quickstart"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
EPISODE = """
select episode from episodes
where agent = 'knuth' and suite = 'scheduling/medium' and instance = 'seed-0' and replicate = 0
"""


def take(browser: Browser, address: str, name: str, *, width: int, height: int) -> None:
    """One picture of a page, once its charts are drawn."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector("main table, main .plot svg")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=str(IMAGES / name))
    page.close()


def main() -> None:
    """Both pictures."""
    episode = open_views(RUN).sql(EPISODE).column("episode")[0].as_py()
    IMAGES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "evalkit", "view", str(RUN)]
    # Our own command, without a shell.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as started:  # noqa: S603
        assert server.stdout
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found, "evalkit view said no address"
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        take(browser, f"{found[0]}/run/quickstart/episode/{episode}", "episode.png", width=1280, height=760)
        take(browser, f"{found[0]}/run/quickstart/", "run.png", width=1400, height=840)
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
