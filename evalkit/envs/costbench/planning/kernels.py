"""The loop over chains, compiled. Callers check the arguments; kernels do not.

Only `evalkit/compiled.py` imports this file: numba costs most of a second before its first result.
"""

import numpy as np
from numba import njit

from evalkit.compiled import keep_here
from evalkit.envs.costbench.planning.solve import chain_distances

keep_here()

distances = njit(cache=True, nogil=True, error_model="numpy")(chain_distances)


def warm() -> None:
    """Call the kernel that steps call, with values of the types that those have."""
    edges = np.zeros((1, 3), np.int64)
    edges.setflags(write=False)
    distances(edges, np.ones(1, np.int64), np.zeros(2, np.int64))
