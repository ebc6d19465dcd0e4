"""The tables that `coverage.py` makes: their rows and columns, which simulation each cell is, how it is written."""

from collections.abc import Callable, Mapping

import numpy as np

from docs.tools.simulations import (
    ALIKE,
    BOUNDED,
    CUTS,
    OTHER,
    PAIRED,
    RARE,
    STRATA,
    UNLIKE,
    Figures,
    Simulated,
    alike_cell,
    answers,
    bounded_cell,
    killed_cell,
    looking_cell,
    other_cell,
    paired_cell,
    scores,
    strata_cell,
    unlike_cell,
    width_cell,
)


def covered(figures: Figures) -> str:
    """`95.7 x1.09; 99.0`: coverage, width over Student's, coverage with instances unlike those that were met."""
    (held, _), (width, _), (other, _), (unmet, _), _ = figures
    return f"{held:.1f} x{width / other:.2f}; {unmet:.1f}"


def plainly(form: str) -> Callable[[Figures], str]:
    """Figures by a pattern."""
    return lambda figures: form.format(*(value for value, _ in figures))


_COUNTS = {f"n = {n}" if n == 6 else f"{n}": n for n in (6, 12, 20, 36, 100)}

TABLES: Mapping[str, Simulated] = {
    "bounded": Simulated(
        head="what is drawn",
        rows=BOUNDED,
        columns=_COUNTS,
        cell=bounded_cell,
        shown=covered,
        numbers=((0,), (1, 2), (3,)),
        studies=2000,
    ),
    "rare": Simulated(
        head="what is drawn",
        rows=RARE,
        columns={f"n = {n}" if n == 4 else f"{n}": n for n in (4, 6, 12, 36, 100)},
        cell=bounded_cell,
        shown=plainly("{0:.1f} ± {1:.2f}; {3:.1f} ± {4:.2f}"),
        numbers=((0,), (1,), (3,), (4,)),
        studies=2000,
    ),
    "other": Simulated(
        head="what is drawn",
        rows=OTHER,
        columns={f"n = {n}" if n == 6 else f"{n}": n for n in (6, 12, 20, 40)},
        cell=other_cell,
        shown=plainly("{0:.1f} ({1:.1f})"),
        numbers=((0,), (1,)),
        studies=1000,
    ),
    "alike": Simulated(
        head="the same agent on both sides",
        rows=ALIKE,
        columns={"as `compare` does": False, "signs, whatever the counts": True},
        cell=alike_cell,
        shown=plainly("{0:.1f} ({1:.1f})"),
        numbers=((0,), (1,)),
        studies=1000,
    ),
    "paired": Simulated(
        head="what differs",
        rows=PAIRED,
        columns={f"{n} pairs": n for n in (4, 12, 36)},
        cell=paired_cell,
        shown=plainly("{0:.1f} ± {1:.0f} ({2:.1f} ± {3:.0f})"),
        numbers=((0,), (1,), (2,), (3,)),
        studies=1000,
    ),
    "looking": Simulated(
        head="the same agent on both sides",
        rows={
            "graded": lambda draws, n: scores(draws, n, 2) @ np.array([1.0, -1.0]),
            "yes or no at 70 %": lambda draws, n: answers(0.7)(draws, n, 2) @ np.array([1.0, -1.0]),
        },
        columns={"p for one look": False, "p at every look": True},
        cell=looking_cell,
        shown=plainly("{0:.1f}"),
        numbers=((0,),),
        studies=1000,
    ),
    "exchangeable": Simulated(
        head="what differs",
        rows=UNLIKE,
        columns={f"{n} pairs": n for n in (6, 12, 36, 100)},
        cell=unlike_cell,
        shown=plainly("{0:.1f}: {1:.1f}, {2:.1f}"),
        numbers=((0,), (1,), (2,)),
        studies=1000,
    ),
    "killed": Simulated(
        head="run",
        rows=CUTS,
        columns={"a quarter": 0.25, "a half": 0.5, "three quarters": 0.75},
        cell=killed_cell,
        shown=plainly("{0:+.1f}, {1:+.1f}; {2:.1f}, {3:.1f}"),
        numbers=((0,), (1,), (2,), (3,)),
        studies=1000,
    ),
    "strata": Simulated(
        head="what is drawn",
        rows=STRATA,
        columns={f"{n} instances": n for n in (24, 40, 120)},
        cell=strata_cell,
        shown=plainly("{0:.1f}: {1:.1f} ({2:.1f})"),
        numbers=((0,), (1,), (2,)),
        studies=1000,
    ),
    "widths": Simulated(
        head="scores",
        rows={
            "yes or no at 80 %": lambda draws, n: (draws.random(n) < 0.8) * 1.0,
            "Beta(5, 2), a spread of 16 points": lambda draws, n: draws.beta(5, 2, n),
        },
        columns={f"{n} instances": n for n in (20, 60, 200)},
        cell=width_cell,
        shown=plainly("{0:.1f} ({1:.1f})"),
        numbers=((0,), (1,)),
        studies=100,
    ),
}
