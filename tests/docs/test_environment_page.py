"""The package of docs/add-an-environment.md is what `evalkit new --plugin` writes; its commands are run as they are."""

import json
import shutil
from pathlib import Path

import pytest

from docs.tools import environment_page
from evalkit.cli.main import main
from evalkit.cli.play.new import project_files
from tests.support.document_blocks import blocks_of, commands
from tests.support.plugin_projects import Installed, page, pip_install

pytestmark = pytest.mark.exhaustive

PAGE = "docs/add-an-environment.md"
FILES = {block.file: block.text for block in blocks_of(PAGE) if block.file}
CALLS = [words for block in blocks_of(PAGE) if not block.language for words in commands(block.text)]
UNKNOWN_TO_US = '[[agents]]\nprovider = "openai"\nmodel = "gpt-5-mini"\n'


def called(name: str, *more: str) -> list[str]:
    """The command of the page that begins so. Asserts that there is one."""
    (words,) = [words for words in CALLS if words[: 1 + len(more)] == [name, *more]]
    return words


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The page's package, installed, and its folder."""
    folder = tmp_path_factory.mktemp("reader")
    words = called("new")
    assert main([*words[:-1], str(folder / words[-1])]) == 0
    pip_install([Path(shutil.copytree(folder / words[-1], folder / "built"))], folder / "site")
    return Installed(folder / "site", folder / words[-1])


def test_the_page_shows_the_project_as_it_is_written() -> None:
    assert environment_page.PAGE.read_text() == environment_page.page(), (
        "the project has changed: `make docs` writes the page anew"
    )
    written = project_files(environment_page.NAME)
    assert {name: f"# {name}\n{written[name]}" for name in FILES} == FILES
    assert set(written) - set(FILES) == {"README.md", "evalkit_offers/suites/basic.jsonl"}


def test_what_it_says_of_installing_and_testing_works(project: Installed) -> None:
    lines = [line.strip() for block in blocks_of(PAGE) if not block.language for line in block.text.splitlines()]
    assert "pip install -e '.[dev]'" in lines
    assert "pytest" in lines
    done = project.python("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert (done.returncode, "5 passed" in done.stdout) == (0, True), done.stdout
    assert "wrong" not in project.evalkit(*called("tools", "plugins"))


def test_policies_play_the_suite_that_it_generates(project: Installed) -> None:
    project.evalkit(*called("suites", "generate"))
    assert (project.here / "basic.jsonl").read_text().split("\n")[:-1] == [
        json.dumps(json.loads(line), separators=(",", ":"))
        for line in project_files("offers")["evalkit_offers/suites/basic.jsonl"].splitlines()
    ]
    project.evalkit(*called("suites", "describe"))
    for name in ("run", "report", "verify"):
        project.evalkit(*called(name, "runs/baselines.toml" if name == "run" else "runs/baselines"))


def test_a_model_plays_it_under_a_budget_from_the_plan_to_the_pages(project: Installed) -> None:
    assert "is enough" in project.evalkit(*called("plan"))
    assert "40 of 40 episodes ended" in project.evalkit(*called("run", "runs/model.toml"))
    project.evalkit(*called("verify", "runs/model"))
    said = json.loads(project.evalkit(*called("report", "runs/model"), "--json"))
    for row in said["tables"]["scores"]["rows"]:
        assert (row["kind"], row["episodes"]) == ("bounded", 20)
        assert 0 < row["score"] <= 100
    assert "0 = nothing taken" in said["tables"]["scores"]["notes"][0]
    assert "no_action" not in {column["key"] for column in said["tables"]["behaviour"]["columns"]}
    rows = json.loads(project.evalkit(*called("sql"), "--json"))
    lines = map(json.loads, (project.here / "evalkit_offers" / "suites" / "basic.jsonl").read_text().splitlines())
    offers = {line["id"]: line["offers"] for line in lines}
    for row in rows:
        if row["seen"] is not None:
            taken = offers[row["instance"]][int(row["seen"]) - 1]
            assert row["score"] == pytest.approx(min(offers[row["instance"]]) / taken)
    shown = said["tables"]["offers_seen"]
    asked = json.loads(project.evalkit("sql", "runs/model", shown["query"], "--json"))
    assert asked == [{**row, "seen": pytest.approx(row["seen"])} for row in shown["rows"]]
    (first, *_) = json.loads(project.evalkit("sql", "runs/model", "select episode from episodes", "--json"))
    with project.started(*called("view"), says="Pages at") as url:
        page(f"{url}/run/model/tables", "Offers seen")
        page(f"{url}/run/model/episode/{first['episode']}", "The first offer is ")


def test_a_model_that_no_policy_is_named_after_is_planned_by_the_stand_in(project: Installed) -> None:
    text = (project.here / "runs" / "model.toml").read_text()
    (project.here / "far.toml").write_text(f'budget_usd = "1.00"\n{UNKNOWN_TO_US}{text[text.index("[[suites]]") :]}')
    assert "patient" in project.evalkit("plan", "far.toml")
