from pathlib import Path

import pytest

from evalkit.errors import StorageError
from evalkit.store.events import FILE, read_events


def test_lines_that_are_no_objects_say_nothing(tmp_path: Path) -> None:
    lines = [
        b'{"kind":"started","n":1}',
        b'["started"]',
        b'"started"',
        b"null",
        b'\xff "started"',
        b'{"kind":["started"]}',
        b'{"kind":"ended","why":"started"}',
        b"[" * 5000 + b'"started"',
        b'{"kind":"started","n":2}',
        b'{"kind":"started","n":',
    ]
    (tmp_path / FILE).write_bytes(b"\n".join(lines))
    assert [event["n"] for event in read_events(tmp_path, "started")] == [1, 2]
    assert [event["kind"] for event in read_events(tmp_path, "started", "ended")] == ["started", "ended", "started"]


def test_a_run_may_have_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path, "started")) == []


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StorageError, match=FILE):
        list(read_events(tmp_path, "started"))
