"""No module names an environment but its own modules, and the one table through which environments are found."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from evalkit.envs.table import ENVIRONMENTS

PROJECT = Path(__file__).resolve().parent.parent

TABLE = "envs/table.py"

FAMILIES: Mapping[str, str] = {
    "report/markets/": "the tables of a paper on three environments, named by their extras",
}
"""Folders that belong to several environments -> whose they are."""

STILL: Mapping[str, str] = {
    "spec/importing/pack.py": "reads prompts out of a copy of the reference: belongs to the environments it is for",
    "spec/importing/results.py": "as pack.py",
    "tasks/errands.py": "queries of costbench: go with the work that models do on suites",
    "spec/suites.py": "says how a suite that is not shipped is made: goes with importers of suites",
    "tasks/answers.py": "as tasks/costbench/queries.py",
    "cli/make/queries.py": "as tasks/costbench/queries.py",
    "cli/read/judge.py": "as tasks/costbench/queries.py",
}
"""Modules that name one and should not, each with the reason. The list may only shrink."""


def named(text: str) -> Iterator[str]:
    """The environments that a module's code names: in imports of their folders, or in strings, but for docstrings."""
    tree = ast.parse(text)
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found = {word for alias in node.names for word in f"{node.module}.{alias.name}".split(".")}
        elif isinstance(node, ast.Import):
            found = {word for alias in node.names for word in alias.name.split(".")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            # A name by itself, or the beginning of a suite's; words of a sentence are for people.
            found = set(re.split(r"[/?:]", node.value)) if " " not in node.value else set()
        else:
            continue
        yield from found & set(ENVIRONMENTS)


def is_own(path: str) -> bool:
    """Whether a module lies in a folder, or has the name, of an environment."""
    words = {word for part in path.removesuffix(".py").split("/") for word in (part, *part.split("_"))}
    return bool(words & set(ENVIRONMENTS))


def offenders(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """By module that is no environment's own: the environments that it names."""
    others = (path for path in sources if not (is_own(path) or path == TABLE or path.startswith(tuple(FAMILIES))))
    found = {path: set(named(sources[path])) for path in others}
    return {path: names for path, names in found.items() if names}


def package() -> dict[str, str]:
    root = PROJECT / "evalkit"
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))}


def test_no_module_names_an_environment_that_is_not_its_own() -> None:
    found = offenders(package())
    assert {path: names for path, names in found.items() if path not in STILL} == {}


def test_what_is_listed_still_names_one() -> None:
    found = offenders(package())
    assert [path for path in STILL if path not in found] == []
    assert [folder for folder in FAMILIES if not any(path.startswith(folder) for path in package())] == []


def test_engine_client_store_and_pages_name_none() -> None:
    rooms = ("engine/", "client/", "store/", "view/", "wire/", "serve/", "nightly/")
    assert not [path for path in STILL if path.startswith(rooms)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('if env == "pricing":\n    pass', {"pricing"}),
        ("from evalkit.envs.costbench.score import walked", {"costbench"}),
        ("def late():\n    from evalkit.envs import scheduling", {"scheduling"}),
        ('NAME = "costbench/reference"', {"costbench"}),
        ('"""About pricing."""', set()),
        ('raise ValueError("pricing has no such thing")', set()),
    ],
)
def test_a_planted_name_is_found(text: str, names: set[str]) -> None:
    assert set(named(text)) == names
