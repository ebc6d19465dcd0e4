"""`evalkit plugins`: what installed packages bring, and what is wrong with it."""

import argparse

from evalkit.checking.installed import Inspected, inspect_plugins
from evalkit.cli.choosing import program
from evalkit.text import visible

SCHEMA, VERSION = "evalkit.plugins", 1
WRONG = 1


def plugins(args: argparse.Namespace) -> int:
    """List them; 1 where something is wrong with one, else 0."""
    found = inspect_plugins()
    if args.json:
        import orjson

        plain = {"schema": SCHEMA, "version": VERSION, "plugins": [one.to_json() for one in found]}
        print(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())
    elif not found:
        print(f"No package brings anything. `{program()} new --plugin DIR` writes one that does.")
    else:
        _print(found)
    return WRONG if any(one.problems for one in found) else 0


def _print(found: list[Inspected]) -> None:
    room = max(len(one.plugin.name) for one in found) + 2
    whose = max(len(_package(one)) for one in found) + 2
    for group in dict.fromkeys(one.plugin.group for one in found):
        print(f"{group}:")
        for one in found:
            if one.plugin.group == group:
                print(f"  {one.plugin.name:<{room}}{_package(one):<{whose}}{visible(one.offers)}".rstrip())
                for problem in one.problems:
                    print(f"    wrong: {visible(problem)}")


def _package(one: Inspected) -> str:
    return f"{one.plugin.package} {one.plugin.version}"
