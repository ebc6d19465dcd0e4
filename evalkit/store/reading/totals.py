"""Sums of a log by agent and suite."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evalkit.money import STANDARD, show_usd, usd_number
from evalkit.store.files.record import REFUSED, UNSCORED
from evalkit.text import many, span

PAUSE_S = 120.0
"""Seconds without a request after which a run counts as idle."""


class TierTotals(NamedTuple):
    """The replies that were served by one tier, or none of which said by which. Money in pico-dollars."""

    replies: int
    cost: int
    saved: int
    """What they would have cost more by the standard tier."""
    seconds: float = 0.0
    """Of all of them, queues included."""


ByTier = Mapping[str, TierTotals]


def tier_words(tiers: ByTier) -> str:
    """How much was served by which tier, and what the standard one alone would have cost, in a sentence; empty where
    no other one served anything."""
    if not any(tier != STANDARD and (tier or sums.saved) for tier, sums in tiers.items()):
        return ""
    parts = [
        f"{many(sums.replies, 'reply', 'replies')} by {tier or 'a tier not named'} ({show_usd(sums.cost)})"
        for tier, sums in tiers.items()
    ]
    whole = sum(sums.cost + sums.saved for sums in tiers.values())
    return f"Served: {', '.join(parts)}; by {STANDARD} alone they would have cost {show_usd(whole)}."


class TierOutlook(NamedTuple):
    """What remains of a lane, or of all lanes, if it goes by a tier, or by a mixture of tiers."""

    tier: str
    cost: float
    """Pico-dollars."""
    seconds: float | None
    """None: not known."""
    lane: str = ""
    assumed: bool = False
    """Whether the time of a reply is assumed."""
    expected: bool = False
    """Whether this is how it is expected to go."""
    reply_s: float | None = None
    """Seconds that a reply takes; None: not known."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**self._asdict(), "cost": usd_number(self.cost)}


MIXTURE = "the mixture so far"


def outlooks(tiers: ByTier, cost: float, seconds: float | None) -> tuple[TierOutlook, ...]:
    """What remains by each tier that has served replies, and by the mixture, of which `cost` and `seconds` are; none
    where no other than the standard one has. Other tiers cost and take what they did so far, in proportion."""
    named = {tier: sums for tier, sums in tiers.items() if tier and sums.cost}
    if not cost or not named.keys() - {STANDARD}:
        return ()
    paid, listed = sum(sums.cost for sums in named.values()), sum(sums.cost + sums.saved for sums in named.values())
    mean = sum(sums.seconds for sums in named.values()) / sum(sums.replies for sums in named.values())
    found = []
    for tier, sums in {STANDARD: TierTotals(0, 1, 0), **named}.items():
        pace = sums.seconds / sums.replies / mean if sums.replies and mean else None
        took = None if pace is None or seconds is None else seconds * pace
        found.append(TierOutlook(tier, cost * listed / paid * sums.cost / max(1, sums.cost + sums.saved), took))
    return (*found, TierOutlook(MIXTURE, cost, seconds, expected=True))


def outlook_words(found: Sequence[TierOutlook], what: str = "What remains,") -> str:
    """The same in a sentence; empty if there is none."""
    parts = [
        f"{one.tier} {show_usd(round(one.cost))}" + ("" if one.seconds is None else f", {span(one.seconds)}")
        for one in found
    ]
    guessed = " (times are assumed)" * any(one.assumed for one in found)
    return f"{what} by tiers: {'; '.join(parts)}{guessed}." if found else ""


def tiers_json(tiers: ByTier) -> dict[str, dict[str, int]]:
    """The same as plain values, by tier."""
    return {
        tier or "unnamed": {
            "replies": sums.replies,
            "cost_pico_usd": sums.cost,
            "standard_pico_usd": sums.cost + sums.saved,
        }
        for tier, sums in tiers.items()
    }


@dataclass(slots=True, kw_only=True)
class CellTotals:
    """One agent on one suite. Money is in pico-dollars, of all rows, superseded ones included; so are tokens."""

    agent: str
    suite: str
    rows: int = 0
    steps: int = 0
    """Rows in effect."""
    cost: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached_read: int = 0
    tokens_cached_write: int = 0
    tokens_reasoning: int = 0
    begun: int = 0
    """Episodes with rows."""
    endings: dict[str, int] = field(default_factory=dict)
    """How many episodes ended so, by word; those that were refused and continue are among them."""
    ended_cost: int = 0
    """Of episodes that have ended."""
    ended_squares: float = 0.0
    """Sum of their squared costs."""
    ended_steps: int = 0
    """Of these, rows in effect."""
    going: dict[int, list[int]] = field(default_factory=dict)
    """Of episodes that continue, by how far they have come (`far`): how many, their rows in effect, their cost."""
    spells: list[tuple[float, float]] = field(default_factory=list)
    """When requests were sent without a pause of PAUSE_S: times of the first and the last, oldest first."""

    @property
    def ended(self) -> int:
        """Episodes that have ended."""
        return sum(count for word, count in self.endings.items() if word not in UNSCORED)

    @property
    def refused(self) -> int:
        """Episodes whose last request the provider refused; they remain."""
        return self.endings.get(REFUSED, 0)

    @property
    def asks_per_step(self) -> float:
        """Of an agent that is code: its requests a step; 1 before the first. Episodes that go on count as half a step
        on their way to the next; rows that are not in effect any more count as requests."""
        asks, steps = self.rows - self.steps, self.steps + 0.5 * (self.begun - self.ended)
        return asks / steps if asks > 0 and steps > 0 else 1.0

    @property
    def place(self) -> tuple[str, str]:
        """Agent and suite."""
        return self.agent, self.suite

    def stay(self, steps: int, cost: int) -> None:
        """Add an unfinished episode, with its rows in effect and its cost."""
        sums = self.going.setdefault(far(steps), [0, 0, 0])
        sums[:] = sums[0] + 1, sums[1] + steps, sums[2] + cost


def far(steps: int) -> int:
    """How far an episode has come: its steps up to 15, from there on to an eighth of its octave, so that there are few
    such classes, whatever the number of episodes."""
    if steps < 16:
        return steps
    off = steps.bit_length() - 4
    return steps >> off << off


def joined(spells: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spells in order; those between which there was no pause are one."""
    merged: list[tuple[float, float]] = []
    for first, last in sorted(spells):
        if merged and first - merged[-1][1] < PAUSE_S:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def rate(cells: Iterable[CellTotals]) -> float | None:
    """Requests per second while any of these cells was sending, above 0; None if no two were sent."""
    all_cells = list(cells)
    spells = joined(spell for cell in all_cells for spell in cell.spells)
    busy = sum(last - first for first, last in spells)
    gaps = sum(cell.rows for cell in all_cells) - len(spells)
    return gaps / busy if busy > 0 and gaps > 0 else None
