"""Asks that a log has lost: the step that they led to is given up with all that follows, and `verify` names it."""

from pathlib import Path

import numpy as np
import pytest

from evalkit.store.files.layout import journal_object
from evalkit.store.recovery.check import known_rows, missing_asks
from evalkit.store.recovery.examine import Examined
from evalkit.store.recovery.salvage import kept_rows

ROWS = [
    *(("ask", 0, 0), ("ask", 0, 1), ("step", 0, 2)),
    *(("ask", 1, 0), ("ask", 1, 1), ("step", 1, 2)),
    ("ask", 2, 0),
    ("ask", 2, 1),
]
"""Kind, step, and the ask's place among those of its step, or how many asks the step has."""


def a_file(rows: list[tuple[str, int, int]], unsound: int = -1) -> Examined:
    count = len(rows)
    return Examined(
        segment=journal_object(Path("run"), "0123abcd-host-1-1.000", 0),
        episodes=["a"] * count,
        take=[np.zeros(count, np.int64)],
        step=[np.array([step for _, step, _ in rows], np.int64)],
        sound=[np.arange(count) != unsound],
        ask=[np.array([kind == "ask" for kind, _, _ in rows])],
        line=[np.zeros(count, np.int64)],
        nth=[np.array([nth for _, _, nth in rows], np.int64)],
    )


def test_a_whole_log_keeps_all_its_rows() -> None:
    rows = known_rows([a_file(ROWS)])
    keep, cuts = kept_rows(rows)
    assert (keep.all(), cuts, list(missing_asks(rows, [a_file(ROWS)]))) == (True, {}, [])


@pytest.mark.parametrize(("lost", "cut"), [(0, 0), (1, 0), (3, 1), (4, 1), (6, 2)])
@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_lost_ask_led_to_goes_with_it(lost: int, cut: int, damaged: bool) -> None:
    rows = list(ROWS) if damaged else [*ROWS[:lost], *ROWS[lost + 1 :]]
    file = a_file(rows, lost if damaged else -1)
    known = known_rows([file])
    keep, cuts = kept_rows(known)
    assert cuts == {0: cut}
    assert [row for row, kept in zip(rows, keep, strict=True) if kept] == [row for row in ROWS if row[1] < cut]
    assert [(flaw.episode, flaw.step) for flaw in missing_asks(known, [file])] == [("a", cut)]
