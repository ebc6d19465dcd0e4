"""Fills the table in docs/provider-details.md that says what each provider was checked against. `make docs` calls it.

What it says stands in the tests: a module that talks to software that nobody here wrote has a constant `CHECKED_SDK`
or `CHECKED_SERVER`, by dialect or by provider. Documentation is what a provider's file names as its sources.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "provider-details.md"
SDK, SERVER = "CHECKED_SDK", "CHECKED_SERVER"
NOT_YET = "itself: not yet"
_TABLE = re.compile(r"(<!-- checked: begin -->\n).*?(<!-- checked: end -->)", re.DOTALL)
_PAGE_OF_DOCUMENTATION = re.compile(r"https://[^\s\"/,)]+/[^\s\",)]+")
_HEAD = "| provider | format | official SDK | server | written from |\n|---|---|---|---|---|\n"


def checked(kind: str) -> dict[str, list[str]]:
    """What the tests say, by dialect or provider: the software they talk to."""
    found: dict[str, list[str]] = {}
    for module in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, what in _said(module, kind).items():
            found.setdefault(name, []).append(what)
    return found


def _said(module: Path, kind: str) -> Mapping[str, str]:
    text = module.read_text(encoding="utf-8")
    if f"\n{kind} = " not in text:
        return {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and [target.id for target in node.targets if isinstance(target, ast.Name)] == [
            kind
        ]:
            said: Mapping[str, str] = ast.literal_eval(node.value)
            return said
    return {}


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """The table's rows: provider, dialect, SDKs, servers, hosts of the documentation."""
    sdks, servers = checked(SDK), checked(SERVER)
    for file in sorted((ROOT / "providers").glob("*.toml")):
        text = file.read_text(encoding="utf-8")
        provider = tomllib.loads(text)
        name, dialect = file.stem, provider["dialect"]
        url = provider.get("url") or "$"
        pages = [page for page in _PAGE_OF_DOCUMENTATION.findall(text) if "$" not in page and not page.startswith(url)]
        asked = [f"{what} (this one)" for what in servers.get(name, ())]
        asked += [f"{what} (its format)" for what in servers.get(dialect, ())]
        if name not in servers:
            asked.insert(0, NOT_YET)
        if "simulate" in provider:
            asked = ["by most tests"]
        yield (
            name,
            dialect,
            ", ".join(sdks.get(dialect, [])),
            "; ".join(asked),
            ", ".join(sorted({urlsplit(page).hostname or "" for page in pages})),
        )


def page() -> str:
    """The whole page, its table as the tests and the providers' files have it."""
    table = _HEAD + "".join(
        f"| {' | '.join(f'`{cell}`' if not i else cell for i, cell in enumerate(row))} |\n" for row in rows()
    )
    return _TABLE.sub(lambda found: f"{found[1]}{table}{found[2]}", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
