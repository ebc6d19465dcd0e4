"""Calling another's code, so that what it raises is told as a finding."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def trying(where: str, what: str) -> Iterator[None]:
    """Whatever is raised within, but a finding, becomes one. Raises AssertionError."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as flaw:  # another's code: it may raise anything
        raise AssertionError(f"{where}: {what} raised {type(flaw).__name__}: {flaw}") from flaw
