"""Every block of the documents that says its language is run, page by page, in a folder as its reader has one.

`skip` behind a fence's language leaves a block out (it needs a key, a network, a person, or files of the reader's own);
an integration's name behind it says that the integration's own tests run the block, with its library;
`exit=3` says with which code the last command of a shell's block ends; `duckdb` has a query read files, not views.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.main import main, parse
from evalkit.errors import UsageError
from evalkit.report.views import open_views
from tests.integrations.__main__ import INTEGRATIONS
from tests.support.document_blocks import PROJECT, RUNNABLE, SKIP, Block, blocks_of, commands, pages

QUICKSTART = """
replicates = 2
width = 16
budget_usd = "80.00"
[[agents]]
name = "knuth"
provider = "simulated"
model = "knuth"
[[agents]]
name = "greedy"
provider = "simulated"
model = "greedy"
[[agents]]
name = "replanner"
provider = "simulated"
model = "replanner"
[[agents]]
policy = "oracle"
[[suites]]
name = "scheduling/basic"
instances = ["seed-0"]
[[suites]]
name = "costbench/basic"
instances = ["location-0000", "transportation-0001", "attraction-0003", "dining-0004", "shopping-0005"]
"""
"""A quickstart of seconds: the folder `runs/` where one works is looked into before evalkit's own."""


OPTIONAL = {"inspect_ai", "inspect_scout", "datasets", "polars"}
"""Libraries that read exports. Blocks that import them are only compiled; tests/report/exports reads the exports."""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the quickstart was run."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "runs").mkdir()
    (folder / "runs" / "quickstart.toml").write_text(QUICKSTART)
    shutil.copytree(PROJECT / "examples" / "agents", folder / "examples" / "agents")
    done = subprocess.run(
        ["bash", "-c", "evalkit run quickstart"],
        cwd=folder,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def surroundings() -> Mapping[str, str]:
    """The environment's variables with evalkit on the path, and no key of anybody's."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}


def shell(block: Block, _: dict[str, Any]) -> None:
    """In this process where a block only calls evalkit, which saves half a second a call; else by bash."""
    wanted = next((int(word.removeprefix("exit=")) for word in block.words if word.startswith("exit=")), 0)
    lines = [line for line in block.text.splitlines() if line.strip()]
    if not any(mark in block.text for mark in "|&;<>$\\") and all(line.startswith("evalkit ") for line in lines):
        calls = list(commands(block.text))
        for number, words in enumerate(calls, 1):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = main(words)
            assert code == (wanted if number == len(calls) else 0), f"{block.place}\n{said.getvalue()[-4000:]}"
        return
    script = f"set -o pipefail\nset -e\n{block.text}"
    done = subprocess.run(["bash", "-c", script], env=surroundings(), capture_output=True, text=True, check=False)
    assert done.returncode == wanted, f"{block.place}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def python(block: Block, names: dict[str, Any]) -> None:
    compile(block.text, block.place, "exec")
    if block.file or OPTIONAL & set(re.findall(r"^(?:from|import) (\w+)", block.text, re.MULTILINE)):
        return  # a module that has a test of its own, or a library that evalkit does without
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile("\n" * block.line + block.text, block.page, "exec"), names)


def sql(block: Block, _: dict[str, Any]) -> None:
    import duckdb

    if "duckdb" in block.words:
        duckdb.execute(block.text).fetchall()
    else:
        open_views(Path("runs/quickstart")).sql(block.text)


def toml(block: Block, _: dict[str, Any]) -> None:
    found = tomllib.loads(block.text)
    if block.file:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.text)
    if block.file.startswith("providers/") and "dialect" in found:
        assert main(["providers", Path(block.file).stem]) == 0, block.place


RUN: Mapping[str, Callable[[Block, dict[str, Any]], None]] = {"sh": shell, "python": python, "sql": sql, "toml": toml}


@pytest.mark.exhaustive(but=["docs/sql.md"])
@pytest.mark.parametrize("page", [page for page in pages() if any(block.runs for block in blocks_of(page))])
def test_every_block_of_a_page_runs(page: str, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(RUN) == set(RUNNABLE)
    here = shutil.copytree(begun, tmp_path / "here")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", surroundings()["PATH"])
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        if block.runs:
            RUN[block.language](block, names)


@pytest.mark.parametrize("page", pages())
def test_every_command_a_page_names_is_one(page: str) -> None:
    wrong = []
    for block in blocks_of(page):
        if block.language in ("python", "sql", "toml"):
            continue
        for words in commands(block.text):
            try:
                parse(words)
            except SystemExit:  # --help
                continue
            except UsageError as flaw:
                wrong.append((block.place, " ".join(words), str(flaw)))
    assert wrong == []


def test_few_blocks_are_skipped_and_each_for_a_reason() -> None:
    skipped = [block for page in pages() for block in blocks_of(page) if SKIP in block.words]
    unknown = {
        (block.place, word)
        for page in pages()
        for block in blocks_of(page)
        if block.language in RUNNABLE
        for word in block.words
        if word not in (SKIP, "duckdb", *INTEGRATIONS) and not word.startswith("exit=")
    }
    assert unknown == set()
    reasons = (
        "make ",
        "openai",
        "view",
        "KEY",
        "pip ",
        "uvx ",
        "pipx ",
        "uv tool ",
        "docker ",
        "nightly",
        "duckdb -c",
        "evalkit mcp",
        "evalkit play",
        "--workers cores",
        "100000",
    )
    servers_and_trainers = ("vllm", "vf-eval", "traces.jsonl", "from trl")
    for block in skipped:
        assert set(block.words) & set(INTEGRATIONS) or any(
            word in block.text for word in (*reasons, *servers_and_trainers)
        ), block.place
