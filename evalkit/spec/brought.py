"""Suites that packages bring: an entry `offers` of the group `suites` is the folder of the suites `offers/...`."""

from pathlib import Path

from evalkit.envs.table import OWN_ENVIRONMENTS
from evalkit.errors import UsageError, nearest
from evalkit.plugins import Plugin, PluginTable
from evalkit.shipped import folders

SUFFIX = ".jsonl"


def suite_folders() -> PluginTable[Path]:
    """The folders, by the first part of their suites' names. Nobody adds to those of evalkit's own suites."""
    return PluginTable("suites", {name: Path(name) for name in OWN_ENVIRONMENTS}, Path)


def suite_plugin(name: str) -> Plugin | None:
    """Whose folder a suite of this name would lie in; None if no package has it. Raises UsageError if several
    have."""
    return suite_folders().plugin(name.partition("/")[0])


def brought_suite(name: str) -> Path | None:
    """The file of a suite that a package brings; None if none brings that folder.

    Raises UsageError if the folder has no such suite, or its package is at fault.
    """
    if suite_plugin(name) is None:
        return None
    first, _, rest = name.partition("/")
    folder = suite_folders()[first]
    path = folder / f"{rest}{SUFFIX}"
    if not rest or not path.is_file():
        valid = [f"{first}/{suite}" for suite in suites_in(folder)]
        raise UsageError(f"There is no suite {name!r} in {folder}.{nearest(name, valid)}")
    return path


def source_of(name: str) -> Plugin | None:
    """Whose suite it is that a sweep gets by this name; None of a user's own, or of evalkit's."""
    own = [folder / f"{name}{SUFFIX}" for folder in folders("instances")]
    if name.endswith(SUFFIX) or any(path.is_file() for path in own):
        return None
    return suite_plugin(name)


def suites_in(folder: Path) -> list[str]:
    """The names of the suites in a folder, seen from it."""
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob(f"*{SUFFIX}"))
