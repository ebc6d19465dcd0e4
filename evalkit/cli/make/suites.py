"""`evalkit suites`: the suites that can be named."""

import argparse
from pathlib import Path

from evalkit.cli.choosing import program
from evalkit.plugins import installed
from evalkit.shipped import folders
from evalkit.spec.suites import suite_folders, suites_in


def suites(_: argparse.Namespace) -> int:
    """Print the names, each with the folder that it is found in."""
    found: dict[str, Path] = {}
    for folder in folders("instances"):
        for name in suites_in(folder):
            found.setdefault(name, folder)
    for plugin in installed("suites"):
        folder = suite_folders()[plugin.name]
        for name in suites_in(folder):
            found.setdefault(f"{plugin.name}/{name}", folder)
    room = max(map(len, found), default=0)
    print("\n".join(f"{name:<{room}}  {folder}" for name, folder in sorted(found.items())))
    print(f"\nInstances, parameters and tools of a suite: {program()} suites describe NAME")
    return 0
