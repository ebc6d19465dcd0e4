import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalkit.errors import RunError
from evalkit.store.lock import hold_run, holder

HOLD = """
import sys
from pathlib import Path
from evalkit.store.lock import hold_run
with hold_run(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(run: Path) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_process_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with start_holder(run) as child:
        before = (run / "lock").read_bytes()
        with pytest.raises(RunError, match=rf"process {child.pid} on {os.uname().nodename}"), hold_run(run):
            pass
        assert (run / "lock").read_bytes() == before
        seen = holder(run)
        assert seen is not None
        assert seen.pid == child.pid
        assert child.stdin is not None
        child.stdin.close()
    assert holder(run) is None


def test_the_lock_of_a_killed_process_is_no_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with start_holder(run) as child:
        child.kill()
    with hold_run(run) as me:
        assert me.pid == os.getpid()
        assert holder(run) == me


def test_the_same_process_cannot_write_a_run_twice(tmp_path: Path) -> None:
    with hold_run(tmp_path), pytest.raises(RunError, match=str(os.getpid())), hold_run(tmp_path):
        pass
