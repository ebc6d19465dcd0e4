"""Whatever becomes of a file of a run: a message that names it and a documented exit code, never a traceback; and where
`verify` says 0, every other command works.

A few changes drawn by a fixed seed for each file. `EVALKIT_DAMAGE=40 pytest tests/damage` draws more, of another seed
each with `EVALKIT_DAMAGE_SEED`; `-m soak` tries every kind of change on every file (ten minutes).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from evalkit.results.derived import read_cells
from tests.damage.commands import Said, reading, run, writing
from tests.damage.making import WRITER, make
from tests.damage.mutations import changes, kinds

DRAWN = int(os.environ.get("EVALKIT_DAMAGE", "3"))
SEED = os.environ.get("EVALKIT_DAMAGE_SEED", "0")
MANY = 20
SUITE = "suites/4c803d2179407f3efe669debd86b505eb1bfd98ebd82cf2c3990c3a651e9db0a.parquet"
KILLED = "killed"
FILES = (
    "manifest/000000.json",
    SUITE,
    "voids.jsonl",
    "forecast.json",
    "events.jsonl",
    "live.json",
    "lock",
    "derived/episodes.parquet",
    f"steps/{WRITER}-000000000-000000003.parquet",
    f"ledger/{WRITER}-000000000-000000003.parquet",
    f"log/{WRITER}/000000004.parquet",
    f"log/{WRITER}/000000006.parquet",
)
"""Of the killed run."""
FOLDERS = ("manifest", "suites", "steps", "ledger", "log", "derived")
TOLD_BY_OTHERS = ("events.jsonl", "live.json", "lock", "derived", "forecast.json")
"""Files that `verify` does not look into: whatever they hold, other commands work."""
DOCUMENTED = (0, 1, 2, 3)
WORKED = {"run": (0, 1, 3), "repair": (0, 1, 3), "verify": (0, 1)}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The runs of `making.py`; it is the present folder."""
    folder, before = tmp_path_factory.mktemp("damage"), Path.cwd()
    os.chdir(folder)
    try:
        make(folder)
        yield folder
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def episode(here: Path) -> str:
    """One that the killed run holds whole."""
    del here
    return next(one.id for cell in read_cells(Path("killed"))[1] for one in cell.episodes if one.agent == "random")


@pytest.mark.exhaustive
def test_all_commands_work_on_a_run_that_was_killed(here: Path, episode: str) -> None:
    del here
    assert run("verify", KILLED).code == 0
    for name, call in commands(KILLED, lambda _: None, episode).items():
        said = call()
        assert (said.raised, said.code) == (None, 0), (name, said)


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_or_does_no_harm(here: Path, episode: str, name: str) -> None:
    del here
    random = Random(f"{SEED} {name}")
    drawn = list(changes(Path(KILLED) / name, random, DRAWN * 4))
    for number, (words, change) in enumerate(random.sample(drawn, min(len(drawn), DRAWN))):
        check(name, words, change, episode, number)


@pytest.mark.exhaustive(but=2)
@pytest.mark.parametrize("name", FOLDERS)
def test_something_else_in_place_of_a_folder_is_named(here: Path, episode: str, name: str) -> None:
    del here

    def change(path: Path) -> None:
        shutil.rmtree(path)
        path.write_bytes(b"x")

    check(name, "a file", change, episode, 0)


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_many_changes_of_a_file(here: Path, episode: str, name: str) -> None:
    del here
    for number, (words, change) in enumerate(changes(Path(KILLED) / name, Random(f"{SEED} {name}"), MANY)):
        check(name, words, change, episode, number)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", FILES)
def test_a_file_without_permission_is_named(here: Path, episode: str, name: str) -> None:
    del here
    check(name, "no permission", lambda path: path.chmod(0), episode, 0)


def check(name: str, words: str, change: Callable[[Path], None], episode: str, number: int) -> None:
    """Change a copy, call the commands, and compare what they say with what `verify` says.

    Those that take long are called in turn: `number` says whose it is.
    """
    shutil.rmtree("copy", ignore_errors=True)
    shutil.copytree(KILLED, "copy")
    change(Path("copy") / name)
    verified = run("verify", "copy")
    answer("verify", verified, verified, f"{name}: {words}", name)
    calls = commands("copy", lambda path: change(path / name), episode)
    slow = ("pages", "run", "repair", "void")
    for one, call in calls.items():
        if one not in slow or slow.index(one) == number % len(slow):
            answer(one, call(), verified, f"{name}: {words}", name)


def commands(name: str, change: Callable[[Path], None], episode: str) -> dict[str, Callable[[], Said]]:
    """All commands; each that writes gets a copy of its own, changed likewise."""

    def fresh(command: str) -> Said:
        shutil.rmtree("fresh", ignore_errors=True)
        shutil.copytree(KILLED, "fresh")
        change(Path("fresh"))
        return writing("fresh")[command]()

    calls = dict(reading(name, "whole", episode))
    return calls | {one: lambda one=one: fresh(one) for one in writing("fresh")}


def answer(command: str, said: Said, verified: Said, words: str, name: str) -> None:
    """Fail where a command's answer is none that is promised."""
    told = f"{command}, {words}: {said.code} {said.err or said.out}"
    assert said.raised is None, (told, said.raised)
    assert "Traceback" not in said.err, told
    assert said.code in DOCUMENTED, told
    if verified.code == 0:
        assert said.code in WORKED.get(command, (0,)), told
        return
    assert not name.startswith(TOLD_BY_OTHERS) or verified.code, told
    if said.code == 2:
        # A message about lost steps names the numbers that are missing, a conflict names the agent or suite.
        place = name.rpartition("/")[2].removesuffix(".parquet").split("-")[-1]
        others = ("is missing", "conflicts with the run", "episode ", "is no run directory")
        assert place in said.err + said.out or any(one in said.err + said.out for one in others), told


def test_the_recipes_change_something(here: Path) -> None:
    del here
    for name in FILES:
        path = Path("recipe")
        before = (Path(KILLED) / name).read_bytes()
        for words, change in [*kinds(Random(0)), *changes(Path(KILLED) / name, Random(1), 2)]:
            path.unlink(missing_ok=True) if not path.is_dir() else shutil.rmtree(path)
            path.write_bytes(before)
            change(path)
            assert not path.is_file() or path.read_bytes() != before, (name, words)
