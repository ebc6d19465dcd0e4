"""What a run is to find out, as it is frozen before its first episode: from a sweep's `[decide]` and the run's plan."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalkit.envs.table import ENVIRONMENTS
from evalkit.errors import UsageError
from evalkit.frozen.instances import admission, laid
from evalkit.frozen.manifest import Manifest, ManifestSuite
from evalkit.frozen.question_files import VERSION, FrozenQuestion, FrozenSuite
from evalkit.spec.decide import ALPHA, POINTS
from evalkit.spec.model import Decide
from evalkit.stats.deciding import AHEAD, Inquiry, question
from evalkit.stats.evidence import BETS_VERSION, Bounds

if TYPE_CHECKING:
    import numpy.typing as npt

# The frozen order in which episodes become the draws of a question (`evalkit.stats.evidence`).
#
#     such instances          a draw is an instance. Its place follows from the manifest's key: within a stratum the
#                             order of admission, and a turn has as many instances of each stratum as the question
#                             froze.
#     this suite once         the same, and no instance is left out: those that fit no whole turn come before the first.
#     this suite              a draw is one replicate of an instance, and a turn is one replicate of all instances.
#
# Where a sweep has several suites, a question is about all of them together: its strata are those of all suites, each
# in the proportion of its size. So there is one answer for a pair, about the mix of instances that the sweep plays. An
# answer for each suite takes a run for each. Where the sizes have no large common measure no short turn has just their
# proportions (`SHORT`), so a turn is the shortest that leaves out at most `LEFT_OUT` of the instances, and strata of
# less than `SMALL` of them may be left out altogether; the question is about the mix that a turn has. What is left out
# is played in its place, and no draw.

LEFT_OUT, SMALL = 0.1, 0.02
SHORT = 20
"""Draws of a turn that is taken if it has just the proportions of the strata."""
MOST_TURN = 1000
"""Draws of a turn that are tried; where none of these fits, a turn is all instances."""


def turn_of(sizes: Sequence[int], short: int = SHORT) -> tuple[int, ...]:
    """Of each stratum, its draws in a turn; see above. `sizes`: instances by stratum, at least one in all."""
    total, common = sum(sizes), math.gcd(*sizes)
    if total // common <= short:
        return tuple(size // common for size in sizes)
    least = [0 if size < SMALL * total else 1 for size in sizes]
    for length in range(1, min(total, MOST_TURN) + 1):
        counts = tuple(max(few, round(length * size / total)) for few, size in zip(least, sizes, strict=True))
        rounds = min((size // count for size, count in zip(sizes, counts, strict=True) if count), default=0)
        if rounds * sum(counts) >= (1 - LEFT_OUT) * total:
            return counts
    return tuple(sizes)


class DrawOrder:
    """At which place of the order an episode is a draw."""

    def __init__(self, manifest: Manifest, question: FrozenQuestion) -> None:
        self._by_suite: dict[str, npt.NDArray[np.int64]] = {}
        self.turn = sum(sum(suite.strata.values()) for suite in question.suites)
        self.lead = 0
        """Draws before the first turn."""
        if question.about == "this suite":
            self._number(manifest, question)
            self.draws = self.turn * manifest.replicates
        else:
            self.draws = self._interleave(manifest, question)

    def _number(self, manifest: Manifest, question: FrozenQuestion) -> None:
        first = 0
        for suite in question.suites:
            count = len(manifest.suites[suite.name].instances)
            self._by_suite[suite.name] = np.arange(first, first + count, dtype=np.int64)
            first += count

    def _interleave(self, manifest: Manifest, question: FrozenQuestion) -> int:
        """Give each instance its place; returns how many draws there are."""
        rounds, before = 1 << 62, 0
        strata: list[tuple[str, npt.NDArray[np.intp], int, int]] = []
        for suite in question.suites:
            own = laid(manifest.suites[suite.name].instances)
            order = np.fromiter(admission(own, question.key), np.intp, len(own))
            codes = own.codes()[order]
            for code, stratum in enumerate(own.strata):
                count = suite.strata.get(stratum, 0)
                members = order[codes == code]
                rounds = min(rounds, len(members) // count) if count else rounds
                strata.append((suite.name, members, count, before))
                before += count
            self._by_suite[suite.name] = np.full(len(own), -1, np.int64)
        draws, led = rounds * self.turn if before else 0, 0
        if question.about == "this suite once":
            self.lead = sum(len(members) for _, members, _, _ in strata) - draws
        for name, members, count, offset in strata:
            early = len(members) - rounds * count if self.lead else 0
            rank = np.arange(-early, len(members) - early, dtype=np.int64)
            places = self.lead + rank // max(1, count) * self.turn + offset + rank % max(1, count)
            places = np.where(rank < 0, led + early + rank, places)
            self._by_suite[name][members] = np.where(rank < rounds * count, places, -1)
            led += early
        return draws + self.lead

    def place(self, suite: str, index: int, replicate: int) -> int | None:
        """Of an episode, by its instance's place in its suite; None if it is no draw."""
        places = self._by_suite.get(suite)
        if places is None:
            return None
        place = int(places[index])
        # Of such instances there is one replicate alone.
        return place + replicate * self.turn if place >= 0 else None


def indices(manifest: Manifest, wanted: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], int]:
    """The places of instances in their suites, by suite and id; `wanted`: ids by suite."""
    return {
        (suite, name): place
        for suite, names in wanted.items()
        for name, place in laid(manifest.suites[suite].instances).find(list(names)).items()
    }


def freeze_question(manifest: Manifest, decide: Decide) -> FrozenQuestion:
    """A sweep's question about a run as it is planned. Raises UsageError where it cannot be answered."""
    agents = tuple(manifest.agents)
    suites = [
        suite
        for suite in manifest.suites.values()
        if all(suite.environment in agent.packs for agent in manifest.agents.values())
    ]
    if not suites:
        raise UsageError("decide: there is no suite that all agents play, so nothing can be compared.")
    if decide.about != "this suite" and manifest.order.key is None:
        raise UsageError(
            "decide: the instances of this run come in the order of their list, which may carry their difficulty. Ask "
            'about "this suite" with several replicates, or start a run of its own with --name.'
        )
    asked, frozen = _inquiry(decide, agents, score_bounds(suites)), _suites(decide, suites)
    return FrozenQuestion(
        version=VERSION,
        about=decide.about,
        agents=agents,
        asked=asked.asked,
        pairs=asked.pairs,
        margin=asked.margin,
        alpha=asked.alpha,
        alpha_each=asked.alpha_each,
        precision=dict(asked.precision),
        scores=(asked.scores.least, asked.scores.most),
        ahead=AHEAD,
        bets=BETS_VERSION,
        key=manifest.order.key,
        suites=frozen,
    )


def _suites(decide: Decide, suites: Sequence[ManifestSuite]) -> tuple[FrozenSuite, ...]:
    """The suites, each with what a turn has of its strata."""
    sizes = [(suite, stratum, size) for suite in suites for stratum, size in laid(suite.instances).strata.items()]
    counts = [size for *_, size in sizes]
    if decide.about != "this suite":
        # Where nothing is left out, a turn need not have just the proportions.
        counts = list(turn_of(counts, 0 if decide.about == "this suite once" else SHORT))
    strata: dict[str, dict[str, int]] = {suite.name: {} for suite in suites}
    for (suite, stratum, _), count in zip(sizes, counts, strict=True):
        strata[suite.name][stratum] = count
    return tuple(FrozenSuite(name=suite.name, digest=suite.digest, strata=strata[suite.name]) for suite in suites)


def score_bounds(suites: Sequence[ManifestSuite]) -> Bounds:
    """From where to where scores count.

    Chosen: where scores have no lower end, those below 0 count as 0, and those above 1, where they have no upper end,
    as 1. Without two bounds that were fixed beforehand nothing would hold at every look.
    """
    ranges = [ENVIRONMENTS[suite.environment].score_range for suite in suites]
    return Bounds(
        least=min(least if math.isfinite(least) else 0.0 for least, _ in ranges),
        most=max(most if math.isfinite(most) else 1.0 for _, most in ranges),
    )


def _inquiry(decide: Decide, agents: Sequence[str], scores: Bounds) -> Inquiry:
    """Raises UsageError."""
    half = decide.precision
    try:
        return question(
            agents,
            pairs=decide.pairs,
            margin=decide.margin / POINTS,
            alpha=ALPHA,
            scores=scores,
            precision={} if half is None else dict.fromkeys(agents, half / POINTS),
        )
    except ValueError as flaw:
        raise UsageError(f"decide: {flaw} (100 points are 1).") from flaw


def changes(frozen: FrozenQuestion, now: FrozenQuestion) -> Mapping[str, tuple[Any, Any]]:
    """What a sweep asks differently now: by key, what it was and what it is."""
    names = ("asked", "pairs", "margin", "alpha", "precision", "scores", "agents", "key", "gate")
    found: dict[str, tuple[Any, Any]] = {"scope": (frozen.about, now.about)}
    found |= {name: (getattr(frozen, name), getattr(now, name)) for name in names}
    found["suites"] = tuple(one.name for one in frozen.suites), tuple(one.name for one in now.suites)
    found["instances"] = frozen.suites, now.suites
    return {name: (was, is_now) for name, (was, is_now) in found.items() if was != is_now}
