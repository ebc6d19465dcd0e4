"""`evalkit run` against a provider that has a URL: what it loads, and what not."""

import subprocess
import sys
from pathlib import Path

import pytest

from evalkit.serve.launch import simulated
from tests.support.command_line import LAB, SERVED

SCRIPT = """
import sys
from evalkit.cli.main import main
code = main(["run", "mine.toml", "--only", "agent=knuth"])
print("exit", code, *sorted(name for name in sys.modules if name.startswith("evalkit.serve")))
"""


@pytest.mark.exhaustive
def test_a_run_against_a_real_url_loads_no_simulated_provider(tmp_path: Path) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "mine.toml").write_text(SERVED.format(width=2, periods=2))
    with simulated({}) as url:
        (tmp_path / "providers" / "lab.toml").write_text(LAB.format(url=url, more=""))
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert " episodes ended" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "exit 0"
