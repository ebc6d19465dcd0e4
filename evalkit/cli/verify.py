"""`evalkit verify`: is the log what the episodes were?"""

import argparse

from evalkit.cli.choosing import run_directory

SHOWN = 50


def verify(args: argparse.Namespace) -> int:
    """Print what does not fit; 0 if all does, 1 otherwise."""
    from evalkit.report.verify import verify as check

    directory = run_directory(args.run)
    findings = check(directory)
    if args.json:
        import orjson

        print(orjson.dumps({"version": 1, "findings": findings}, option=orjson.OPT_INDENT_2).decode())
    else:
        for finding in findings[:SHOWN]:
            print(finding)
        if len(findings) > SHOWN:
            print(f"... and {len(findings) - SHOWN:,} more.")
        print(
            f"{directory}: {'every episode replays to what the log holds.' if not findings else 'the log is damaged.'}"
        )
    return 1 if findings else 0
