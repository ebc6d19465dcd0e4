"""`evalkit tools queries`: import the reference's queries as a suite; have a model check or write queries."""

import argparse
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from evalkit.cli.choosing import program, tell_next
from evalkit.errors import RunError, UsageError
from evalkit.files import new_file, write_new
from evalkit.playing.specs import run_directory
from evalkit.tasks.by_hand import HandCheck, agreement, drawn, read_sheet, sheet
from evalkit.tasks.record import AppliedSuite, Line, with_queries
from evalkit.tasks.suites import (
    answered_suite,
    asked_about,
    checked_by_hand,
    imported_suite,
    sound_suite,
    suite_text,
    write_errands,
)
from evalkit.text import many

SHOWN = 10
"""The most ids that a message lists."""


def import_queries(args: argparse.Namespace) -> int:
    """Write the suite; its lines name their source."""
    out = new_file(args.out, ".jsonl", "a suite's file")
    lines, held = imported_suite(args.files, length=args.length, seed=args.seed, alternatives=args.alternatives)
    write_new(out, suite_text(lines))
    print(f"Wrote {many(len(lines), 'query', 'queries')} to {out}.")
    if held.truncated:
        share = f"{held.truncated:,} of them ({100 * held.truncated / len(lines):.1f} %)"
        print(f"Marked as truncated: {share}, whose texts end in mid-sentence.")
    if conflicting := sum(held.conflicts.values()):
        print(f"{conflicting:,} of them conflict, as the file says: `queries filter` instead leaves them out.")
    print(f'Use them with `name = "{out}"` in a [[suites]] table.')
    return 0


def raw(args: argparse.Namespace) -> int:
    """Write the reference's raw queries, in its form: the input of a validator and a writer."""
    out = new_file(args.out, ".json", "a file of raw queries")
    rows = with_queries().raw(args.split, args.total, args.seed)
    write_new(out, json.dumps(rows, ensure_ascii=False, indent=4))
    print(f"Wrote {many(len(rows), 'raw query', 'raw queries')} of the {args.split} split to {out}.")
    return 0


def leave_out(args: argparse.Namespace) -> int:
    """Write the suite without wishes that conflict, as far as it can be told without a model."""
    out = new_file(args.out, ".jsonl", "a suite's file")
    return _tell(out, *sound_suite(args.files, args.seed))


def ask(args: argparse.Namespace) -> int:
    """Write the suite of errands and the sweep that plays it."""
    lines = asked_about(args.suite, args.what)
    suite, sweep = write_errands(
        args.what,
        lines,
        name=args.name,
        suite=f"instances/queries/{args.name}.jsonl",
        model=args.model,
        about=f"Asks {args.model} about the queries in {args.suite}: {args.what}.",
    )
    out = f"{re.sub(r'[.]jsonl?$', '', args.suite)}-{args.what}.jsonl"
    next_command = ["tools", "queries", "apply", f"runs/{args.name}", args.suite, "--out", out]
    tell_next(f"{len(lines):,} {args.what} errands to {suite}", sweep, next_command, "make a suite from the answers")
    return 0


def apply(args: argparse.Namespace) -> int:
    """Write the suite that results from another one and the answers of an errand run."""
    out = new_file(args.out, ".jsonl", "a suite's file")
    return _tell(out, *answered_suite(run_directory(args.run), args.suite, args.seed))


def sample(args: argparse.Namespace) -> int:
    """Write a sheet that people fill in: of a suite's queries, or of the plans in a run."""
    out = new_file(args.out, ".csv", "a sheet")
    chosen = drawn(_checked(args.of), args.size, args.seed)
    write_new(out, sheet(chosen))
    print(f"Wrote {many(len(chosen), 'text')} of {len({item.stratum for item in chosen})} strata to {out}.")
    print(f"When copies are filled in: {program()} tools queries agree {shlex.quote(args.of)} COPY.csv ...")
    return 0


def agree(args: argparse.Namespace) -> int:
    """Print how often the annotators are right, and how far they agree."""
    from evalkit.report.render.terminal import console, print_table

    items = _checked(args.of, args.judged)
    by_id = {item.id: item for item in items}
    sheets = {name: read_sheet(Path(name).expanduser(), by_id) for name in args.sheets}
    tables = agreement(items, sheets)
    if args.json:
        print(json.dumps({table.name: table.to_json() for table in tables}, indent=2))
        return 0
    to = console()
    for table in tables:
        print_table(table, to)
    return 0


def _checked(of: str, judged: str | None = None) -> Sequence[HandCheck]:
    try:
        run = run_directory(of)
    except RunError:
        run = None
    if judged and run is None:
        raise UsageError(f"--judged: {of} is no run.")
    return checked_by_hand(of, run, run_directory(judged) if judged else None)


def _tell(out: Path, lines: Sequence[Line], applied: AppliedSuite, total: int) -> int:
    write_new(out, suite_text(lines))
    print(f"Wrote {len(lines):,} of {total:,} queries to {out}.")
    for line in _counts(applied):
        print(line)
    return 0


def _counts(applied: AppliedSuite) -> Iterable[str]:
    for ids, what in (
        (applied.dropped, "omitted: their wishes conflict"),
        (applied.unanswered, "omitted: no readable answer"),
        (
            applied.without_alternative,
            "kept with fewer alternatives: some conflict, have no verdict, or are not in this suite",
        ),
        (applied.truncated, "kept and marked: their text was cut off at the token limit"),
    ):
        if ids:
            more = f", and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
            yield f"{len(ids):,} {what} ({', '.join(ids[:SHOWN])}{more})."
