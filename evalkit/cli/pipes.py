"""Output that nobody takes: where its reader has gone (`evalkit report RUN | head`) or its disk is full, printing ends
and the command goes on. A full disk is told."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def is_unwritable(flaw: OSError) -> bool:
    """Whether it is about a stream that takes nothing more. Of a file it would have the name."""
    return isinstance(flaw, BrokenPipeError) or (flaw.errno in _UNWRITABLE and flaw.filename is None)


@contextmanager
def unread(stream: TextIO | None = None) -> Iterator[None]:
    """Within, a closed pipe or a full disk ends the printing alone; what follows still happens. `stream`: default
    standard output."""
    to = sys.stdout if stream is None else stream
    try:
        yield
        to.flush()
    except OSError as flaw:
        if not is_unwritable(flaw):
            raise
        give_up(to, flaw)


def give_up(stream: TextIO, flaw: OSError) -> None:
    """Nothing more is written to a stream; says why, unless its reader has gone of itself."""
    discard(stream)
    if not isinstance(flaw, BrokenPipeError) and stream is not sys.stderr:
        with suppress(OSError):
            print(f"evalkit: the output cannot be written: {flaw.strerror}.", file=sys.stderr, flush=True)


def discard(stream: TextIO) -> None:
    """Send what a stream still holds, and all that comes, nowhere: Python would write it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
