"""An alarm for nightly runs: has an agent become worse than it was, or, where no direction is worse, only different?
With few false alarms, however many the nights.

The last night, the last two and the last four together are each compared with all nights before them, since a small
fall takes several nights to show and a great one should be told at once. Each test is a one-sided permutation test that
asks how often chance alone would make the latest nights look so bad:

    paired     where instances are shared: an instance's nights are turned round by a random number of nights, each
               instance for itself; exact where nothing but chance tells an instance's nights apart
    unpaired   where too few are shared: instances are dealt to the two sides again

False alarms: within `HORIZON` nights there is one with at most the chance `alpha` where nothing changes. Each night
gets an equal part of alpha, and so does each window of a night (Bonferroni), so nothing is assumed about how nights
hang together. Who watches m suites or agents and wants one promise for all of them gives alpha / m. What makes a whole
night worse (a provider under load) is a change like any other.

Chosen: not Student's t, which with rare successes calls a night without any a certain fall (77 % false alarms in 30
nights of 60 instances at a chance of 0.05); not an e-process, whose baseline would have to be known: ours is estimated
from a few nights, all later nights are compared with the same ones, and a bet against such a baseline is not fair.
Sources: Good 2005, "Permutation, Parametric and Bootstrap Tests of Hypotheses", 3.2 and 3.6; Besag and Clifford 1991,
"Sequential Monte Carlo p-values", for stopping early where nothing is in sight.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evalkit.seeds import Stream
from evalkit.stats.few_instances import SIZES, few_fallen
from evalkit.stats.sustained_drop import LEAST_PAIRS, allowance, gathered, needed, summed_up, visible_fall

if TYPE_CHECKING:
    import numpy.typing as npt

    Doubles = npt.NDArray[np.float64]


Night = Mapping[str, Sequence[float]]
"""By instance: the values that its replicates gave that night, at least one. Name instances by what they are (suite
and digest), so that changed ones do not pair."""

WINDOWS = (1, 2, 4)
"""How many of the last nights are taken together."""
HORIZON = 30
"""Nights over which alpha is spent."""
LEAST_DRAWS = 4_999

_SEED = 0
_AT_ONCE = 500
_NOTHING_IN_SIGHT = 50
"""Draws as bad as what was seen after which no more are made."""


By = Literal["windows", "evidence", "instances"]
"""What raised an alarm: a great fall, one that lasts, or one in few instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What tonight says."""

    raised: bool
    p: float | None
    """Of the clearest window, times the number of windows; None if nothing could be tested."""
    threshold: float
    """What it is compared with: alpha / `HORIZON`."""
    nights: int = 0
    """Nights of that window; 0 if nothing could be tested."""
    before: float | None = None
    """Mean over instances of the nights before the window; over shared instances where pairs were used."""
    now: float | None = None
    """The same of the window."""
    pairs: int = 0
    """Shared instances; 0 if all were compared unpaired."""
    left_out: int = 0
    """Instances that only one side has and that were therefore not compared."""
    words: str
    """One sentence for people."""
    by: By = "windows"
    """What raised it: `p` and `threshold` are of that one."""
    evidence: float | None = None
    """That of all nights, as of `sustained_drop.gathered`; None if nobody gathered it."""
    visible: float | None = None
    """The fall that the evidence could show, in the values' units; None if none could, or if nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One window against what it was before."""

    p: float
    nights: int
    against: int
    """Nights of what it was."""
    before: float
    now: float
    pairs: int = 0
    left_out: int = 0

    @property
    def contrast(self) -> float:
        """How far the two sides are apart, in units of the noise of a night but for a factor."""
        return abs(self.before - self.now) / math.sqrt(1 / self.nights + 1 / self.against)

    @property
    def shown(self) -> dict[str, Any]:
        """What an alarm says of it."""
        return {name: getattr(self, name) for name in ("nights", "before", "now", "pairs", "left_out")}


def regression(
    history: Sequence[Night],
    tonight: Night,
    alpha: float = 0.05,
    *,
    tolerance: float = 0.0,
    both_ways: bool = False,
    fallen: int | None = None,
) -> Alarm:
    """Whether the mean has fallen by more than `tolerance` below what it was.

    history    earlier nights, oldest first; leave out those before a change that was meant
    tonight    the newest night
    alpha      chance of a false alarm within `HORIZON` nights, 0 to 1; the less, the more draws
    tolerance  a fall that does not matter, in the values' units, 0 or more; exact where a fall shifts all values alike
    both_ways  whether it has risen counts as much: each direction gets half of alpha
    fallen     how many nights at the end of the history belong to an alarm that stands: they are no part of what it
               was, whichever window is compared with that; None: none stands

    Raises ValueError for another alpha or tolerance.
    """
    if not 0 < alpha < 1 or not tolerance >= 0:
        raise ValueError(f"alpha is between 0 and 1 and a tolerance 0 or more, not {alpha} and {tolerance}")
    nights = [means(night) for night in (*history, tonight) if night]
    threshold = alpha / HORIZON
    standing = fallen is not None
    since = 1 + _told(history, fallen)
    if not tonight or len(nights) <= since:
        why = "no earlier night" if tonight else "nothing was scored"
        return Alarm(raised=False, p=None, threshold=threshold, words=f"no test: {why}")
    # Twice as many as the least p-value that raises an alarm needs.
    ways = (1.0, -1.0) if both_ways else (1.0,)
    draws = max(LEAST_DRAWS, math.ceil(2 * len(ways) * len(WINDOWS) / threshold))
    sizes = [size for size in WINDOWS if size <= (since if standing else len(nights) - 1)]
    looks = [look(nights, size, tolerance, draws, way, max(size, since)) for size in sizes for way in ways]
    best = min(looks, key=lambda found: found.p)
    clear = [found for found in looks if found.p * len(looks) <= threshold]
    if clear:
        # Draws can tell no two of them apart. A window that begins after the fall has fallen nights before it.
        best = max(clear, key=lambda found: found.contrast)
    best = replace(best, p=min(1.0, best.p * len(looks)))
    raised = bool(clear)
    return Alarm(
        raised=raised,
        p=best.p,
        threshold=threshold,
        **best.shown,
        words=words(best, raised, both_ways, f"p = {best.p:.2g}", stands=standing),
    )


def _told(history: Sequence[Night], fallen: int | None) -> int:
    """Nights of a standing alarm, without those that have no value."""
    return sum(map(bool, history[len(history) - (fallen or 0) :]))


def means(night: Night) -> dict[str, float]:
    """By instance: the mean of its replicates."""
    return {name: math.fsum(values) / len(values) for name, values in night.items()}


def look(
    nights: Sequence[Mapping[str, float]], size: int, tolerance: float, draws: int, way: float, since: int
) -> Look:
    """The test of the last `size` nights against those before the last `since`; `way`: 1 for a fall, -1 for a rise."""
    first, second = (_by_instance(part, way) for part in (nights[:-since], nights[-size:]))
    against = len(nights) - since
    shared = sorted(first.keys() & second.keys())
    stream = Stream(_SEED, "report", "alarm", against + size, size)
    if len(shared) < max(LEAST_PAIRS, len(second) / 2):
        sides = [np.array([np.mean(values) for _, values in sorted(side.items())]) for side in (first, second)]
        return Look(
            p=_dealt(sides[0], sides[1] + tolerance, stream, draws),
            nights=size,
            against=against,
            before=way * float(sides[0].mean()),
            now=way * float(sides[1].mean()),
        )
    before = [np.array(first[name]) for name in shared]
    now = [np.array(second[name]) for name in shared]
    return Look(
        p=_turned(before, [values + tolerance for values in now], stream, draws),
        nights=size,
        against=against,
        before=way * float(np.mean([values.mean() for values in before])),
        now=way * float(np.mean([values.mean() for values in now])),
        pairs=len(shared),
        left_out=len(first) + len(second) - 2 * len(shared),
    )


def _by_instance(nights: Sequence[Mapping[str, float]], way: float) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for night in nights:
        for name, value in night.items():
            values.setdefault(name, []).append(way * value)
    return values


def _turned(before: "Sequence[Doubles]", now: "Sequence[Doubles]", stream: Stream, draws: int) -> float:
    """The chance of a fall as great by turning each instance's nights round; values by instance, oldest first."""
    falls = [_falls(*both) for both in zip(before, now, strict=True)]
    counts = np.array([len(fall) for fall in falls])
    starts = np.cumsum(counts) - counts
    flat = np.concatenate(falls)

    def draw(count: int) -> "Doubles":
        turns = (stream.uniforms(count * len(counts)).reshape(count, -1) * counts).astype(np.int64)
        sums: Doubles = flat.take(starts + turns).sum(axis=1)
        return sums

    # Of the values, not of the falls: nights that are equal have falls that are nothing but rounding.
    size = max(float(np.abs(values).max()) for values in (*before, *now))
    return _chance(float(flat[starts].sum()), draw, size * len(counts), draws)


def _falls(before: "Doubles", now: "Doubles") -> "Doubles":
    """By how many nights an instance's are turned: mean of what then lies before, less that of the window."""
    nights = len(now) + len(before)
    sums = np.cumsum(np.concatenate([[0.0], now, before, now]))
    windows = sums[len(now) : len(now) + nights] - sums[:nights]
    falls: Doubles = (sums[nights] - windows) / len(before) - windows / len(now)
    return falls


def _dealt(before: "Doubles", now: "Doubles", stream: Stream, draws: int) -> float:
    """The chance of a fall as great by dealing all instances to the two sides again."""
    pool = np.concatenate([now, before])
    total = float(pool.sum())

    def draw(count: int) -> "Doubles":
        order = stream.uniforms(count * len(pool)).reshape(count, -1)
        chosen = np.argpartition(order, len(now) - 1, axis=1)[:, : len(now)]
        return fall(pool.take(chosen).sum(axis=1))

    def fall(windows: "Doubles") -> "Doubles":
        falls: Doubles = (total - windows) / len(before) - windows / len(now)
        return falls

    return _chance(float(fall(now.sum())), draw, float(np.abs(pool).max()), draws)


def _chance(observed: float, draw: "Callable[[int], Doubles]", size: float, draws: int) -> float:
    """The share of draws that are at least what was seen, which counts as one of them."""
    hits = drawn = 0
    # Sums that are equal but for the order of adding must count as equal.
    least = observed - 1e-9 * size
    while drawn < draws and hits < _NOTHING_IN_SIGHT:
        count = min(_AT_ONCE, draws - drawn)
        hits += int(np.count_nonzero(draw(count) >= least))
        drawn += count
    return (1 + hits) / (1 + drawn)


def words(found: Look, raised: bool, both_ways: bool, certainty: str, *, stands: bool) -> str:
    """The sentence for people. `certainty`: how clear it is; `stands`: whether the alarm stood before tonight."""
    alarm = "change" if both_ways else "regression"
    window = "tonight" if found.nights == 1 else f"the last {found.nights} nights"
    over = f"{found.pairs:,} shared instances" if found.pairs else "all instances, unpaired"
    plural = "night" if found.against == 1 else "nights"
    before = f"before the {'change' if both_ways else 'fall'}" if stands else "before"
    what = f"{100 * found.now:.1f} against {100 * found.before:.1f} in the {found.against} {plural} {before}"
    return f"{alarm if raised else f'no {alarm}'}: {window} {what}, over {over}; {certainty}"


# What a night says of a cell: the windows' test, which tells of a great fall at once, the evidence of all nights,
# which tells of a small one that lasts, and the test of few instances (`few_instances.py`).
#
# Alpha is shared: `EVIDENCE_PART` and `INSTANCES_PART` are the others'. The rest is the windows', most of it while
# there are `FEW` nights or fewer before, which tell too little of the noise for the evidence. Together it is no more
# than alpha in the first `HORIZON` nights. The first two allow for an effect that all instances of a night share, which
# is no lasting change: the evidence has it in its model. The windows' test knows nothing of it, so a fall must be
# greater by what such an effect comes to, as far as the nights before tell (`sustained_drop.allowance`).
#
# The evidence takes levels of nights for normal. Rare failures are not: three of twelve on one night look like a
# change. So an alarm also needs that a permutation test of the nights since the likeliest beginning finds them low,
# with a p-value of at most `CHECK` times alpha. That only takes alarms away.

EVIDENCE_PART, INSTANCES_PART = 0.8, 0.1
FEW = 6
EARLY_PART, LATE_PART = 0.3, 0.05
"""Of alpha: the windows', with at most `FEW` nights before and with more. 6 nights of the first and 24 of the second
come to a tenth of alpha, like `INSTANCES_PART`."""
CHECK, FALLEN = 0.1, 0.05
"""Of the permutation test: times alpha for the evidence, and for a fall in few instances, which it shows already."""
RELEASE = 0.1
"""Times what raises an alarm: the evidence below which a standing one may end."""

_MOST = 700.0
"""Logarithm of the greatest evidence that is told: a float holds no more."""


def watched(
    history: Sequence[Night],
    tonight: Night,
    alpha: float = 0.05,
    *,
    tolerance: float = 0.0,
    both_ways: bool = False,
    fallen: int | None = None,
) -> Alarm:
    """Whether the mean has fallen by more than `tolerance` below what it was, on a night or over all of them.

    history    earlier nights since the last change that was accepted, oldest first
    fallen     as of `regression`. An alarm that stands ends when neither test would raise it with all of alpha, the
               evidence with `RELEASE` of what it needs, so that chance does not end and raise it in turns

    The other parameters, and errors, as of `alarm.regression`.
    """
    # In order: the last bits of sums must not tell in which order episodes ended.
    nights = [dict(sorted(means(night).items())) for night in (*history, tonight) if night]
    standing = fallen is not None
    first = len(nights) - 1 - _told(history, fallen)
    if not tonight or first < 1:
        return regression(history, tonight, alpha, tolerance=tolerance, both_ways=both_ways, fallen=fallen)
    ways = (1.0, -1.0) if both_ways else (1.0,)
    each = alpha / len(ways)
    summed, places = summed_up(nights, first, bounded=not both_ways)
    since = sum(place >= first for place in places)
    before, share = summed.until(-since), EVIDENCE_PART * each
    windows = 1.0 if standing else EARLY_PART if len(nights) <= FEW + 1 else LATE_PART
    more = 0.0 if standing else float(allowance(before, windows * each / HORIZON))
    alarm = regression(
        history, tonight, windows * alpha, tolerance=tolerance + more, both_ways=both_ways, fallen=fallen
    )
    known = since if standing else 0
    turned = ((gathered(replace(summed, means=way * summed.means), tolerance, known), way) for way in ways)
    (log, lasts), way = max(((float(log), int(lasts)), way) for (log, lasts), way in turned)
    alarm = replace(alarm, evidence=math.exp(min(log, _MOST)), visible=visible_fall(before, tolerance, share))
    if alarm.raised:
        return alarm
    if log >= needed(share) + (math.log(RELEASE) if standing else 0.0):
        lasted = len(nights) - first if standing else places[-1] + 1 - places[len(places) - lasts]
        checked = check(nights, lasted, tolerance, each, way)
        if standing or checked.p <= CHECK * each:
            how = f"evidence of all nights {alarm.evidence:.2g}, alarm at {math.exp(needed(share)):.2g}"
            # Its p-value: what alpha would have to be for it.
            p = min(1.0, math.exp(-log))
            said = words(checked, True, both_ways, how, stands=standing)
            return _raised(alarm, checked, "evidence", p, share, said)
    return _by_few(alarm, nights, len(nights) - first if standing else 0, tolerance, each, ways)


def _by_few(
    alarm: Alarm,
    nights: Sequence[Mapping[str, float]],
    since: int,
    tolerance: float,
    each: float,
    ways: Sequence[float],
) -> Alarm:
    """The alarm of a fall in few instances, if there is one; `since`: nights of an alarm that stands, or 0."""
    threshold = (each if since else INSTANCES_PART * each) / HORIZON
    sizes = [size for size in SIZES if size <= (since or size)]
    draws = math.ceil(3 * len(SIZES) / threshold)
    for size, way in [(size, way) for size in sizes for way in ways]:
        p = len(SIZES) * few_fallen(nights, size, max(size, since), way, draws)
        if p > threshold:
            continue
        found = look(nights, size, tolerance, LEAST_DRAWS, way, max(size, since))
        if found.p <= FALLEN:
            how = f"some of them far: p = {p:.2g}"
            said = words(found, True, len(ways) > 1, how, stands=since > 0)
            return _raised(alarm, found, "instances", p, threshold, said)
    return alarm


def check(nights: Sequence[Mapping[str, float]], since: int, tolerance: float, alpha: float, way: float) -> Look:
    """The permutation test of the last `since` nights, whose p-value is at most `CHECK` times alpha in an alarm."""
    return look(nights, since, tolerance, max(LEAST_DRAWS, math.ceil(2 / (CHECK * alpha))), way, since)


def _raised(alarm: Alarm, found: Look, by: By, p: float, threshold: float, said: str) -> Alarm:
    """The alarm as another test than the windows' raises it."""
    return replace(alarm, raised=True, by=by, p=p, threshold=threshold, words=said, **found.shown)
