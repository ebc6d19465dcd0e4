"""Catalogues read from files and plain values, checked, and written into a suite's line."""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from evalkit.envs.costbench.domain.catalogue import Catalogue
from evalkit.envs.costbench.domain.check import check
from evalkit.errors import UsageError, nearest

_OPTIONAL = frozenset(
    {
        "chain",
        "components",
        "conflicts",
        "context",
        "does",
        "filters",
        "gives",
        "graph",
        "labels",
        "meanings",
        "phrases",
        "train",
    }
)
"""Fields that are left out where they have their default."""


def shipped_names() -> list[str]:
    """The catalogues that evalkit brings."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


@lru_cache(maxsize=16)
def shipped(name: str) -> Catalogue:
    """A catalogue that evalkit brings. Raises UsageError with the nearest name."""
    if name not in shipped_names():
        own = " To use your own file in a suite: `evalkit suites generate costbench --catalogue FILE.toml`."
        raise UsageError(f"catalogue: there is no catalogue {name!r}.{nearest(name, shipped_names())}{own}")
    return read_catalogue((_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def _folder() -> Any:
    return files("evalkit.envs.costbench") / "catalogues"


def read_catalogue(text: str, where: str) -> Catalogue:
    """A catalogue from TOML text. Raises UsageError naming what is wrong in it."""
    try:
        return parse_catalogue(tomllib.loads(text), where)
    except (ValueError, RecursionError) as flaw:
        raise UsageError(f"{where}: not valid TOML: {flaw}") from flaw


def parse_catalogue(value: Mapping[str, Any], where: str) -> Catalogue:
    """A catalogue from plain values (a TOML file's, or those in a suite's line). Raises UsageError."""
    try:
        catalogue = msgspec.convert(value, Catalogue)
    except msgspec.ValidationError as flaw:
        raise UsageError(f"{where}: {flaw}.") from flaw
    check(catalogue, where)
    return catalogue


def only_task(catalogue: Catalogue, task: str) -> dict[str, Any]:
    """The catalogue as plain values with only what an instance of one task needs: as a suite's line holds it.

    All chain tasks keep their place and values, since costs are drawn in the order of the tasks; the context's task is
    whole. Phrases, conflicts and training values of the others go, and so do other tasks with a graph, on which no
    draw depends. Raises UsageError for a task that is not there.
    """
    if task not in catalogue.tasks:
        raise UsageError(f"catalogue {catalogue.name}: there is no task {task!r}.{nearest(task, catalogue.tasks)}")
    plain: dict[str, Any] = _filled_in(msgspec.to_builtins(catalogue))
    for name, values in list(plain["tasks"].items()):
        if name in (task, catalogue.context):
            continue
        if "graph" in values:
            del plain["tasks"][name]
        else:
            plain["tasks"][name] = {key: values[key] for key in ("about", "test")}
    return plain


def _filled_in(plain: Any) -> Any:
    """Plain values without the fields that have their default: nothing, or an empty one."""
    if not isinstance(plain, dict):
        return plain
    kept = {key: _filled_in(value) for key, value in plain.items()}
    return {key: value for key, value in kept.items() if key not in _OPTIONAL or value}
