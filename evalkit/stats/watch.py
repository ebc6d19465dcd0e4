"""What a night says of a cell: the windows' test, which tells of a great fall at once, and the evidence of all nights,
which tells of a small one that lasts.

Alpha is shared: `EVIDENCE_PART` is the evidence's. The rest is the windows', most of it while there are `FEW` nights or
fewer to compare with, since these tell too little of the noise for the evidence. Together it is no more than alpha in
the first `HORIZON` nights. Both allow for an effect that all instances of a night share, which is no lasting change:
the evidence has it in its model. The windows' test knows nothing of it, so a fall must be greater by what such an
effect comes to, as far as the nights before tell (`lasting_fall.allowance`).

The evidence takes levels of nights for normal. Rare failures are not: three of twelve on one night look like a change.
So an alarm also needs that a permutation test of the nights since the likeliest beginning finds them low, with a
p-value of at most `CHECK` times alpha. That only takes alarms away.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evalkit.stats.alarm import HORIZON, LEAST_DRAWS, LEAST_PAIRS, Alarm, Look, Night, look, means, regression, words
from evalkit.stats.lasting_fall import Levels, allowance, gathered, levels, needed, visible_fall

EVIDENCE_PART = 0.8
FEW = 6
EARLY_PART, LATE_PART = 0.6, 0.1
"""Of alpha: the windows', with at most `FEW` nights before and with more. 6 nights of the first and 24 of the second
come to a fifth of alpha."""
CHECK = 0.1
RELEASE = 0.1
"""Times what raises an alarm: the evidence below which a standing one may end."""

_MOST = 700.0
"""Logarithm of the greatest evidence that is told: a float holds no more."""


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The evidence in one direction."""

    log: float
    nights: int
    """Since the likeliest beginning."""
    way: float
    """1 for a fall, -1 for a rise."""


def watched(
    history: Sequence[Night],
    tonight: Night,
    alpha: float = 0.05,
    *,
    tolerance: float = 0.0,
    both_ways: bool = False,
    standing: bool = False,
) -> Alarm:
    """Whether the mean has fallen by more than `tolerance` below what it was, on a night or over all of them.

    history    earlier nights since the last change that was accepted, oldest first
    standing   whether an alarm stands: it ends when neither test would raise it with all of alpha, the evidence with
               `RELEASE` of what it needs, so that chance does not end and raise it in turns

    The other parameters, and errors, as of `alarm.regression`.
    """
    # In order: the last bits of sums must not tell in which order episodes ended.
    nights = [dict(sorted(means(night).items())) for night in (*history, tonight) if night]
    if not tonight or len(nights) < 2:
        return regression(history, tonight, alpha, tolerance=tolerance, both_ways=both_ways)
    ways = (1.0, -1.0) if both_ways else (1.0,)
    each = alpha / len(ways)
    summed, places = _summed(nights, bounded=not both_ways)
    before, share = summed.until(-1), EVIDENCE_PART * each
    windows = 1.0 if standing else EARLY_PART if len(nights) <= FEW + 1 else LATE_PART
    more = 0.0 if standing else float(allowance(before, windows * each / HORIZON))
    alarm = regression(history, tonight, windows * alpha, tolerance=tolerance + more, both_ways=both_ways)
    best = max((_gathered(summed, places, tolerance, way) for way in ways), key=lambda found: found.log)
    alarm = replace(alarm, evidence=math.exp(min(best.log, _MOST)), visible=visible_fall(before, tolerance, share))
    if alarm.raised or best.log < needed(share) + (math.log(RELEASE) if standing else 0.0):
        return alarm
    checked = check(nights, best.nights, tolerance, each, best.way)
    if checked.p > CHECK * each and not standing:
        return alarm
    return _by_evidence(alarm, best, checked, share, both_ways, nights)


def check(nights: Sequence[Mapping[str, float]], since: int, tolerance: float, alpha: float, way: float) -> Look:
    """The permutation test of the last `since` nights, whose p-value is at most `CHECK` times alpha in an alarm."""
    return look(nights, since, tolerance, max(LEAST_DRAWS, math.ceil(2 / (CHECK * alpha))), way)


def _summed(nights: Sequence[dict[str, float]], *, bounded: bool) -> tuple[Levels, list[int]]:
    """The nights' levels, and for each the place of its night: nights that share no instance with others have none."""
    shows: dict[str, int] = {}
    for night in nights:
        for name in night:
            shows[name] = shows.get(name, 0) + 1
    linked = [{name: value for name, value in night.items() if shows[name] > 1} for night in nights]
    if len(linked[-1]) < max(LEAST_PAIRS, len(nights[-1]) / 2):
        return levels(nights, paired=False, bounded=bounded), list(range(len(nights)))
    places = [place for place, night in enumerate(linked) if night]
    return levels([linked[place] for place in places], paired=True, bounded=bounded), places


def _gathered(summed: Levels, places: Sequence[int], tolerance: float, way: float) -> _Gathered:
    log, nights = gathered(replace(summed, means=way * summed.means), tolerance)
    return _Gathered(log=float(log), nights=places[-1] + 1 - places[len(places) - int(nights)], way=way)


def _by_evidence(
    alarm: Alarm, found: _Gathered, checked: Look, share: float, both_ways: bool, nights: Sequence[object]
) -> Alarm:
    """The alarm that the evidence raises. Its p-value: what alpha would have to be for it."""
    certainty = f"evidence of all nights {math.exp(min(found.log, _MOST)):.2g}, alarm at {math.exp(needed(share)):.2g}"
    return replace(
        alarm,
        raised=True,
        by="evidence",
        p=min(1.0, math.exp(-found.log)),
        threshold=share,
        nights=found.nights,
        before=checked.before,
        now=checked.now,
        pairs=checked.pairs,
        left_out=checked.left_out,
        words=words(checked, True, len(nights) - found.nights, both_ways, certainty),
    )
