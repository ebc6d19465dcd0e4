"""`evalkit plan`: predict what a sweep costs and how long it takes, and what its budget pays for."""

import argparse
import shlex

from evalkit.api.planning import planned
from evalkit.cli.choosing import again, only_of, program, sweep_of
from evalkit.store.bucket import place_of


def plan(args: argparse.Namespace) -> int:
    """Print the plan."""
    directory = place_of(args.dir) if args.dir else None
    found = planned(sweep_of(args), only=only_of(args.only), directory=directory, mark="--")
    if args.json:
        import orjson

        print(orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2).decode())
        return 0
    from evalkit.cli.plan_words import next_step, print_plan

    print_plan(found)
    spec = again(args) + (f" --dir {shlex.quote(args.dir)}" if args.dir else "")
    print(f"\n{next_step(found, program(), spec)}")
    return 0
