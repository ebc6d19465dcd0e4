"""`python -m tests.conform DIR`: every golden file of a directory against evalkit, one line a kind.

Exit codes: 0 no unexplained difference, 1 at least one, 2 nothing to compare (`UsageError`).
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from evalkit.errors import UsageError
from tests.conform.compare.documented import DOCUMENTED
from tests.conform.compare.files import Case, cases, golden_files, with_rows
from tests.conform.compare.goldens import GoldenKind, GoldenVerdict, Status, differing
from tests.conform.compare.kinds import KINDS, kind_of

_COLUMNS: tuple[Status, ...] = ("equal", "documented", "statistical", "out of scope", "differing")
_LABELS = ("env", "difficulty", "seed", "name", "start", "query_id")


@dataclass(slots=True)
class Tally:
    """What was found of one kind."""

    kind: GoldenKind
    count: Counter[str] = field(default_factory=Counter)
    """Cases by status."""
    first: str = ""
    """The first difference, with its place."""
    documented: Counter[str] = field(default_factory=Counter)
    """Cases by the id of a documented difference."""
    bounds: list[str] = field(default_factory=list)
    """What the statistical cases said."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why cases are out of scope."""

    def add(self, case: Case, verdict: GoldenVerdict) -> None:
        """Count one case."""
        self.count[verdict.status] += 1
        if verdict.status == "differing" and not self.first:
            self.first = f"{case.place}{_label(case)}: {verdict.detail}"
        elif verdict.status == "documented":
            self.documented[verdict.detail] += 1
        elif verdict.status == "statistical":
            self.bounds.append(f"{case.place}{_label(case)}: {verdict.detail}")
        elif verdict.status == "out of scope":
            self.reasons[verdict.detail] += 1


def run(goldens: Path, data: Path | None, *, out: TextIO) -> int:
    """Compare, print what was found to `out`, and return the exit code.

    `data` is the folder with the reference's own data set, for kinds that need it. Raises UsageError where there is
    nothing to compare.
    """
    tallies, strange = compare(goldens, data)
    if not tallies:
        names = ", ".join(str(path.relative_to(goldens)) for path in strange[:5])
        raise UsageError(f"{goldens} holds no golden file of a kind that evalkit knows (it holds {names}).")
    _print_table(tallies, out)
    _print_notes(tallies, out)
    if strange:
        print("\nnot recognised (no kind has such a name):", file=out)
        for path in strange:
            print(f"  {path.relative_to(goldens)}", file=out)
    wrong = sum(tally.count["differing"] for tally in tallies)
    total = sum(tally.count.total() for tally in tallies)
    print(f"\n{total} cases, {wrong} unexplained difference{'s' if wrong != 1 else ''}", file=out)
    return 1 if wrong else 0


def compare(goldens: Path, data: Path | None) -> tuple[list[Tally], list[Path]]:
    """What was found of each kind, in the order of the table, and the files of no kind."""
    tallies: dict[str, Tally] = {}
    strange = []
    for path in golden_files(goldens):
        kind = kind_of(path.name)
        if kind is None:
            strange.append(path)
            continue
        tally = tallies.setdefault(kind.name, Tally(kind))
        for case in cases(path, goldens):
            tally.add(case, check(kind, with_rows(case, path, kind.beside), data))
    return [tallies[kind.name] for kind in KINDS if kind.name in tallies], strange


def check(kind: GoldenKind, case: Case, data: Path | None) -> GoldenVerdict:
    """One case. A row without the expected fields is a difference that says so: it was not compared."""
    if case.flaw:
        return differing(case.flaw)
    try:
        return kind.check(case.row, data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, UsageError) as flaw:
        return differing(f"the row could not be compared: {type(flaw).__name__}: {flaw}")


def _label(case: Case) -> str:
    if not isinstance(case.row, dict):
        return ""
    said = ", ".join(f"{key} {case.row[key]}" for key in _LABELS if key in case.row)
    return f" ({said})" if said else ""


def _print_table(tallies: list[Tally], out: TextIO) -> None:
    wide = max(len(tally.kind.name) for tally in tallies)
    print(f"{'kind':{wide}}  {'cases':>6}" + "".join(f"  {column:>12}" for column in _COLUMNS), file=out)
    for tally in tallies:
        counts = "".join(f"  {tally.count[column] or '.':>12}" for column in _COLUMNS)
        print(f"{tally.kind.name:{wide}}  {tally.count.total():>6}{counts}", file=out)


def _print_notes(tallies: list[Tally], out: TextIO) -> None:
    documented: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for tally in tallies:
        documented += tally.documented
        reasons += tally.reasons
    _print_list("first difference of each kind", [f"{t.kind.name}: {t.first}" for t in tallies if t.first], out)
    _print_list("documented differences", [f"{key} ({n}): {DOCUMENTED[key]}" for key, n in documented.items()], out)
    _print_list("statistical", [line for tally in tallies for line in tally.bounds], out)
    _print_list("out of scope", [f"{n}: {reason}" for reason, n in reasons.items()], out)


def _print_list(title: str, lines: list[str], out: TextIO) -> None:
    if lines:
        print(f"\n{title}:", file=out)
        for line in lines:
            print(f"  {line}", file=out)
