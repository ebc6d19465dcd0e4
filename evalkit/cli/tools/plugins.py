"""`evalkit tools plugins`: the installed plug-ins, and what is wrong with them."""

import argparse

from evalkit.checking.installed import Inspected, inspect_plugins
from evalkit.cli.choosing import program
from evalkit.text import visible

SCHEMA, VERSION = "evalkit.plugins", 1
WRONG = 1


def plugins(args: argparse.Namespace) -> int:
    """List the plug-ins; return 1 if something is wrong with one, else 0."""
    inspected = inspect_plugins()
    if args.json:
        import orjson

        plain = {"schema": SCHEMA, "version": VERSION, "plugins": [entry.to_json() for entry in inspected]}
        print(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
    elif not inspected:
        print(f"No plug-in is installed. `{program()} new --plugin DIR` writes one to start from.")
    else:
        _print(inspected)
    return WRONG if any(entry.problems for entry in inspected) else 0


def _print(inspected: list[Inspected]) -> None:
    room = max(len(entry.plugin.name) for entry in inspected) + 2
    package_width = max(len(_package(entry)) for entry in inspected) + 2
    for group in dict.fromkeys(entry.plugin.group for entry in inspected):
        print(f"{group}:")
        for entry in inspected:
            if entry.plugin.group == group:
                print(
                    f"  {entry.plugin.name:<{room}}{_package(entry):<{package_width}}{visible(entry.offers)}".rstrip()
                )
                for problem in entry.problems:
                    print(f"    wrong: {visible(problem)}")


def _package(entry: Inspected) -> str:
    return f"{entry.plugin.package} {entry.plugin.version}"
