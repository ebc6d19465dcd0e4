import gc
from contextlib import suppress

import pytest

from evalkit.engine.gc_threshold import COLLECT_EVERY, seldom_collected


@pytest.mark.parametrize(("before", "within"), [(700, COLLECT_EVERY), (2 * COLLECT_EVERY, 2 * COLLECT_EVERY), (0, 0)])
def test_collections_are_rare_within_and_as_before_behind(before: int, within: int) -> None:
    own = gc.get_threshold()
    gc.set_threshold(before, 7, 8)
    try:
        with suppress(ZeroDivisionError), seldom_collected():
            inside = gc.get_threshold()
            raise ZeroDivisionError
        assert (inside, gc.get_threshold()) == ((within, 7, 8), (before, 7, 8))
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
