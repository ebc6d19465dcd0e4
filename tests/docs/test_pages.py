"""The documents hang together: they are reachable, their anchors exist, and what is generated is up to date."""

import re
from pathlib import Path

import pytest

from docs.tools import api, cli_page, site
from tests.docs.blocks import PROJECT, blocks_of, pages


def anchors(text: str) -> set[str]:
    """The headings' anchors, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {site.slug(title) for title in re.findall(r"^#+ (.+?)\s*$", plain, re.MULTILINE)}


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
    index = (PROJECT / "docs" / "index.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)", index))
    assert {path.name for path in (PROJECT / "docs").glob("*.md")} - linked - {"index.md"} == set()


def test_the_page_of_commands_is_what_the_parser_says() -> None:
    assert cli_page.PAGE.read_text() == cli_page.page(), (
        "the commands have changed: `make docs` writes docs/cli.md anew"
    )


def test_every_public_module_function_and_class_says_what_it_is() -> None:
    silent = [
        f"{module.name}.{entry.name}".rstrip(".")
        for module in api.modules()
        for entry in (*module.entries, None)
        if (entry.needs_text and not entry.text if entry else not module.text)
        for entry in [entry or api.Entry(name="", signature="", text="", line=1, needs_text=True)]
    ]
    assert silent == []


def test_the_site_holds_every_page_and_module_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    count = site.build(tmp_path / "site")
    made = {path.relative_to(tmp_path / "site").as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    assert count == len(made)
    assert {"index.html", "readme.html", "cli.html", "api/evalkit.money.html"} <= made.keys()
    broken = []
    for name, text in made.items():
        assert "<script" not in text
        for link in re.findall(r'(?:href|src)="([^"#]+)', text):
            target = (tmp_path / "site" / name).parent / link
            if not re.match(r"[a-z]+:", link) and not target.exists() and not _source(link):
                broken.append((name, link))
    assert broken == []


def _source(link: str) -> bool:
    """Whether a link leads to a file beside the documents, which the site leaves out."""
    return any((PROJECT / folder / link).exists() for folder in ("docs", "."))


def test_every_figure_of_the_readme_names_its_command() -> None:
    text = (PROJECT / "README.md").read_text()
    table = re.search(r"^## Measured\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert table
    rows = [line.strip("|").split("|") for line in table[1].splitlines() if line.startswith("|")][2:]
    assert len(rows) > 4
    known = [f"make {name}" for name in re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)]
    for row in rows:
        named = re.findall(r"`([^`]+)`", row[-1])
        assert named, row
        assert all(word in known or word.startswith("evalkit ") for word in named), row


def test_blocks_are_found_in_every_page_that_has_some() -> None:
    for page in pages():
        if "\n```" in (PROJECT / page).read_text():
            assert blocks_of(page), page
