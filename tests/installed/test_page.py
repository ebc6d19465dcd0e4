"""The page about installing, without a network: `make wheel` tries its lines."""

import sys
import tomllib
from pathlib import Path

import pytest

from evalkit.cli import choosing
from evalkit.cli.read import report
from tests.installed.page import KINDS, PAGE, install_blocks, lines_of
from tests.support.command_line import Call, caller
from tests.support.document_blocks import PROJECT

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def test_each_block_says_how_it_is_tried() -> None:
    kinds = [set(block.words) & {*KINDS} for block in install_blocks()]
    assert all(len(kind) == 1 for kind in kinds)
    assert set().union(*kinds) == {*KINDS}
    assert sum(len([*lines_of(block)]) for block in install_blocks()) > 12


def test_the_distributions_name_is_a_script_and_is_what_pages_begin_with() -> None:
    assert PYPROJECT["scripts"] == dict.fromkeys(("evalkit", choosing.DISTRIBUTION), "evalkit.cli.main:entry")
    assert PYPROJECT["name"] == choosing.DISTRIBUTION
    for page in ("README.md", "docs/index.md", "docs/tutorial.md"):
        assert "install.md" in (PROJECT / page).read_text()[:4500], page


def test_every_extra_is_on_the_page_or_is_an_integrations() -> None:
    text = (PROJECT / PAGE).read_text()
    assert [name for name in PYPROJECT["optional-dependencies"] if f"[{name}]" not in text] == []


@pytest.mark.parametrize(
    ("called", "uv", "said"),
    [("evalkit", "", "evalkit"), ("evalkit-econ", "", "evalkit-econ"), ("evalkit-econ", "/bin/uv", "uvx evalkit-econ")],
)
def test_hints_name_the_command_that_was_called(
    called: str, uv: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"/somewhere/bin/{called}"])
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.delenv("UV", raising=False)
    if uv:
        monkeypatch.setenv("UV", uv)
    assert choosing.program() == said


def test_figures_as_files_say_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call: Call = caller(capsys)
    Path("mine.toml").write_text('[[agents]]\npolicy = "knuth"\n[[suites]]\nname = "scheduling/basic"\n')
    assert call("run", "mine.toml").code == 0
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    said = call("report", "mine", "--figures", "figures")
    assert said.code == 2
    assert "pip install 'evalkit-econ[figures]'" in said.message
    assert not Path("figures").exists()
