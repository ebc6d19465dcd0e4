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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any

import orjson

from evalkit.errors import EvalkitError
from evalkit.serve.options import options_from, options_of
from evalkit.spec.model import Provider

READY_WITHIN_S = 30.0
_COMMAND = (sys.executable, "-m", "evalkit.serve.server")
_READY = b"listening on "
_STOP_WITHIN_S = 5.0


def launched(provider: Provider, **more: str) -> AbstractContextManager[str]:
    """The provider that a run starts for itself; gives its base URL. Raises UsageError, as `options_of` does."""
    options_of(provider)
    return simulated({**more, **(provider.simulate or {})})


@contextlib.contextmanager
def simulated(values: Mapping[str, Any]) -> Iterator[str]:
    """A simulated provider for the length of the block; gives its base URL.

    `values` are options as a `simulate` table holds them. Raises UsageError if they are wrong, and EvalkitError as
    `child` does.
    """
    options_from(values)
    with child([*_COMMAND, orjson.dumps(values).decode()]) as url:
        yield url


@contextlib.contextmanager
def child(command: Sequence[str]) -> Iterator[str]:
    """A provider that a command serves for the length of the block; gives its base URL.

    Raises EvalkitError with the child's own words where it does not start within `READY_WITHIN_S`.
    """
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=complaints,
            start_new_session=True,
        )
        try:
            yield _await_ready(process, complaints)
        finally:
            _stop(process)


def _await_ready(process: subprocess.Popen[bytes], complaints: IO[bytes]) -> str:
    assert process.stdout is not None
    deadline, line = time.monotonic() + READY_WITHIN_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        # Byte by byte: a buffered readline could not be given a deadline, and this is one short line.
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise EvalkitError(f"The simulated provider was not ready within {READY_WITHIN_S:g} s.")
            byte = process.stdout.read(1)
            if not byte:
                process.wait(_STOP_WITHIN_S)
                complaints.seek(0)
                words = complaints.read()[-2000:].decode(errors="replace").strip()
                raise EvalkitError(f"The simulated provider did not start (exit code {process.returncode}): {words}")
            line += byte
    return line.removeprefix(_READY).decode().strip()


def _stop(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
