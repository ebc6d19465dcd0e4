"""What the branch and bound works on: a search's deals, and room for its relaxation.

Fields are lists where the functions run as they stand, and arrays where they run compiled (`kernels.py`): hence plain
loops, room that comes from outside, and no function that allocates. Deals are numbered j = 0..m-1, categories
c = 0..k-1; w is the number of deals that can be free at once.
"""

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

Ints = MutableSequence[int]
Floats = MutableSequence[float]
Rows = Sequence[MutableSequence[float]]

BOUND, VALUE, WHOLE, TOLL = 0, 1, 2, 3
"""Places in `Scratch.found`: the bound; the relaxation's value, sum log S_c; V; the toll."""


class Deals(NamedTuple):
    """The deals of a search, m of them, over k categories."""

    gains: Rows
    """[j][c]: what one unit adds to a category's total."""
    price: Ints
    """Cents a unit, at least 1."""
    fixed: Ints
    """Cents once, where any is bought."""
    least: Ints
    """Smallest quantity above 0, at least 1."""


class Scratch(NamedTuple):
    """Room for the relaxation. w is the number of deals that can be free at once."""

    z: Floats
    """(m,) the relaxation's plan; in: where to begin."""
    slope: Floats
    """(m,) cents a unit, of the convex envelope."""
    worth: Floats
    """(m,) g . W_j."""
    totals: Floats
    """(k,) S_c of the relaxation's plan, g being 1 / S."""
    change: Floats
    """(k,) relative change of the totals along the direction."""
    free: Ints
    """(w,) deals that the direction may move; the first `free_number` count."""
    barred: Ints
    """(m,) 1: a deal that entered and could not move; it does not enter again."""
    share: Rows
    """(w, k) W_jc / (slope_j S_c) of free deals."""
    square: Rows
    """(w, w) share times its transpose, then its Cholesky factor."""
    step: Floats
    """(w,) direction, in cents."""
    other: Floats
    """(w,) the answer of the system to a right side of ones."""
    found: Floats
    """(4,) see BOUND and the names beside it."""
