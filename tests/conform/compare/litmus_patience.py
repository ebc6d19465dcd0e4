"""The reference's reliabilities of rates beside ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.testing import GoldenKind, GoldenVerdict, differing, documented
from evalkit_litmus.patience.rates import reliability_of

ROUNDING = 1e-15
EXACT = "exact-reliability"


def check(row: Mapping[str, Any], data: Path | None) -> GoldenVerdict:
    """One horizon's sample of answers: the reliability of each rate of the golden grid."""
    del data
    nows, trials = row["preferred_100_count"], row["num_trials"]
    counts = {float(value): (now, trials) for value, now in zip(row["values"], nows, strict=True)}
    reliability = reliability_of(counts, row["horizon_years"])
    for rate, golden in row["reliability_by_rate"]:
        ours = reliability(rate)
        if ours is None or abs(float(ours) - golden) > ROUNDING:
            return differing(f"reliability_by_rate[{rate}]: golden {golden}, ours {ours}")
    return documented(EXACT)


GOLDENS = GoldenKind(
    name="litmus_patience",
    patterns=("litmus_patience_sample*.json",),
    check=check,
    differences={
        EXACT: "reliabilities are exact fractions; the reference adds up floats, and its last digits differ by 1e-15"
    },
)
