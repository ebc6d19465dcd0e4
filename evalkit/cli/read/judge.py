"""`evalkit judge`: a run's plans as errands for a judge, who counts the paths that each of them holds."""

import argparse

from evalkit.api.specs import run_directory
from evalkit.cli.make.queries import tell_next
from evalkit.tasks.suites import judged_texts
from evalkit.tasks.sweeps import write_errands


def judge(args: argparse.Namespace) -> int:
    """Write the errand suite and the sweep that plays it."""
    run = run_directory(args.run)
    kind, lines, texts = judged_texts(run, listed=args.listed)
    of = run.resolve().name
    name = args.name or f"{of}-judge"
    suite, sweep = write_errands(
        kind,
        lines,
        name=name,
        suite=f"instances/judge/{args.name or of}.jsonl",
        model=args.model,
        budget=args.budget,
        about=f"Counts the paths in the first texts of {texts:,} episodes of {of}; equal texts once.",
    )
    after = ["report", str(run), "--judged", f"runs/{name}"]
    tell_next(f"{len(lines):,} {kind} errands to {suite}", sweep, after, "coverage as the judge counts it")
    return 0
