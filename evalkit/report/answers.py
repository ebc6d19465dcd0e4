"""What a run was to find out, as a table: each part of its question with the interval that holds at all looks."""

from collections.abc import Iterable, Sequence

from evalkit.report.scores import packs_of
from evalkit.report.tables import Column, Table
from evalkit.results.answers import QuestionAnswer, RunQuestion, doubts
from evalkit.results.cells import Cell
from evalkit.spec.decide import POINTS
from evalkit.store.question_files import GivenAnswers
from evalkit.store.void import Void

ANSWERS = "answers"
"""The name of the table."""
LEANS = (
    "the run ended agents as soon as their questions were answered: a mean at such a stop leans outward, and only the "
    "table of answers has intervals that take this into account"
)
"""What the table of scores must say of a run that asks a question."""


def answers_table(
    asked: RunQuestion, given: Iterable[GivenAnswers], voids: Iterable[Void], cells: Sequence[Cell]
) -> Table:
    """A row for each pair, and for each agent whose own mean is wanted."""
    frozen = asked.frozen
    about = "instances like these" if frozen.about != "this suite" else "another replicate of this suite"
    return Table(
        name=ANSWERS,
        title="Answers",
        columns=(
            Column(key="first", title="A"),
            Column(key="second", title="B"),
            Column(key="answer", title="Answer"),
            Column(key="estimate", title="B - A", kind="score", unit="points"),
            Column(key="interval", title="Interval", kind="interval", unit="points", equal=POINTS * frozen.margin),
            Column(key="draws", title="Draws", kind="count"),
            Column(key="answered_with", title="Answered with", kind="count", unit="draws"),
        ),
        rows=tuple(
            {
                "first": answer.subject[0],
                "second": answer.subject[1] if len(answer.subject) == 2 else None,
                "answer": short(answer),
                "estimate": POINTS * answer.mean if answer.draws else None,
                "interval": (POINTS * answer.low, POINTS * answer.high) if answer.draws else None,
                "draws": answer.draws,
                "answered_with": answer.at or None,
            }
            for answer in asked.answers
        ),
        packs=packs_of(cells),
        notes=(
            f"about {about}; of {asked.draws:,} draws at most; all intervals together hold at all looks, but for a "
            f"share {frozen.alpha:g} of runs; equal: closer than {POINTS * frozen.margin:g} points; scores count from "
            f"{POINTS * frozen.scores[0]:g} to {POINTS * frozen.scores[1]:g}",
            "estimate: at a stop it leans outward, since a stop comes when luck adds to a difference; of an agent "
            "alone, its own mean; a p-value for one look would not be valid, so there is none",
            *doubts(asked, given, voids),
        ),
    )


def short(answer: QuestionAnswer) -> str:
    """An answer in a few words."""
    if len(answer.subject) == 1:
        return "known" if answer.at else "open"
    first, second = answer.subject
    if answer.answer == "undecided":
        return "open" if answer.is_open else "not needed"
    return {"above": f"{second} better", "below": f"{first} better"}.get(answer.answer, answer.answer)
