"""Packages as installers leave them: modules, and metadata with entry points. Written by hand, they cost nothing."""

from collections.abc import Mapping
from pathlib import Path

from evalkit.plugins import PREFIX

ENVIRONMENT = """
from dataclasses import replace
from tests.support.guessing_game import GUESSING
RECORD = replace(GUESSING, name={name!r}, version={version})
"""


def put(
    site: Path, package: str, version: str, entries: Mapping[str, Mapping[str, str]], modules: Mapping[str, str]
) -> None:
    """Install a package into a folder of the path. `entries`: by group without its prefix, names and values."""
    about = site / f"{package.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [
        line
        for group, found in entries.items()
        for line in (f"[{PREFIX}{group}]", *(f"{name} = {value}" for name, value in found.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)


def put_environment(site: Path, package: str, name: str, version: str = "1.0", module: str = "") -> None:
    """Install a package with one environment, a copy of the guessing game."""
    module = module or package.replace("-", "_")
    put(
        site,
        package,
        version,
        {"environments": {name: f"{module}:RECORD"}},
        {module: ENVIRONMENT.format(name=name, version=1)},
    )
