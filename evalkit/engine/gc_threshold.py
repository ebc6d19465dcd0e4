"""Python's cycle collector while episodes play: asked to look seldom, since there is next to nothing to find."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 50_000
"""New containers between two looks. At the default of 700 the collector walks the chats in flight several times a
reply, for nothing: an eighth of a request's CPU."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within, collections are rare; whoever has switched them off or made them rarer still is left alone."""
    young, *older = gc.get_threshold()
    if young:
        gc.set_threshold(max(young, COLLECT_EVERY), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
