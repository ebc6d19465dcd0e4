"""No module names an environment but its own modules, and the one table through which environments are found."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from evalkit.envs.table import ENVIRONMENTS

PROJECT = Path(__file__).resolve().parent.parent

TABLE = "envs/table.py"

FAMILIES: Mapping[str, frozenset[str]] = {
    "report/markets/": frozenset({"scheduling", "pricing", "procurement"}),
    "tasks/": frozenset({"errand"}),
}
"""Folders that are environments' own but bear no name of theirs -> whose they are: the tables of a paper on three, and
the room of model tasks, which are played as errands."""


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
    others = (path for path in sources if not (is_own(path) or path == TABLE))
    found = {path: set(named(sources[path])) - own_of(path) for path in others}
    return {path: names for path, names in found.items() if names}


def own_of(path: str) -> frozenset[str]:
    """The environments whose room a module lies in."""
    return next((names for folder, names in FAMILIES.items() if path.startswith(folder)), frozenset())


def package() -> dict[str, str]:
    root = PROJECT / "evalkit"
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.py"))}


def test_no_module_names_an_environment_that_is_not_its_own() -> None:
    assert offenders(package()) == {}


def test_the_rooms_of_several_are_there_and_name_them() -> None:
    sources = package()
    for folder, names in FAMILIES.items():
        within = [named(text) for path, text in sources.items() if path.startswith(folder) and not is_own(path)]
        assert names <= {name for found in within for name in found}, folder


def test_a_module_that_names_one_is_found_wherever_it_lies() -> None:
    text = 'if env == "pricing":\n    pass'
    paths = ("engine/episode.py", "spec/suites.py", "tasks/record.py", "envs/table.py", "policy/pricing/playing.py")
    assert list(offenders(dict.fromkeys(paths, text))) == ["engine/episode.py", "spec/suites.py", "tasks/record.py"]


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
