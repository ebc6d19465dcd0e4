"""The documents hang together: they are reachable, their anchors exist, and what is generated is up to date."""

import ast
import re
from collections.abc import Iterator

import pytest

from docs.tools import cli_page
from tests.support.document_blocks import PROJECT, blocks_of, pages

Explained = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The headings' anchors, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {slug(title) for title in re.findall(r"^#+ (.+?)\s*$", plain, re.MULTILINE)}


@pytest.mark.parametrize("page", pages())
def test_every_link_with_an_anchor_leads_to_a_heading(page: str) -> None:
    text = (PROJECT / page).read_text()
    broken = []
    for path, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        target = (PROJECT / page).parent / path if path else PROJECT / page
        if anchor not in anchors(target.read_text()):
            broken.append(f"{path}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("page", pages())
def test_every_picture_is_there_and_light(page: str) -> None:
    for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (PROJECT / page).read_text()):
        assert (PROJECT / page).parent.joinpath(path).stat().st_size < 300_000


def test_the_index_leads_to_every_page() -> None:
    docs = PROJECT / "docs"
    linked = {
        (page.parent / link).resolve()
        for page in (docs / "index.md", docs / "decisions" / "index.md")
        for link in re.findall(r"\]\(([\w./-]+\.(?:md|rst))", page.read_text())
    }
    wanted = {*docs.rglob("*.md"), *docs.rglob("*.rst"), PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"}
    assert {str(path) for path in wanted - linked - {docs / "index.md"}} == set()


def test_the_page_of_commands_is_what_the_parser_says() -> None:
    assert cli_page.PAGE.read_text() == cli_page.page(), (
        "the commands have changed: `make docs` writes docs/cli.md anew"
    )


def test_every_public_module_function_and_class_says_what_it_is() -> None:
    silent = [
        f"{path.relative_to(PROJECT)}:{getattr(node, 'lineno', 1)}"
        for path in sorted((PROJECT / "evalkit").rglob("*.py"))
        for node in explained(ast.parse(path.read_text()))
        if not ast.get_docstring(node) and not (isinstance(node, ast.Module) and not node.body)
    ]
    assert silent == []


def explained(node: Explained) -> Iterator[Explained]:
    """A module, and what is public in it; the methods of a protocol say it by their protocol's docstring."""
    yield node
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
            yield inner
        elif isinstance(inner, ast.ClassDef) and not inner.name.startswith("_"):
            bases = {ast.unparse(base).partition("[")[0] for base in inner.bases}
            yield from [inner] if "Protocol" in bases else explained(inner)


def test_every_figure_of_the_readme_names_its_command() -> None:
    text = (PROJECT / "README.md").read_text()
    table = re.search(r"^## Measured\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert table
    rows = [line.strip("|").split("|") for line in table[1].splitlines() if line.startswith("|")][2:]
    assert len(rows) > 4
    known = {f"make {name}" for name in re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)}
    known |= {f"python -m bench.{path.stem}" for path in (PROJECT / "bench").glob("*.py")}
    for row in rows:
        named = re.findall(r"`([^`]+)`", row[-1])
        assert named, row
        assert all(word.partition(" --")[0] in known or word.startswith("evalkit ") for word in named), row


def test_blocks_are_found_in_every_page_that_has_some() -> None:
    for page in pages():
        if "\n```" in (PROJECT / page).read_text():
            assert blocks_of(page), page
