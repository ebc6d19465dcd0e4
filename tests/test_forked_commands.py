"""A command that is forked says and does what a new process says and does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked_commands

PROJECT = Path(__file__).resolve().parent.parent


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", [("--version",), ("stauts",), ("status", "nowhere"), ("plugins",), ("new", "a.toml")])
def test_a_fork_ends_and_prints_as_a_new_process_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "70"}
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
    forked = forked_commands.evalkit(words, folders[0], environment)
    new = subprocess.run(
        [sys.executable, "-m", "evalkit", *words],
        capture_output=True,
        text=True,
        cwd=folders[1],
        env=environment,
        check=False,
    )
    assert (forked.returncode, forked.stdout, forked.stderr) == (new.returncode, new.stdout, new.stderr)
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    )
    assert first == second


def test_a_fork_sees_the_packages_of_its_own_path_alone(tmp_path: Path) -> None:
    """A package that stands first on the path is imported in place of evalkit; the next fork knows nothing of it."""
    (tmp_path / "evalkit").mkdir()
    (tmp_path / "evalkit" / "__init__.py").write_text("")
    (tmp_path / "evalkit" / "__main__.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:]); sys.exit(7)")
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PROJECT)])}
    other = forked_commands.evalkit(("a", "b c"), tmp_path / "here", environment)
    assert (other.returncode, other.stdout) == (7, f"{tmp_path / 'here'} ['a', 'b c']\n")
    ours = forked_commands.evalkit(("--version",), tmp_path / "here", {**os.environ, "PYTHONPATH": str(PROJECT)})
    assert ours.stdout.startswith("evalkit ")
