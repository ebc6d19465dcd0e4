import os
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.support.command_line import Call, finish, start


def test_what_cannot_be_viewed_is_said_before_anything_is_served(call: Call, spec: Path, here: Path) -> None:
    assert "There is no folder runs/" in call("view").message
    call("run", "mine.toml")
    assert "Did you mean 'mine'?" in call("view", "mime").message
    (here / "empty").mkdir()
    assert "is no run directory" in call("view", "empty").message
    assert "--port: must be 0 to 65535" in call("view", "mine", "--port", "70000").message


@pytest.mark.exhaustive(but=1)
@pytest.mark.parametrize("where", ["page.html", "nowhere/page.html"])
def test_a_report_is_written_as_one_page(call: Call, spec: Path, here: Path, where: str) -> None:
    call("run", "mine.toml")
    said = call("report", "mine", "--html", where)
    if where.startswith("nowhere"):
        assert said.code == 2
        assert "--html: nowhere/page.html cannot be written" in said.err
        return
    assert said.code == 0, said.err
    text = (here / where).read_text()
    assert f"Wrote {where}: {len(text.encode()) / 1e6:.1f} MB, every table and figure, 4 trajectories." in said.out
    assert text.count('<script type="text/plain" id="episode-') == 4
    assert 'id="scores"' in text
    assert "this file has 4 of the run&#39;s 4 trajectories" in text
    assert 'http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;' in text


@pytest.mark.exhaustive
def test_ctrl_c_does_not_wait_for_what_is_being_read(call: Call, spec: Path, here: Path) -> None:
    call("run", "mine.toml")
    steps = next((here / "runs" / "mine" / "steps").iterdir())
    steps.unlink()
    os.mkfifo(steps)  # nobody writes to it, so that whoever reads it waits
    process = start(here, "view", "mine")
    assert process.stdout is not None
    url = process.stdout.readline().split()[2]
    with urllib.request.urlopen(url) as answer:
        assert answer.status == 202
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert (said.code, said.err) == (0, "")
