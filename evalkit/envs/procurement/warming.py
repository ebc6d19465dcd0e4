"""The compiled search, called once on a small market."""

from evalkit.envs.procurement.best import solve
from evalkit.envs.procurement.generate import DIFFICULTIES, reference_market


def warm() -> None:
    """See `Kernels`."""
    solve(reference_market(DIFFICULTIES["basic"], 0).market, compiled=True)
