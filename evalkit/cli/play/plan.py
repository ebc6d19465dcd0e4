"""`evalkit plan`: predict what a sweep costs and how long it takes, or propose what to play for a given amount."""

import argparse
import shlex

from evalkit.api.planning import planned
from evalkit.cli.choosing import again, only_of, program, sweep_of
from evalkit.store.bucket import place_of


def plan(args: argparse.Namespace) -> int:
    """Print the plan; with `--budget`, also what to play for it."""
    sweep = sweep_of(args)
    amount = sweep.budget if args.budget is not None else None
    planned_run = planned(
        sweep,
        only=only_of(args.only),
        basis=args.basis,
        amount=amount,
        directory=place_of(args.dir) if args.dir else None,
        mark="--",
    )
    proposal = None
    if amount is not None:
        from evalkit.engine.planning.nights import proposal_of

        proposal = proposal_of(planned_run.plan, planned_run.resolved, planned_run.scatter, amount)
    if args.json:
        import orjson

        values = planned_run.plan.to_json() | ({} if proposal is None else {"proposal": proposal.to_json()})
        print(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode())
        return 0
    from evalkit.cli.plan_words import next_step, print_plan, print_proposal

    spec = again(args) + (f" --dir {shlex.quote(args.dir)}" if args.dir else "")
    print_plan(planned_run.plan, judge=proposal is None)
    if proposal is not None:
        print_proposal(proposal, f"{program()} run {spec}")
    else:
        print(f"\n{next_step(planned_run.plan, program(), spec)}")
    return 0
