"""Python's cycle collector while episodes play: it runs rarely, since there is almost nothing to collect."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 50_000
"""New containers between two collections. With the default of 700 the collector walks all chats in flight several times
per reply, without a result: an eighth of a request's CPU time."""

_LOCK = threading.Lock()
_BEFORE: list[tuple[int, int, int]] = []
"""One entry for each block that is entered and not left: the thresholds as they were before the first of them."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block, collections are rare; a setting that is off or even rarer is not changed.

    Several such blocks may overlap in one process, in any order: the end of the last one restores the setting.
    """
    with _LOCK:
        young, *older = before = _BEFORE[0] if _BEFORE else gc.get_threshold()
        _BEFORE.append(before)
        if young:
            gc.set_threshold(max(young, COLLECT_EVERY), *older)
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                gc.set_threshold(*before)
