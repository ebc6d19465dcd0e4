"""No two types of one name in the package, private ones included: a reader who meets a name knows which type it is. And
words of the field, not of the house: what was given up for the glossary's words does not come back."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
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


GIVEN_UP = {
    "ask_line": "base take",
    "bury": "close_lost",
    "canary": "trial",
    "chair": "turn",
    "desk": "setup",
    "door": "integration, guarded stream",
    "heed": "apply_allowance",
    "lasting_fall": "sustained drop",
    "owed": "remaining",
    "park": "defer",
    "parked": "deferred",
    "pot": "balance",
    "purse": "balance",
    "ramp": "slow start",
    "sitting": "play session",
    "tenure": "",
    "till": "encoding",
}
"""Word -> what says it now (docs/glossary.md)."""


def names(tree: ast.AST) -> Iterator[str]:
    """What a module names itself: its functions, classes, arguments, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def given_up(text: str) -> set[str]:
    """The words of `GIVEN_UP` that a module's names are made of, in any form of plural."""
    found = set()
    for name in names(ast.parse(text)):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
        found |= {word for word in GIVEN_UP if re.search(rf"(?:^|_){word}s?(?:_|$)", words)}
    return found


def test_words_that_were_given_up_do_not_come_back() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): given_up(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class LanePot:\n    pass", {"pot"}),
        ("def f(owed_cost):\n    self._pots = 1", {"owed", "pot"}),
        ("gateway = ramped = surrogate = spot = 1", set()),
    ],
)
def test_a_planted_word_is_found(text: str, found: set[str]) -> None:
    assert given_up(text) == found


PARTICIPLE = re.compile(r"_?[A-Z][a-z]+(?:ed|own|ght|ade|ept|eld|aid|osen|oken|itten|iven|aken)")
"""A class that is named by nothing else says what became of something, and not what it is."""


def test_types_are_named_by_nouns() -> None:
    found = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and PARTICIPLE.fullmatch(node.name)
    }
    assert found == {"Field", "Flight", "Need", "Night"}  # nouns that end so
