"""The history of the rate that a page draws when it is opened late: from the beginning, bounded, evenly spaced."""

import itertools

from evalkit.engine.view import MOST_KEPT, Pace


def remembered(looks: int) -> list[tuple[float, float]]:
    pace = Pace(began=0.0)
    for look in range(looks):
        pace.remember(0.5 * look, float(look))
        assert len(pace.history) <= MOST_KEPT
    return pace.history


def test_a_short_call_is_kept_look_by_look() -> None:
    assert remembered(10) == [(0.5 * look, float(look)) for look in range(10)]


def test_a_long_call_is_kept_from_its_beginning_in_a_bounded_number_of_points() -> None:
    for looks in (500, 20_000):
        history = remembered(looks)
        assert MOST_KEPT / 3 < len(history) <= MOST_KEPT
        assert history[0] == (0.0, 0.0)
        gaps = [after[0] - before[0] for before, after in itertools.pairwise(history)]
        assert min(gaps) > 0
        assert max(gaps) <= 2 * min(gaps)
        assert history[-1][0] > 0.5 * looks * 0.97
