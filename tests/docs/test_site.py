"""The documentation site: built strictly, whole, and without anything from outside.

The generator is Sphinx, of the extra `docs`; where it is not installed these tests are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.document_blocks import PROJECT, pages

pytestmark = pytest.mark.exhaustive

for generator in ("sphinx", "furo", "myst_parser"):
    pytest.importorskip(
        generator, reason="the site's generator is not installed: pip install 'evalkit-econ[docs]', or make setup"
    )

OFFERING = ("evalkit", "evalkit.extend", "evalkit.testing")


def build(project: Path, out: Path, builder: str = "html") -> subprocess.CompletedProcess[str]:
    """What `make docs` calls, in another folder."""
    words = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", builder]
    return subprocess.run(
        [*words, "-d", str(out / "kept"), "-c", str(project / "docs"), str(project), str(out / "site")],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )


def copied(folder: Path) -> Path:
    """The documents alone, to be changed."""
    shutil.copytree(PROJECT / "docs", folder / "docs")
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    done = build(PROJECT, out)
    assert done.returncode == 0, done.stderr
    return out / "site"


@pytest.fixture(scope="module")
def made(site: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in site.rglob("*.html")}


@pytest.mark.exhaustive
def test_the_site_holds_every_page(site: Path) -> None:
    wanted = {*pages(), "CHANGELOG.md", *(f"docs/api/{name.rpartition('.')[2]}.rst" for name in OFFERING)}
    assert [page for page in sorted(wanted) if not (site / page).with_suffix(".html").is_file()] == []


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path, made: dict[Path, str]) -> None:
    broken = []
    for page, text in made.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            if re.match(r"[a-z]+:", link):
                continue
            if not target.exists() or (anchor and target in made and f'id="{anchor}"' not in made[target]):
                broken.append((page.relative_to(site).as_posix(), link))
    assert broken == []


def test_nothing_comes_from_outside(made: dict[Path, str]) -> None:
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link(?![^>]+rel="canonical")[^>]+href="(?:https?:)?//'
    )
    assert [path.name for path, text in made.items() if loaded.search(text)] == []


def test_every_public_name_has_a_place_and_a_docstring_there(site: Path) -> None:
    for module in OFFERING:
        text = (site / "docs" / "api" / f"{module.rpartition('.')[2]}.html").read_text()
        elsewhere = (site / "docs" / "api" / "evalkit.html").read_text()
        for name in import_module(module).__all__:
            there = f'id="{module}.{name}"' in text or (
                f'id="evalkit.{name}"' in elsewhere and f"#evalkit.{name}" in text
            )
            assert there, (module, name)


def test_only_public_names_have_a_place(made: dict[Path, str]) -> None:
    named = {name for text in made.values() for name in re.findall(r'<dt class="[^"]*" id="([\w.]+)"', text)}
    assert named
    for name in named:
        module = next(one for one in reversed(OFFERING) if name.startswith(one + "."))
        assert name.removeprefix(module + ".").partition(".")[0] in import_module(module).__all__, name


def test_the_search_finds_words_of_the_pages(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert "docs/how-it-holds" in index
    assert re.search(r'"?budget"?:', index)


FLAWS = ("[gone](gone.md)", "[no such heading](sweeps.md#no-such-heading)", "![gone](images/gone.png)")


@pytest.mark.exhaustive
def test_broken_links_fail_the_build(tmp_path: Path) -> None:
    project = copied(tmp_path / "project")
    page = project / "docs" / "resume.md"
    page.write_text("\n\n".join((page.read_text(), *FLAWS)))
    done = build(project, tmp_path, "dummy")
    assert done.returncode != 0
    for target in ("gone.md", "no-such-heading", "images/gone.png"):
        assert re.search(rf"resume\.md.*WARNING.*{re.escape(target)}", done.stderr), (target, done.stderr)
