"""What a gate costs, and how often it is wrong: simulated, by the rule of `evalkit.stats.gating`.

    python -m bench.calibrations.gate                    # all tables, as Markdown (some minutes)
    python -m bench.calibrations.gate --write            # into docs/gate.md, below its marks
    python -m bench.calibrations.gate hours --studies 40 # one of them, roughly

Scores are those of `deciding_shapes.py`, looked at after each draw (each turn), up to `LOOKS` draws.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.calibrations import deciding
from bench.calibrations.deciding import ALPHA, LOOKS, generator, number, pair, percent, table
from bench.calibrations.deciding_shapes import SHAPES, Shape, Values, graded, wide
from evalkit.stats.deciding import AHEAD
from evalkit.stats.evidence import centre
from evalkit.stats.sequential import capital

PAGE = deciding.PAGE.with_name("gate.md")
MARGIN = 0.05
STUDIES = {"gates": 500, "several": 200, "hours": 1000, "least": 1}
SUITES = 8
MARGINS = (0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEnded:
    """When tests were answered, and how; shapes (studies,)."""

    draws: Values
    """inf where never."""
    answer: Values
    """`not worse`, `worse` or `undecided`."""


def ended(
    differences: Values, *, margin: float = MARGIN, tests: int = 1, turn: int = 1, centred: bool = False
) -> GateEnded:
    """The first answer of each study; differences of shape (studies, draws), -1 to 1."""
    found = [
        _ended(differences[first : first + deciding.AT_ONCE], margin, tests, turn, centred)
        for first in range(0, len(differences), deciding.AT_ONCE)
    ]
    return GateEnded(
        draws=np.concatenate([part.draws for part in found]), answer=np.concatenate([part.answer for part in found])
    )


def _ended(differences: Values, margin: float, tests: int, turn: int, centred: bool) -> GateEnded:
    room: Values = np.zeros(1)
    if centred:
        turns = differences.shape[1] // turn
        draws = differences[:, : turns * turn].reshape(-1, turns, turn)
        sums, squares = (np.cumsum(one, axis=1) - one for one in (draws, draws**2))
        off = centre(sums, squares, np.arange(turns)[:, None])
        room = np.repeat(np.abs(off).max(axis=2), turn, axis=1) / 2
        differences = (draws - off).reshape(len(draws), -1)
    shares = (differences + 1) / 2
    passed = capital(shares, (1 - margin) / 2, up=True, turn=turn, room=room) >= math.log(1 / ALPHA)
    failed = capital(shares, 0.5, up=False, turn=turn, room=room) >= math.log(tests / ALPHA)
    known = passed | failed
    at, rows = known.argmax(axis=1), np.arange(len(differences))
    said = np.select([passed[rows, at], failed[rows, at]], ["not worse", "worse"], "undecided")
    return GateEnded(draws=np.where(known.any(axis=1), (at + 1.0) * turn, math.inf), answer=said)


def gates_row(shape: Shape, studies: int) -> list[str]:
    """Wrong verdicts where either is the likeliest to be wrong, then what verdicts cost."""
    same, apart, fallen = (
        ended(pair(shape, difference, studies), turn=shape.turn, centred=shape.centred)
        for difference in (0.0, -MARGIN, -2 * MARGIN)
    )
    return [
        shape.name,
        percent(same.answer == "worse"),
        percent(apart.answer == "not worse"),
        percent(same.answer == "not worse"),
        number(float(np.quantile(same.draws, 0.5, method="higher"))),
        percent(fallen.answer == "worse"),
        number(float(np.quantile(fallen.draws, 0.5, method="higher"))),
    ]


def gates_table(studies: int) -> str:
    """One test."""
    head = (
        "scores",
        "false `fail`, %",
        "false `pass`, %",
        "as good: `pass`, %",
        "median pairs",
        "10 points worse: `fail`, %",
        "median pairs",
    )
    return table(head, (gates_row(shape, studies) for shape in SHAPES))


def several_rows(studies: int) -> Iterator[Sequence[str]]:
    """Gates of several suites: none is worse, or one of them by the margin."""
    for name, draw in (("graded, pairs vary by 13 points", graded), ("graded, pairs vary by 33 points", wide)):
        cells = [name]
        for worse in (0.0, -MARGIN):
            answers = []
            for suite in range(SUITES):
                lead = np.array([0.0, worse if suite == 0 else 0.0])
                scores = draw(generator("several", name, str(worse), str(suite)), studies, LOOKS, lead)
                answers.append(ended(scores[:, 1] - scores[:, 0], tests=SUITES).answer)
            fails, passes = (np.array(answers) == word for word in ("worse", "not worse"))
            cells.append(percent(fails.any(axis=0) if not worse else passes.all(axis=0)))
        yield cells


def several_table(studies: int) -> str:
    """Several suites."""
    return table(("scores of each suite", "false `fail`, %", "false `pass`, %"), several_rows(studies))


def hours_row(how: str, points: float, studies: int) -> list[str]:
    """What an hour's effect of some points (standard deviation) does: stored scores have one of their own."""
    cells = [how, f"{points:g}"]
    for difference, wrong in ((0.0, "worse"), (-MARGIN, "not worse")):
        draws = generator("hours", how, str(points), str(difference))
        differences = difference + draws.normal(0, 0.13, (studies, LOOKS))
        if how == "stored":
            differences += draws.normal(0, points * math.sqrt(2) / 100, (studies, 1))
        else:  # both sides play a draw within a part of the time in which the effect changes
            times: Values = np.arange(LOOKS + AHEAD) * 1.0
            both = deciding.effects(draws, studies, times, points / 100)
            differences += both[:, :LOOKS] - both[:, AHEAD:]
        cells.append(percent(ended(np.clip(differences, -1, 1)).answer == wrong))
    return cells


def hours_table(studies: int) -> str:
    """What changes with the hour."""
    head = ("old scores", "points of an hour", "false `fail`, %", "false `pass`, %")
    rows = [(how, points) for how in ("played in turns", "stored") for points in (0.0, 1.0, 2.0, 5.0)]
    return table(head, (hours_row(*row, studies) for row in rows))


def least_table(_: int) -> str:
    """The fewest pairs that can pass, all of them alike; and that can fail, all of them 100 points worse."""
    rows = []
    for margin in MARGINS:
        alike = ended(np.zeros((1, LOOKS)), margin=margin)
        rows.append([f"{100 * margin:g}", number(float(alike.draws[0]))])
    fails = [number(float(ended(np.full((1, LOOKS), -1.0), tests=tests).draws[0])) for tests in (1, SUITES)]
    rows.append(["any: to fail, 1 test", fails[0]])
    rows.append([f"any: to fail, {SUITES} tests", fails[1]])
    return table(("margin, points", "pairs at least"), iter(rows))


TABLES = {"gates": gates_table, "several": several_table, "hours": hours_table, "least": least_table}


if __name__ == "__main__":
    sys.exit(deciding.main(tables=TABLES, usual=STUDIES, page=PAGE))
