"""The branch and bound, compiled ahead: only big markets' optima take it, and no step does."""

from collections.abc import Iterator

from evalkit.envs.procurement import kernels
from evalkit.envs.procurement.instance import generate


def search() -> Iterator[str]:
    """Compile the search for an optimum into the cache."""
    assert kernels  # its being imported has the search take it
    next(iter(generate({}, 1, 0)))
    yield "search"
