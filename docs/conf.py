"""How Sphinx builds the documents: `make docs`. Pages are the Markdown that GitHub shows, and docs/api/*.rst.

The folder that Sphinx reads is the project's, so that a link from one page to another is the same on GitHub and here.
"""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

import evalkit  # noqa: E402 - found by the line above where evalkit is not installed
import evalkit.extend  # noqa: E402
import evalkit.testing  # noqa: E402

project = "evalkit"
author = "the evalkit maintainers"
version = release = evalkit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/api/*.rst",
]
exclude_patterns = [path.name for path in PROJECT.iterdir() if path.is_dir() and path.name != "docs"]
"""Sphinx walks the whole folder otherwise, runs and environments of Python included."""

myst_heading_anchors = 4
# Marks before the generated tables of statistics.md and deciding.md are link definitions that nothing refers to.
suppress_warnings = ["myst.header", "myst.duplicate_def"]
highlight_language = "none"
nitpicky = False

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"evalkit {version}"
html_extra_path = ["theme/index.html"]
html_copy_source = False
html_show_sourcelink = False

_SECTIONS: Any = Config(napoleon_custom_sections=["Returns"])
"""`Returns:` is prose."""
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_LINK = re.compile(r"^- \[`?([^\]`]+)`?\]\(((?:\.\./)?[\w/-]+)\.(?:md|rst)\)", re.MULTILINE)
_PUBLIC = {
    f"{module}.{name}": f"{offers.__name__}.{name}"
    for offers in (evalkit.testing, evalkit.extend, evalkit)
    for module, names in getattr(offers, "_PLACES", {}).items()
    for name in names
}
"""Where a name is defined -> where it is public: the later entry goes before the earlier one."""


def contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page the site's table of contents: its own lists of links, heading by heading."""
    if page == "docs/decisions/index":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"
    if page != root_doc:
        return
    trees = []
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
        title, _, body = section.partition("\n")
        pages = [f"{text} <{link}>" for text, link in _LINK.findall(body)]
        caption = f":caption: {title}\n" if not title.startswith("#") else ""
        trees.append("\n".join(["```{toctree}", ":hidden:", caption, *pages, "```"]))
    source[0] += "\n" + "\n\n".join(trees) + "\n"


def as_restructured(app: Sphinx, what: Any, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are Markdown: columns become a list of definitions, an indented block is shown as it stands."""
    text: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines)):
        first = block.split("\n")[0]
        if first.lstrip().startswith(">>>"):
            text.append(block)
        elif re.match(r"\S[^.]*? {2,}\S", first) or re.match(r"[\w, ]+\n {4,}", block):
            text.append(_definitions(block) if not first.endswith(":") else _code(block))
        elif block.startswith("    "):
            text.append("::\n\n" + block)
        else:
            text.append(_code(block))
    whole = re.sub(r"\bdocs/([\w-]+)\.md", r":doc:`/docs/\1`", "\n\n".join(text))
    lines[:] = whole.split("\n")
    if what in (
        "function",
        "method",
        "class",
        "exception",
    ):  # the text of a field has no sections: a colon ends no type
        lines[:] = GoogleDocstring(lines, _SECTIONS, app, what, name, obj, options).lines()


def _definitions(block: str) -> str:
    """`name   what it is`, whose further lines are indented, as definitions."""
    rows: list[str] = []
    for line in block.split("\n"):
        term, _, rest = re.sub(r"^(\S.*?) {2,}", "\\1\0", line).partition("\0")
        if line.startswith(" "):
            rows.append(f"    {line.strip()}")
        else:
            rows += [f"``{term}``", *([f"    {rest}"] if rest else [])]
    return _code("\n".join(rows))


def _code(text: str) -> str:
    """A name in single backquotes may be a link; anything else in them is code."""
    return re.sub(
        r"(?<!`)`([^`]+)`(?!`)", lambda found: found[0] if _NAME.fullmatch(found[1]) else f"``{found[1]}``", text
    )


def public_name(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.reference | None:
    """Lead from the module that defines a name to the page that offers it."""
    target = str(node.get("reftarget", ""))
    for defined, public in _PUBLIC.items():
        if target == defined or target.startswith(defined + "."):
            domain = env.get_domain("py")
            found = domain.objects.get(public + target[len(defined) :])
            if found:
                uri = app.builder.get_relative_uri(node["refdoc"], found.docname)
                return nodes.reference("", "", content, internal=True, refuri=f"{uri}#{found.node_id}")
    return None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", contents)
    app.connect("autodoc-process-docstring", as_restructured)
    app.connect("missing-reference", public_name)
