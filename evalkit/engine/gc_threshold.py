"""Python's cycle collector while episodes play: it runs rarely, since there is almost nothing to collect."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 500_000
"""New containers between two collections: more than 2,000 requests in flight hold. A collection walks all chats in
flight, without a result: 40,000 requests with 2,000 in flight leave 311 objects in cycles. With 50,000 it stops the
event loop for 0.2 s, and takes a tenth of a request's CPU time."""
OLDER_EVERY = 25
"""Collections of the young between two of the next older generation: with 5,000 requests in flight each of these stops
the event loop for a tenth of a second."""

_LOCK = threading.Lock()
_BEFORE: list[tuple[int, int, int]] = []
"""One entry for each block that is entered and not left: the thresholds as they were before the first of them."""
_FROZEN: list[bool] = []
"""One entry while blocks are entered: whether the first of them froze what was there."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block, collections are rare, and no collection walks what was there before it: modules, mostly. A
    setting that is off or even rarer is not changed; nor is what somebody else has frozen.

    Several such blocks may overlap in one process, in any order: the end of the last one restores the setting.
    """
    with _LOCK:
        young, *older = before = _BEFORE[0] if _BEFORE else gc.get_threshold()
        if not _BEFORE:
            _FROZEN.append(gc.isenabled() and not gc.get_freeze_count())
            if _FROZEN[0]:
                gc.freeze()
        _BEFORE.append(before)
        if young:
            gc.set_threshold(max(young, COLLECT_EVERY), *(max(each, OLDER_EVERY) for each in older))
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                gc.set_threshold(*before)
                if _FROZEN.pop():
                    gc.unfreeze()
