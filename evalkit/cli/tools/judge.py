"""`evalkit tools judge`: write a run's plans as errands for a judge, a model that counts the paths in each plan."""

import argparse

from evalkit.cli.choosing import tell_next
from evalkit.playing.specs import run_directory
from evalkit.tasks.suites import judged_texts, write_errands
from evalkit.text import many


def judge(args: argparse.Namespace) -> int:
    """Write the suite of errands and the sweep that plays it."""
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
        about=f"Counts the paths in the first texts of {many(texts, 'episode')} of {of}; equal texts are counted once.",
    )
    after = ["report", str(run), "--judged", f"runs/{name}"]
    tell_next(f"{len(lines):,} {kind} errands to {suite}", sweep, after, "coverage with the judge's counts")
    return 0
