import gc
from contextlib import suppress

import pytest

from evalkit.engine.gc_threshold import COLLECT_EVERY, OLDER_EVERY, seldom_collected

MANY = 1000


@pytest.mark.parametrize(("before", "within"), [(700, COLLECT_EVERY), (2 * COLLECT_EVERY, 2 * COLLECT_EVERY), (0, 0)])
def test_collections_are_rare_within_and_as_before_behind(before: int, within: int) -> None:
    own = gc.get_threshold()
    expected = (within, OLDER_EVERY, 80) if before else (0, 7, 80)
    gc.set_threshold(before, 7, 80)
    try:
        with suppress(ZeroDivisionError), seldom_collected():
            inside = gc.get_threshold()
            raise ZeroDivisionError
        assert (inside, gc.get_threshold()) == (expected, (before, 7, 80))
    finally:
        gc.set_threshold(*own)


def test_blocks_that_overlap_in_any_order_leave_all_as_it_was() -> None:
    own = gc.get_threshold()
    first, second = seldom_collected(), seldom_collected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == COLLECT_EVERY
    second.__exit__(None, None, None)
    assert gc.get_threshold() == own


def test_what_was_there_before_is_not_walked_within_and_is_again_behind() -> None:
    before = gc.get_freeze_count()
    gc.unfreeze()
    try:
        with seldom_collected():
            assert gc.get_freeze_count() > 10_000
            with seldom_collected():
                pass
            assert gc.get_freeze_count() > 10_000
        assert gc.get_freeze_count() == 0
    finally:
        if before:
            gc.freeze()


def test_what_somebody_else_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        others: list[list[int]] = [[] for _ in range(MANY)]  # to freeze again would count them too
        with seldom_collected():
            # What is frozen may still be freed, as by a thread that another test left.
            assert abs(gc.get_freeze_count() - before) < MANY / 2
        assert abs(gc.get_freeze_count() - before) < MANY / 2
        assert len(others) == MANY
    finally:
        gc.unfreeze()
