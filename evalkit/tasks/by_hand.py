"""Samples that people check by hand: a sheet drawn by stratum, and how far those who filled it in agree.

Of a suite, annotators say from a query's text which wishes are behind it; the suite has the right ones. Of a run, they
count the paths that a plan lists, as a judge does. Source: appendix E of CostBench, which checks 200 queries over the
six tasks, and ten plans a setting; kappa: Cohen, 1960.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from evalkit.errors import UsageError, nearest
from evalkit.report.tables import Column, Table, as_csv, columns_of
from evalkit.seeds import Stream

PATHS = "paths"
"""What is asked of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandCheck:
    """One thing that people judge."""

    id: str
    stratum: str
    text: str
    asked: Mapping[str, tuple[Sequence[str], str]]
    """By question: (the possible answers; none: any whole number, the right one; empty: nobody has said)."""


def drawn(items: Sequence[HandCheck], size: int, seed: int) -> list[HandCheck]:
    """A sample, in the order of the items: of every stratum its share of the size, rounded, but one at least.

    Raises UsageError for a size that cannot be.
    """
    strata: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        strata.setdefault(item.stratum, []).append(place)
    if not len(strata) <= size <= len(items):
        raise UsageError(
            f"--size: must be {len(strata):,} (one of each stratum) to {len(items):,} (all there are), not {size:,}."
        )
    wanted = {name: max(1, size * len(places) // len(items)) for name, places in strata.items()}
    by_rest = sorted(strata, key=lambda name: (-(size * len(strata[name]) % len(items)), name))
    while (missing := size - sum(wanted.values())) != 0:
        room = [name for name in by_rest if (wanted[name] < len(strata[name]) if missing > 0 else wanted[name] > 1)]
        for name in (room if missing > 0 else room[::-1])[: abs(missing)]:
            wanted[name] += 1 if missing > 0 else -1
    chosen: set[int] = set()
    for name, places in strata.items():
        order = Stream(seed, "by hand", name).permutation(len(places))
        chosen.update(places[place] for place in order[: wanted[name]])
    return [items[place] for place in sorted(chosen)]


def sheet(sample: Iterable[HandCheck]) -> str:
    """The sheet to be filled in, as CSV: for every question an empty column, and one with what may be answered."""
    sample = list(sample)
    questions = list(dict.fromkeys(question for item in sample for question in item.asked))
    keys = ("id", "stratum", "text", *(key for one in questions for key in (one, f"{one}_options")))
    rows = [
        {"id": item.id, "stratum": item.stratum, "text": item.text}
        | {f"{one}_options": " | ".join(options) or "a whole number" for one, (options, _) in item.asked.items()}
        | dict.fromkeys(item.asked, "")
        for item in sample
    ]
    columns = tuple(Column(key=key, title=key) for key in keys)
    return as_csv(Table(name="sheet", title="", columns=columns, rows=tuple(rows), packs=(), notes=()))


Answers = Mapping[tuple[str, str], str]
"""By item's id and question."""


def read_sheet(path: Path, items: Mapping[str, HandCheck]) -> Answers:
    """What somebody has filled in; blanks are left out. Raises UsageError naming file, row and what is wrong."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as flaw:
        raise UsageError(f"{path} cannot be read as a sheet: {flaw}.") from flaw
    answers: dict[tuple[str, str], str] = {}
    for number, row in enumerate(rows, 2):
        item = items.get((row.get("id") or "").removeprefix("'"))
        if item is None:
            raise UsageError(f"{path}: row {number}: id {row.get('id')!r} is not of what the sheet was drawn from.")
        for question, (options, _) in item.asked.items():
            said = " ".join((row.get(question) or "").strip().lower().replace("_", " ").split())
            if not said:
                continue
            known = {option.replace("_", " ").lower(): option for option in options}
            if said not in known if options else not said.isdecimal():
                wanted = f"one of {', '.join(options)}{nearest(said, known)}" if options else "a whole number"
                raise UsageError(f"{path}: row {number}: {question}: {said!r} is not {wanted}")
            answers[item.id, question] = known[said] if options else str(int(said))
    if not answers:
        raise UsageError(f"{path}: nothing is filled in.")
    return answers


def kappa(groups: Iterable[Sequence[tuple[str, str]]]) -> float | None:
    """Cohen's kappa of two people's answers, (observed - chance) / (1 - chance); None where chance alone agrees on all,
    and of no answers.

    groups   pairs of answers with the same possible ones: what chance comes to is the mean over pairs of each group's
    """
    n = same = 0
    chance = 0.0
    for pairs in groups:
        n += len(pairs)
        same += sum(one == other for one, other in pairs)
        first, second = (Counter(pair[i] for pair in pairs) for i in range(2))
        chance += sum(first[answer] * second[answer] for answer in first) / max(1, len(pairs))
    return (same - chance) / (n - chance) if chance < n else None


def agreement(items: Sequence[HandCheck], sheets: Mapping[str, Answers]) -> tuple[Table, ...]:
    """How often each annotator has the right answer, and how far each two agree, by question and over all."""
    right = {(item.id, one): answer for item in items for one, (_, answer) in item.asked.items() if answer}
    questions = list(dict.fromkeys(one for item in items for one in item.asked))
    strata = {item.id: item.stratum for item in items}
    single, both = [], []
    for question in (*questions, *(["(all)"] if len(questions) > 1 else [])):
        of = {
            name: {key: said for key, said in answers.items() if question in (key[1], "(all)")}
            for name, answers in sheets.items()
        }
        for name, answers in of.items():
            known = [said == right[key] for key, said in answers.items() if key in right]
            row = {"annotator": name, "question": question, "answers": len(answers), "known": len(known)}
            single.append(row | {"right": 100 * sum(known) / len(known) if known else None})
        for one, other in combinations(of, 2):
            groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
            for key, said in of[one].items():
                if key in of[other]:
                    groups.setdefault((strata[key[0]], key[1]), []).append((said, of[other][key]))
            pairs = [pair for group in groups.values() for pair in group]
            same = 100 * sum(a == b for a, b in pairs) / len(pairs) if pairs else None
            row = {"first": one, "second": other, "question": question, "answers": len(pairs), "same": same}
            both.append(row | {"kappa": kappa(groups.values())})
    accuracy = Table(
        name="by_hand",
        title="Answers by hand",
        columns=(
            Column(key="annotator", title="Annotator", group=True),
            Column(key="question", title="Question"),
            *columns_of("count", answers="Answers", known="Of which the right one is known"),
            Column(key="right", title="Right", kind="percent", unit="% of these"),
        ),
        rows=tuple(sorted(single, key=lambda row: list(sheets).index(str(row["annotator"])))),
        packs=(),
        notes=("right: as the suite has it, or as the judge counted",),
    )
    pairwise = Table(
        name="by_hand_agreement",
        title="Agreement",
        columns=(
            *(Column(key=key, title=key.capitalize()) for key in ("first", "second", "question")),
            Column(key="answers", title="Both answered", kind="count"),
            Column(key="same", title="Alike", kind="percent", unit="% of answers"),
            Column(key="kappa", title="Kappa", kind="number"),
        ),
        rows=tuple(both),
        packs=(),
        notes=(
            "kappa: Cohen's: alike beyond chance, of what chance leaves; none where all answers are one; chance is "
            "taken by question and stratum, since what can be answered differs between them",
        ),
    )
    return (accuracy, pairwise) if both else (accuracy,)
