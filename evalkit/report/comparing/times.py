"""When the sides of a comparison were played, and what an hour that they do not share may do to their difference."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from statistics import NormalDist

from evalkit.report.comparing.verdicts import SURE

Played = Mapping[str, tuple[datetime, datetime]]
"""By agent: when its first and its last request began, UTC; empty if nobody has looked."""

HOUR = 1.0
"""Points by which an agent's mean is taken to vary from hour to hour (standard deviation): as from night to night."""
AROUND, SHARED = timedelta(hours=1), 0.5
"""An hour around each side's time; and the part of the shorter one from which on an hour is taken to change both."""


def time_notes(first: Played, second: Played, agents: Sequence[tuple[str, str]]) -> list[str]:
    """When each side was played, and what that means for the difference."""
    notes = []
    for ours, theirs in agents:
        if ours not in first or theirs not in second:
            continue
        spans = first[ours], second[theirs]
        wide = [(begin - AROUND / 2, end + AROUND / 2) for begin, end in spans]
        shared = min(end for _, end in wide) - max(begin for begin, _ in wide)
        said = " and ".join(
            f"{side} ({agent}) {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}"
            for side, agent, (begin, end) in zip("AB", (ours, theirs), spans, strict=True)
        )
        more = NormalDist().inv_cdf(1 - SURE / 2) * math.sqrt(2) * HOUR
        words = (
            "at the same time, so what an hour changes in both is not in the difference"
            if shared >= SHARED * min(end - begin for begin, end in wide)
            else f"at different times, so what changed between them is in the difference: {HOUR:g} point up or down in "
            f"each would make the interval of a score as much wider as ±{more:.1f} points do, by Pythagoras"
        )
        notes.append(f"played {words}: {said}, UTC")
    return notes
