"""No two types of one name in the package, private ones included: a reader who meets a name knows which type it is."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "evalkit"


def doublets(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Names that several classes have, a leading underscore aside, and where they stand. `sources`: path -> text."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(f"{path}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_types_share_a_name() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(sources) > 100
    assert doublets(sources) == {}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("class Lane:\n    pass", "class Lane:\n    pass", {"Lane": ["a.py:1", "b.py:1"]}),
        ("class Lane:\n    pass", "x = 1\nclass _Lane:\n    pass", {"Lane": ["a.py:1", "b.py:2"]}),
        ("class Lane:\n    pass", "def make():\n    class Lane:\n        pass", {"Lane": ["a.py:1", "b.py:2"]}),
        ("class Lane:\n    pass", "class Lanes:\n    pass", {}),
        ("class Lane:\n    pass", "from a import Lane", {}),
    ],
)
def test_a_planted_doublet_is_found(first: str, second: str, found: dict[str, list[str]]) -> None:
    assert doublets({"a.py": first, "b.py": second}) == found
