"""How many examples Hypothesis tries of a property: all in `make test-all`, a fifth of them in `make test`."""

from hypothesis import settings

MOST = 50
"""Of a property that says no number of its own."""
LESS = 5
"""`make test` tries one in so many."""


def examples(most: int) -> int:
    """The number for a property that is tried with `most` in `make test-all`."""
    return most * settings().max_examples // MOST
