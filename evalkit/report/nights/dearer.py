"""Whether an episode takes more than it did, in money or tokens: a night's budget then reaches fewer instances, and
hides falls of the score."""

import math
from collections.abc import Mapping, Sequence

from evalkit.stats.alarm import Night, regression

Took = Mapping[str, tuple[float, float]]
"""By instance (digest): pico-dollars and tokens of an episode, the mean of its replicates."""

MORE = 0.1
"""A rise that does not matter, as a part."""
WHAT = ("costs {} times as much", "takes {} times as many tokens")


def dearer(before: Sequence[Took], tonight: Took, alpha: float) -> tuple[str, ...]:
    """What has risen by more than `MORE`, in sentences, by the windows' test of the scores' alarm: its instances are
    compared with themselves, and `alpha` is the chance of a false word within its horizon, of both together."""
    found = []
    for place, words in enumerate(WHAT):
        nights = [_logs(night, place) for night in (*before, tonight)]
        alarm = regression(nights[:-1], nights[-1], alpha / len(WHAT), tolerance=math.log1p(MORE))
        if alarm.raised and alarm.before is not None and alarm.now is not None:
            window = "tonight" if alarm.nights == 1 else f"in the last {alarm.nights} nights"
            times = words.format(f"{math.exp(alarm.before - alarm.now):.2g}")
            found.append(
                f"an episode {times} {window} as before, over {alarm.pairs:,} shared instances; p = {alarm.p:.2g}"
            )
    return tuple(found)


def _logs(night: Took, place: int) -> Night:
    """Less is better, and ratios count."""
    return {name: (-math.log(figures[place]),) for name, figures in night.items() if figures[place] > 0}
