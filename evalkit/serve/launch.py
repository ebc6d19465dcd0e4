"""The simulated provider as a child process: for a run whose provider is `simulate`, and for tests.

The child never outlives its parent: it watches its standard input, and only the parent holds the other end, so it ends
even if the parent is killed. It has its own process session, so that Ctrl-C reaches only the parent and requests in
flight are still answered.
"""

import contextlib
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

from evalkit.errors import EvalkitError
from evalkit.serve.options import as_flags, options_from

READY_WITHIN_S = 30.0
_COMMAND = (sys.executable, "-m", "evalkit.serve.server")
_READY = b"listening on "
_STOP_WITHIN_S = 5.0


@contextlib.contextmanager
def simulated(values: Mapping[str, Any], *, source: str = "simulate") -> Iterator[str]:
    """A simulated provider for the length of the block; gives its base URL.

    `values` are options as a `simulate` table holds them, `source` is what errors call it. Raises UsageError if they
    are wrong, and EvalkitError with the child's own words where it does not start within `READY_WITHIN_S`.
    """
    options_from(values, source)
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(  # noqa: S603
            [*_COMMAND, *as_flags(values), "--until-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=complaints,
            start_new_session=True,
        )
        try:
            yield _await_ready(child, complaints)
        finally:
            _stop(child)


def _await_ready(child: subprocess.Popen[bytes], complaints: IO[bytes]) -> str:
    assert child.stdout is not None
    deadline, line = time.monotonic() + READY_WITHIN_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        # Byte by byte: a buffered readline could not be given a deadline, and this is one short line.
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise EvalkitError(f"The simulated provider was not ready within {READY_WITHIN_S:g} s.")
            byte = child.stdout.read(1)
            if not byte:
                child.wait(_STOP_WITHIN_S)
                complaints.seek(0)
                words = complaints.read()[-2000:].decode(errors="replace").strip()
                raise EvalkitError(f"The simulated provider did not start (exit code {child.returncode}): {words}")
            line += byte
    return line.removeprefix(_READY).decode().strip()


def _stop(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
