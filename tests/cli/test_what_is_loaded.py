"""What a command loads of evalkit: what it needs, and no more."""

import subprocess
import sys
from pathlib import Path

SWEEP = """
name = "small"
[[agents]]
policy = "random"
[[suites]]
name = "costbench/basic"
instances = ["location-0006"]
"""

SCRIPT = """
import sys
from evalkit.cli.main import main
code = max(main(words.split()) for words in sys.argv[1:])
sys.stdout.flush()
print("\\nloaded:", code, *sorted(name for name in sys.modules if name.startswith("evalkit.") or name == "vl_convert"))
"""

PLAYED = """
import sys
from evalkit.api.running import run
run(sys.argv[1])
print("\\nloaded: 0", *sorted(name for name in sys.modules if name.startswith("evalkit.")))
"""


def loaded(folder: Path, script: str, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    _, code, *names = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stdout
    return set(names)


def below(names: set[str], *rooms: str) -> list[str]:
    return sorted(name for name in names if any(name == room or name.startswith(f"{room}.") for room in rooms))


def test_a_command_loads_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SWEEP)
    others = [f"evalkit.envs.{name}" for name in ("scheduling", "pricing", "procurement", "errand")]

    played = loaded(tmp_path, PLAYED, "small.toml")
    assert "evalkit.engine.sweep" in played
    assert below(played, "evalkit.stats", "evalkit.machines", "evalkit.report", "evalkit.serve", *others) == []

    again = loaded(tmp_path, PLAYED, "small.toml")
    assert below(again, "evalkit.engine.sweep", "evalkit.engine.session", "evalkit.client.lanes", "evalkit.stats") == []
    assert below(again, "evalkit.client.transport", "evalkit.engine.episode", "evalkit.engine.admit", *others) == []

    read = loaded(tmp_path, SCRIPT, "report runs/small")
    assert "evalkit.report.scores" in read
    assert below(read, "evalkit.client", "evalkit.engine.sweep", *others) == []

    told = [f"{command} runs/small" for command in ("status", "verify", "show", "report --html page.html")]
    assert below(loaded(tmp_path, SCRIPT, *told), *others, "vl_convert") == []  # the script of figures is shipped made
