"""`evalkit judge`: a run's plans as errands for a judge, who counts the paths that each of them holds."""

import argparse

from evalkit.api.specs import run_directory
from evalkit.cli.make.queries import tell_next, write_errands
from evalkit.errors import RunError


def judge(args: argparse.Namespace) -> int:
    """Write the errand suite and the sweep that plays it."""
    from evalkit.envs.errand import errand
    from evalkit.tasks.answers import first_texts
    from evalkit.tasks.errands import coverage_line, distinct

    run = run_directory(args.run)
    texts = first_texts(run)
    if not texts:
        raise RunError(
            f"{run} has nothing to judge: no costbench episode without events has ended and holds a text of the agent."
        )
    of = run.resolve().name
    name = args.name or f"{of}-judge"
    kind = errand.ENUMERATION if args.listed else errand.COVERAGE
    sweep = write_errands(
        kind,
        distinct(coverage_line(episode, text, kind) for episode, text in texts.items()),
        name=name,
        suite=f"instances/judge/{args.name or of}.jsonl",
        model=args.model,
        budget=args.budget,
        about=f"Counts the paths in the first texts of {len(texts):,} episodes of {of}; equal texts once.",
    )
    tell_next(sweep, ["report", str(run), "--judged", f"runs/{name}"], "coverage as the judge counts it")
    return 0
