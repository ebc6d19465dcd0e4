"""`evalkit suites describe`: what a suite holds."""

import argparse

import orjson

from evalkit.errors import UsageError
from evalkit.report.describe import describe_tables


def describe(args: argparse.Namespace) -> int:
    """Print the suite's tables."""
    from evalkit.spec.packs import read_pack
    from evalkit.spec.suites import environment_of, find_suite, read_lines

    path = find_suite(args.suite)
    lines = list(read_lines(path))
    if not lines:
        raise UsageError(f"{path} has no instances.")
    env = environment_of(lines[0], str(path))
    tables = describe_tables(args.suite, env, lines, read_pack("standard", env.name))
    if args.json:
        document = {
            "suite": args.suite,
            "environment": env.name,
            "tables": {table.name: table.to_json() for table in tables},
        }
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        from evalkit.report.render.terminal import console, print_table

        to = console()
        for table in tables:
            print_table(table, to)
    return 0
