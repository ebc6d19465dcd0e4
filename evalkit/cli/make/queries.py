"""`evalkit queries`: the reference's queries as a suite; queries that a model checks or writes."""

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.api.specs import run_directory
from evalkit.cli.choosing import program
from evalkit.cli.files import new_file, write_new
from evalkit.errors import UsageError

if TYPE_CHECKING:
    from evalkit.tasks.errands import Applied

MOST_RAW = 99_999
"""Raw queries at most: their ids have five digits."""

SHOWN = 10
"""Ids that a message lists at most."""


def import_queries(args: argparse.Namespace) -> int:
    """Write the suite; its lines carry where they come from."""
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.tasks.costbench.queries import ALTERNATIVES, LENGTH, MOST_ALTERNATIVES, SEED, read_queries, suite_lines
    from evalkit.tasks.errands import suite_text

    out = new_file(args.out, ".jsonl", "a suite's file")
    alternatives = ALTERNATIVES if args.alternatives is None else args.alternatives
    if not 0 <= alternatives <= MOST_ALTERNATIVES:
        raise UsageError(f"--alternatives: must be 0 to {MOST_ALTERNATIVES}, not {alternatives}.")
    files = [read_queries(Path(name).expanduser()) for name in args.files]
    lines = suite_lines(
        files,
        length=LENGTH if args.length is None else args.length,
        seed=SEED if args.seed is None else args.seed,
        alternatives=alternatives,
    )
    env = ENVIRONMENTS["costbench"]
    lines = [dict(env.describe(env.load(line))) for line in lines]
    write_new(out, suite_text(lines))
    cut = sum(query["truncated"] for file in files for query in file.queries)
    print(f"Wrote {len(lines):,} {'query' if len(lines) == 1 else 'queries'} to {out}.")
    if cut:
        share = f"{cut:,} of them ({100 * cut / len(lines):.1f} %)"
        print(f"Marked as truncated: {share}, whose texts break off in mid-sentence.")
    print(f'Use them with `name = "{out}"` in a [[suites]] table.')
    return 0


def raw(args: argparse.Namespace) -> int:
    """Write the reference's raw queries, in its form: what a validator and a writer would then be asked about."""
    import json

    from evalkit.envs.costbench.domain.catalogue_files import shipped
    from evalkit.envs.costbench.domain.queries import reference_queries
    from evalkit.tasks.costbench.queries import CATALOGUE, RAW_TOTALS

    out = new_file(args.out, ".json", "a file of raw queries")
    total = RAW_TOTALS[args.split] if args.total is None else args.total
    if not 1 <= total <= MOST_RAW:
        raise UsageError(f"--total: must be 1 to {MOST_RAW:,}, not {total:,}.")
    rows = list(reference_queries(shipped(CATALOGUE), args.split, total))
    write_new(out, json.dumps(rows, ensure_ascii=False, indent=4))
    print(f"Wrote {len(rows):,} raw queries of the {args.split} split to {out}.")
    return 0


def ask(args: argparse.Namespace) -> int:
    """Write the errand suite and the sweep that plays it."""
    from evalkit.spec.suites import find_suite, read_lines
    from evalkit.tasks.errands import ASKED, distinct, query_lines

    if args.what not in ASKED:
        raise UsageError(f"--for: must be {' or '.join(ASKED)}, not {args.what!r}.")
    lines = distinct(query_lines(args.what, read_lines(find_suite(args.suite)), args.suite))
    sweep = write_errands(
        args.what,
        lines,
        name=args.name,
        suite=f"instances/queries/{args.name}.jsonl",
        model=args.model,
        budget=args.budget,
        about=f"Asks {args.model} about the queries of {args.suite}: {args.what}.",
    )
    out = f"{args.suite.removesuffix('.jsonl')}-{args.what}.jsonl"
    after = ["queries", "apply", f"runs/{args.name}", args.suite, "--out", out]
    tell_next(sweep, after, "the suite as the answers make it")
    return 0


def write_errands(
    kind: str,
    lines: Sequence[Mapping[str, Any]],
    *,
    name: str,
    suite: str,
    model: str,
    budget: str | None,
    about: str,
) -> Path:
    """Write a suite of errands and its sweep, which is returned; both or, where one cannot be made, none."""
    from evalkit.spec.sweep import checked_name, parse_budget
    from evalkit.tasks.errands import suite_text, sweep_text

    checked_name(name, "--name", "/:")
    parse_budget(budget, "--budget")
    if not lines:
        raise UsageError("There is nothing to ask about; nothing was written.")
    suite_path = new_file(suite, ".jsonl", "a suite's file")
    sweep_path = new_file(f"runs/{name}.toml", ".toml", "a sweep's file")
    text = sweep_text(name, kind, model, suite_path, budget, about)
    write_new(suite_path, suite_text(lines))
    write_new(sweep_path, text)
    print(f"Wrote {len(lines):,} {kind} errands to {suite_path}, and the sweep {sweep_path}. Next:")
    return sweep_path


def tell_next(sweep: Path, after: Sequence[str], what: str) -> None:
    """Say which commands come next: the sweep's plan and run, then `after`."""
    evalkit, path = program(), shlex.quote(str(sweep))
    hints = [
        (f"{evalkit} plan {path}", "what it will cost"),
        (f"{evalkit} run {path}", "ask; resumable, under the budget"),
        (f"{evalkit} {shlex.join(after)}", what),
    ]
    room = max(len(command) for command, _ in hints) + 2
    print("\n".join(f"  {command:<{room}}{why}" for command, why in hints))


def apply(args: argparse.Namespace) -> int:
    """Write the suite that the answers of an errand run make of another one."""
    from evalkit.envs.errand import errand
    from evalkit.envs.lines import load_varied
    from evalkit.envs.table import ENVIRONMENTS
    from evalkit.spec.suites import find_suite, read_lines
    from evalkit.tasks.answers import read_answers
    from evalkit.tasks.errands import apply_texts, apply_verdicts, suite_text

    out = new_file(args.out, ".jsonl", "a suite's file")
    run = run_directory(args.run)
    kind, answers = read_answers(run)
    if kind in errand.JUDGED:
        raise UsageError(f"{run} judged texts of a run: give it to `evalkit report RUN --judged {run}`.")
    suite = list(read_lines(find_suite(args.suite)))
    applied = (apply_verdicts if kind == errand.CONFLICT else apply_texts)(suite, answers, args.suite)
    if not applied.lines:
        raise UsageError(f"{args.suite}: no query would be left; nothing was written. Is {run} about this suite?")
    env = ENVIRONMENTS["costbench"]
    lines = [env.describe(load_varied(env, line, {}, f"{args.suite}: {line['id']}")) for line in applied.lines]
    write_new(out, suite_text(lines))
    print(f"Wrote {len(lines):,} of {len(suite):,} queries to {out}.")
    for line in _counts(applied):
        print(line)
    return 0


def _counts(applied: "Applied") -> Iterable[str]:
    for ids, what in (
        (applied.dropped, "left out: their wishes conflict"),
        (applied.unanswered, "left out: no answer that could be read"),
        (
            applied.without_alternative,
            "kept with fewer alternatives: some conflict, have no verdict, or are no lines of this suite",
        ),
        (applied.truncated, "kept and marked: their text was cut off at the token limit"),
    ):
        if ids:
            more = f", and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
            yield f"{len(ids):,} {what} ({', '.join(ids[:SHOWN])}{more})."
