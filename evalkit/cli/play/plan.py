"""`evalkit plan`: predict what a sweep costs and how long it takes, or propose what to play for a given amount."""

import argparse

from evalkit.api.planning import planned
from evalkit.cli.choosing import again, only_of, program, sweep_of


def plan(args: argparse.Namespace) -> int:
    """Print the plan; with `--budget`, also what to play for it."""
    sweep = sweep_of(args)
    amount = sweep.budget if args.budget is not None else None
    planned_run = planned(sweep, only=only_of(args.only), basis=args.basis, amount=amount, mark="--")
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

    print_plan(planned_run.plan, judge=proposal is None)
    if proposal is not None:
        print_proposal(proposal, f"{program()} run {again(args)}")
    else:
        print(f"\n{next_step(planned_run.plan, program(), again(args))}")
    return 0
