"""Whether an episode takes more than it did, in money or tokens: a night's budget then reaches fewer instances, and
hides falls of the score."""

import math
from collections.abc import Mapping, Sequence

from evalkit.stats.alarm import HORIZON, means, regression
from evalkit.stats.sustained_drop import allowance, summed_up

Took = Mapping[str, tuple[float, float]]
"""By instance (digest): pico-dollars and tokens of an episode, the mean of its replicates."""

MORE = 0.1
"""A rise that does not matter, as a part."""
WHAT = ("costs {} times as much", "takes {} times as many tokens")


def dearer(before: Sequence[Took], tonight: Took, alpha: float) -> tuple[str, ...]:
    """What has risen by more than `MORE`, in sentences, by the windows' test of the scores' alarm: its instances are
    compared with themselves, what all of a night may share is allowed for, and `alpha` is the chance of a false word
    within its horizon, of both together."""
    found, each = [], alpha / len(WHAT)
    for place, words in enumerate(WHAT):
        nights = [logs for night in (*before, tonight) if (logs := _logs(night, place))]
        if len(nights) < 2 or not _logs(tonight, place):
            continue
        levels, _ = summed_up([means(night) for night in nights], len(nights) - 1, bounded=False)
        more = float(allowance(levels.until(-1), each / HORIZON))
        alarm = regression(nights[:-1], nights[-1], each, tolerance=math.log1p(MORE) + more)
        if alarm.raised and alarm.before is not None and alarm.now is not None:
            window = "tonight" if alarm.nights == 1 else f"in the last {alarm.nights} nights"
            times = words.format(f"{math.exp(alarm.before - alarm.now):.2g}")
            found.append(
                f"an episode {times} {window} as before, over {alarm.pairs:,} shared instances; p = {alarm.p:.2g}"
            )
    return tuple(found)


def _logs(night: Took, place: int) -> dict[str, tuple[float, ...]]:
    """Less is better, and ratios count."""
    return {name: (-math.log(figures[place]),) for name, figures in night.items() if figures[place] > 0}
