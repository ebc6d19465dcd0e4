"""Python's cycle collector while episodes play: asked to look seldom, since there is next to nothing to find."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 50_000
"""New containers between two looks. At the default of 700 the collector walks the chats in flight several times a
reply, for nothing: an eighth of a request's CPU."""

_LOCK = threading.Lock()
_BEFORE: list[tuple[int, int, int]] = []
"""One entry for each block that is entered and not left: the thresholds as they were before the first of them."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within, collections are rare; whoever has switched them off or made them rarer still is left alone.

    Several such blocks may overlap in one process, in any order: with the last of them all is as it was before.
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
