"""The loops over chains, compiled. Callers check the arguments; kernels do not.

Only `batch.py`, for big jobs, and `compiled.py` import this file: numba costs most of a second before its first result.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numba import njit

from evalkit.envs.compiled import keep_in_folder
from evalkit.envs.costbench.planning.chain_loops import greedy_rows, solve_rows
from evalkit.envs.costbench.planning.solve import chain_distances

keep_in_folder(__file__)


def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled at its first call and kept on disk where numba finds a place for it."""
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # read-only installation and no home directory: compile in every process
        return njit(nogil=True, error_model="numpy")(function)


solve_all = _kernel(solve_rows)
greedy_all = _kernel(greedy_rows)
distances = _kernel(chain_distances)


def samples() -> Mapping[str, tuple[Any, ...]]:
    """By kernel that steps call: arguments of the types that they call it with."""
    edges = np.zeros((1, 3), np.int64)
    edges.setflags(write=False)
    return {"distances": (edges, np.ones(1, np.int64), np.zeros(2, np.int64))}
