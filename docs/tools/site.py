"""Builds the documents as HTML into build/docs: README, docs/, CHANGELOG, and every module's docstrings.

    .venv/bin/python -m docs.tools.site [FOLDER]

`make docs` calls it. The pages need no server and ask nobody outside.
"""

import html
import re
import shutil
import sys
from pathlib import Path

from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from docs.tools import api, cli_page, environment_page

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent
PROJECT = DOCS.parent
OUT = PROJECT / "build" / "docs"
COLOURS = HtmlFormatter(nowrap=True, style="default")

TEMPLATE = Environment(autoescape=True).from_string("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} – evalkit</title>
<style>{{ style }}</style>
</head>
<body>
<nav>
<p><a href="{{ up }}index.html"><strong>evalkit</strong></a></p>
{% for name, address in pages %}<a href="{{ up }}{{ address }}"{% if address == here %} class="here"{% endif %}>\
{{ name }}</a>
{% endfor %}
</nav>
<main>
{{ body }}
</main>
</body>
</html>
""")


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def coloured(code: str, language: str, _: str) -> str:
    """A fenced block's HTML; what no lexer knows stays plain."""
    try:
        lexer = get_lexer_by_name({"sh": "bash"}.get(language, language))
    except ClassNotFound:
        return html.escape(code)
    return str(highlight(code, lexer, COLOURS))


MARKDOWN = MarkdownIt("commonmark", {"highlight": coloured, "html": False}).enable("table")


def rendered(text: str) -> Markup:
    """Markdown as HTML: headings have anchors, links between pages lead to their HTML."""
    tokens = MARKDOWN.parse(text)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(tokens[number + 1].content))
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("href", _address(str(child.attrGet("href"))))
            if child.type == "image":
                child.attrSet("src", str(child.attrGet("src")).removeprefix("docs/"))
    return Markup(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))  # noqa: S704 - the renderer escapes


def _address(link: str) -> str:
    if re.match(r"[a-z]+:", link):
        return link
    path, mark, anchor = link.partition("#")
    path = {"../README.md": "readme.html", "../CHANGELOG.md": "changelog.html"}.get(path, path)
    return path.removeprefix("docs/").removesuffix(".md") + (".html" if path.endswith(".md") else "") + mark + anchor


def title_of(text: str, otherwise: str) -> str:
    """A page's first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].replace("`", "") if found else otherwise


def pages() -> dict[str, str]:
    """Address of each page -> its Markdown, in the order of docs/index.md, then those that it does not name."""
    index = (DOCS / "index.md").read_text()
    named = re.findall(r"\]\(([\w-]+)\.md\)", index)
    names = list(dict.fromkeys([*named, *sorted(path.stem for path in DOCS.glob("*.md"))]))
    found = {f"{name}.html": (DOCS / f"{name}.md").read_text() for name in names if (DOCS / f"{name}.md").is_file()}
    return {
        "index.html": found.pop("index.html"),
        "readme.html": (PROJECT / "README.md").read_text(),
        **found,
        "changelog.html": (PROJECT / "CHANGELOG.md").read_text(),
    }


def module_page(module: api.Module) -> str:
    """One module's names, as Markdown."""
    parts = [f"# {module.name}\n", module.text]
    for entry in module.entries:
        if "." in entry.name and not entry.signature.startswith(("def ", "async def ", "class ")):
            said = entry.text.strip().replace("\n", "\n  ")
            parts.append(f"- `{entry.signature}`" + (f"\n\n  {said}" if said else ""))
            continue
        depth = "###" if "." in entry.name else "##"
        parts += [f"{depth} {entry.name}\n", f"```python\n{entry.signature}\n```\n", entry.text]
    return "\n\n".join(parts)


def _summary(module: api.Module) -> str:
    return module.text.partition("\n\n")[0].replace("\n", " ")


def build(out: Path) -> int:
    """Write the site afresh; returns how many pages it has."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "api").mkdir(parents=True)
    style = (HERE / "site.css").read_text() + COLOURS.get_style_defs("pre")
    texts = pages()
    names = {"index.html": "Contents", "readme.html": "README"}
    listed = [(names.get(address) or title_of(text, address), address) for address, text in texts.items()]
    listed.append(("Modules", "api/index.html"))
    found = list(api.modules())
    summaries = [f"- [{one.name}]({one.name}.html): {_summary(one)}" for one in found]
    texts["api/index.html"] = "\n".join(
        ["# Modules", "", "Imports point down only; see the README's tour.", "", *summaries]
    )
    texts |= {f"api/{one.name}.html": module_page(one) for one in found}
    for address, text in texts.items():
        up = "../" if "/" in address else ""
        (out / address).write_text(
            TEMPLATE.render(
                title=title_of(text, address),
                style=Markup(style),  # noqa: S704 - our own file
                up=up,
                pages=listed,
                here=address if not up else "api/index.html",
                body=rendered(text),
            )
        )
    if (DOCS / "images").is_dir():
        shutil.copytree(DOCS / "images", out / "images")
    return len(texts)


if __name__ == "__main__":
    cli_page.PAGE.write_text(cli_page.page())
    environment_page.PAGE.write_text(environment_page.page())
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    print(f"Wrote {build(target)} pages. Open {target / 'index.html'}")
