import time
from pathlib import Path
from typing import Any

import pytest

from evalkit.store.live import FILE, publish, read_live, withdraw
from evalkit.store.lock import hold_run
from evalkit.view.home import progress

STATE: dict[str, Any] = {"event": "live", "done": 3, "lanes": {"a\u202eb": {"waits_for": "x" * 1000, "window": 4}}}


def test_nothing_is_live_without_a_writer_whatever_lies_there(tmp_path: Path) -> None:
    publish(tmp_path, {**STATE, "at": time.time()})
    assert progress(tmp_path) == {"running": False, "silent_s": None, "live": None, "ended": ""}


def test_a_run_that_nobody_writes_says_when_it_ended_and_why(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"time": 1764288000.5, "kind": "started"}\n')
    assert progress(tmp_path)["ended"] == "began 2025-11-28 00:00 UTC and did not say how it ended"
    with events.open("a") as file:
        file.write('{"time": 1764291600, "kind": "ended", "reason": "budget"}\n')
    assert progress(tmp_path)["ended"] == "ended 2025-11-28 01:00 UTC: budget"
    events.write_text('{"time": 1e300, "kind": "ended", "reason": "budget"}\n')
    assert progress(tmp_path)["ended"] == ""


def test_a_writer_is_shown_with_texts_made_safe(tmp_path: Path) -> None:
    publish(tmp_path, {**STATE, "at": time.time()})
    with hold_run(tmp_path):
        assert progress(tmp_path) == {
            "running": True,
            "silent_s": None,
            "live": None,
            "ended": "",
        }  # left by an earlier process
        publish(tmp_path, {**STATE, "at": time.time()})
        said = progress(tmp_path)
        assert said["running"]
        assert said["silent_s"] is None
        ((name, lane),) = said["live"]["lanes"].items()
        assert name == "a\\u202eb"
        assert len(lane["waits_for"]) < 350
        assert lane["window"] == 4


def test_a_writer_that_has_gone_silent_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_run(tmp_path) as hold:
        publish(tmp_path, {**STATE, "at": hold.me.started_at + 1})
        monkeypatch.setattr(time, "time", lambda: hold.me.started_at + 31)
        assert progress(tmp_path)["silent_s"] == 30


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"at": "x"}'])
def test_a_file_that_is_none_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with hold_run(tmp_path):
        assert progress(tmp_path)["live"] is None


def test_a_disk_that_refuses_holds_nothing_up(tmp_path: Path) -> None:
    publish(tmp_path / "gone", STATE)
    withdraw(tmp_path / "gone")
    assert read_live(tmp_path / "gone") is None
