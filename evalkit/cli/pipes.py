"""Output whose reader has gone (`evalkit report RUN | head`): printing ends, the command goes on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def unread(stream: TextIO | None = None) -> Iterator[None]:
    """Within, a closed pipe ends the printing alone; what follows still happens. `stream`: default standard output."""
    to = sys.stdout if stream is None else stream
    try:
        yield
        to.flush()
    except BrokenPipeError:
        discard(to)


def discard(stream: TextIO) -> None:
    """Send what a stream still holds, and all that comes, nowhere: Python would write it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
