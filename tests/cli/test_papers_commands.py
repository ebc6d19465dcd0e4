"""Every command of `docs/papers.md`, run with the sweeps' policies: what is to be read in its output is there."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.test_papers_page import ROWS
from tests.support.command_line import Call, caller

FEW = ("--limit", "24")
"""Of a sweep so many episodes are played here; the whole ones are for who reads the page."""
PARTS = {"econ-main": ("--only", "agent=oracle", "--only", "agent=knuth")}
"""What is played instead, where a figure needs whole suites."""
NAMES = re.compile(r"`((?:planning|econ|suite|coverage|adaptation|scores_by|quotes|money|figure|beside)[a-z0-9_]*)`")
COMMANDS = [(row[0], re.findall(r"`(evalkit [^`]+)`", row[1]), NAMES.findall(row[2])) for row in ROWS]
COMMANDS = [one for one in COMMANDS if one[1]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A folder with a copy of the paper's queries, in which all commands are run."""
    folder = tmp_path_factory.mktemp("papers")
    for split in ("test", "train"):
        shutil.copytree(shared / "data" / "costbench" / split, folder / "path" / "to" / split)
    return folder


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    command = caller(capsys)
    if not (here / "instances/costbench/reference.jsonl").exists():
        said = command(*import_words("path/to/test/queries.json", "instances/costbench/reference.jsonl"))
        assert said.code == 0, said.err
    return command


def import_words(*names: str) -> list[str]:
    *files, out = names
    return ["tools", "queries", "import", *files, "--out", out]


def runs_named(words: list[str]) -> Iterator[str]:
    """The papers' runs that a command reads."""
    for word in words:
        if re.fullmatch(r"(costbench|econ)-[a-z0-9-]+", word):
            yield word


@pytest.mark.exhaustive(but=3)
@pytest.mark.parametrize(("item", "commands", "names"), COMMANDS, ids=[item.split(",")[0] for item, *_ in COMMANDS])
def test_every_command_of_the_page_shows_what_is_to_be_read(
    call: Call, here: Path, item: str, commands: list[str], names: list[str]
) -> None:
    found: set[str] = set()
    for command in commands:
        words = shlex.split(command)[1:]
        for run in runs_named(words):
            if not (here / "runs" / run).exists():
                assert call("run", f"papers/{run}", *PARTS.get(run, FEW)).code in (0, 3)
        if words[0] == "run" and words[1].startswith("papers/"):
            assert call(*words, *PARTS.get(words[1].removeprefix("papers/"), FEW)).code in (0, 3), command
            continue
        said = call(*words)
        assert said.code == 0, (command, said.err)
        if words[0] == "report" or words[:2] == ["suites", "describe"]:
            found |= json.loads(call(*words, "--json").out)["tables"].keys()
        if (
            words[0] == "report"
        ):  # what is asked for instead of the report's own tables is not all that there is to read
            own = [word for word in words if word not in ("--beside", "paper")]
            found |= json.loads(call(*own, "--json").out)["tables"].keys()
            folder = here / "drawn" / words[1]
            if any(name.startswith("figure") for name in names):
                assert call(*own, "--figures", str(folder)).code == 0
                found |= {path.stem for path in folder.glob("*.csv")}
    assert set(names) <= found, (item, set(names) - found)
