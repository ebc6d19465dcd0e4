"""`evalkit suites`: the suites that can be named."""

import argparse
import sys
from pathlib import Path

from evalkit.cli.choosing import program
from evalkit.errors import UsageError
from evalkit.plugins import names
from evalkit.shipped import folders
from evalkit.spec.suites import suite_folders, suites_in


def suites(_: argparse.Namespace) -> int:
    """Print the names, each with the folder that it is found in."""
    found: dict[str, Path] = {}
    for folder in folders("instances"):
        for name in suites_in(folder):
            found.setdefault(name, folder)
    brought = suite_folders()
    for of_plugin in names("suites", brought.built_in):
        try:
            folder = brought[of_plugin]
            found.update({f"{of_plugin}/{name}": folder for name in suites_in(folder)})
        except UsageError as flaw:
            print(f"evalkit: {flaw}", file=sys.stderr)
    room = max(map(len, found), default=0)
    print("\n".join(f"{name:<{room}}  {folder}" for name, folder in sorted(found.items())))
    print(f"\nInstances, parameters and tools of a suite: {program()} suites describe NAME")
    return 0
