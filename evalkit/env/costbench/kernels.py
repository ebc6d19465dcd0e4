"""The loops over many chains, compiled. Callers check the arguments; kernels do not.

Only `batch.py` imports this file, and only for big jobs: numba costs most of a second before its first result.
"""

from collections.abc import Callable
from typing import Any

from numba import njit

from evalkit.env.costbench.batch import greedy_rows, solve_rows


def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled at its first call and kept on disk where numba finds a place for it."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # read-only installation and no home directory: compile in every process
        return njit(nogil=True, error_model="numpy")(function)


solve_all = _kernel(solve_rows)
greedy_all = _kernel(greedy_rows)
